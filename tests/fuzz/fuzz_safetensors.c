/* Any bytes as a safetensors file: refused with a sentence, or every tensor lies inside them. */
#include <stdlib.h>

#include "checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lily_arena arena = {0};
    lily_tensor *list = NULL;
    size_t n = 0;
    lily_err e;
    if (lily_st_parse(&list, &n, &(lily_map){data, size}, "file", &arena, &e) == LILY_OK) {
        uint64_t bytes = 0;
        for (size_t i = 0; i < n; i++) {
            const lily_tensor *t = &list[i];
            if (t->data < data || t->bytes > size || t->data + t->bytes > data + size) abort();
            bytes += t->bytes;
        }
        if (bytes > size) abort();
    } else if (e.text[0] == 0) {
        abort();
    }
    lily_arena_free(&arena);
    return 0;
}
