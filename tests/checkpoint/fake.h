/* fake.h - a checkpoint in memory that a test changes and writes to a folder of its own. */
#ifndef LILY_TESTS_FAKE_H
#define LILY_TESTS_FAKE_H

#include <jansson.h>
#include <stdint.h>

#include "scratch.h"

typedef struct fake_tensor {
    char name[160], dtype[8];
    uint32_t rank;
    uint64_t dim[5];
    uint8_t *data;
    size_t bytes;
} fake_tensor;

typedef struct fake {
    json_t *config;             /* config.json */
    fake_tensor *tensors;
    size_t n;
} fake;

void fake_read(fake *f, const char *dir);
void fake_free(fake *f);
void fake_write(const fake *f, const scratch *s);       /* config.json and one model.safetensors, no index */

fake_tensor *fake_find(fake *f, const char *name);      /* fails the test when there is none */
void fake_remove(fake *f, const char *name);
/* Adds a zero-filled tensor. */
fake_tensor *fake_add(fake *f, const char *name, const char *dtype, uint32_t rank, const uint64_t *dim, size_t bytes);
/* Cuts `prefix` from the start of every name that has it and puts `by` there. */
void fake_rename(fake *f, const char *prefix, const char *by);

#endif
