/* measure.c - how fast the card reads its memory when nothing is computed: the limit of decoding. */
#include "device/cuda/cuda.h"

double cuda_read_rate(lily_dev *d, const lily_weights *w)
{
    enum { LEAST = 256 << 20 }; /* less lives in the second-level cache */
    const double burst = 2e11;
    float ms = 0;
    if (w->bytes < LEAST) return 0;
    double read = 0;
    cudaEvent_t from, to;
    if (cudaEventCreate(&from) != cudaSuccess || cudaEventCreate(&to) != cudaSuccess) return 0;
    cudaEventRecord(from, d->stream);
    for (; read < burst; read += (double)w->bytes) (void)cuda_read(w->memory, w->bytes, d->sink, d->stream);
    cudaEventRecord(to, d->stream);
    if (cudaEventSynchronize(to) == cudaSuccess) (void)cudaEventElapsedTime(&ms, from, to);
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    return ms > 0 ? read / (ms * 1e-3) : 0;
}
