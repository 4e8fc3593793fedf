/* tok_bench MODEL_DIR FILE… - time to open the tokenizer and bytes encoded per second. */
#include <stdio.h>

#include "base/clock.h"
#include "base/file.h"
#include "text/tokenizer.h"

int main(int argc, char **argv)
{
    lily_tokenizer *t;
    lily_err e;
    uint64_t start = lily_now_ns();
    if (argc < 2 || lily_tokenizer_open(&t, argv[1], &e) != LILY_OK) {
        fprintf(stderr, "tok_bench: %s\n", argc < 2 ? "expects MODEL_DIR FILE…" : e.text);
        return 1;
    }
    printf("open %.3f s, %d ids\n", lily_seconds_since(start), (int)lily_tokenizer_n_vocab(t));
    for (int i = 2; i < argc; i++) {
        lily_buf text = {0};
        lily_ids ids = {0};
        size_t bytes = 0;
        double seconds = 0;
        if (lily_file_read(&text, argv[i], (size_t)1 << 28, &e) != LILY_OK) return 1;
        for (start = lily_now_ns(); seconds < 1.0; seconds = lily_seconds_since(start), bytes += text.len) {
            ids.n = 0;
            if (lily_encode(t, lily_buf_str(&text), text.len, true, &ids, &e) != LILY_OK) return 1;
        }
        printf("%s: %zu bytes, %zu ids, %.1f MB/s\n", lily_path_base(argv[i]), text.len, ids.n,
               (double)bytes / seconds / 1e6);
        lily_buf_free(&text);
        lily_ids_free(&ids);
    }
    lily_tokenizer_free(t);
    return 0;
}
