/* scratch.h - an empty folder for one test, removed with its files afterwards. */
#ifndef LILY_TESTS_SCRATCH_H
#define LILY_TESTS_SCRATCH_H

#include <stddef.h>

typedef struct scratch {
    char path[512];
} scratch;

/* cmocka's setup and teardown; *state is the scratch *. */
int scratch_open(void **state);
int scratch_close(void **state);

void scratch_write(const scratch *s, const char *name, const void *data, size_t n);
void scratch_text(const scratch *s, const char *name, const char *text);

#endif
