/* crc32c.h - CRC-32C (Castagnoli; RFC 3720, appendix B.4): finds damage, does not resist forgery. */
#ifndef LILY_BASE_CRC32C_H
#define LILY_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of a text in pieces: begin with 0, hand the result on. */
uint32_t lily_crc32c(uint32_t crc, const void *data, size_t n);

#endif
