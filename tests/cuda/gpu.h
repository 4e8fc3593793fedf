/* gpu.h - what the tests of the cuda device share.  Each skips, by name, where no GPU answers. */
#ifndef LILY_TESTS_CUDA_GPU_H
#define LILY_TESTS_CUDA_GPU_H

#include "../cpu/session.h"

#define TINY LILY_BINARY_DIR "/tests/ck/tiny"
#define ODD  LILY_BINARY_DIR "/tests/ck/odd"
#define DEMO LILY_SOURCE_DIR "/models/demo"

enum { N_MODELS = 3 };
extern const char *const gpu_models[N_MODELS];

/* The device's variant, "portable" or NULL: a program's first argument. */
extern const char *gpu_variant;

/* skip() when the device does not open, with the reason; else goes on. */
void gpu_or_skip(void);

/* Whether rows and kernels that only Hopper has are taken. */
bool gpu_is_hopper(void);

void gpu_tokens(const opened *o, int32_t *tokens, uint32_t n);
/* One run, prefill or decode, of any device; its logits after the last token, to be freed by lily_free. */
float *gpu_run(session *s, lily_lane lane, bool decode, lily_done *done);
/* Largest difference over rms allowed, said when it is more; counts failures. */
void gpu_expect(double off, double allowed, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Fails when one of the expectations since the last call did not hold. */
void gpu_settle(void);

#endif
