/* sha256.h - SHA-256 (FIPS 180-4) of a short text, for comparing secrets without telling how alike they are. */
#ifndef LILY_BASE_SHA256_H
#define LILY_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { LILY_SHA256_BYTES = 32 };

void lily_sha256(const void *data, size_t n, uint8_t out[LILY_SHA256_BYTES]);

#endif
