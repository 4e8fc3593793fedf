/* lost_memory.h - a whole request, from its text to its answer, of which each allocation fails once. */
#ifndef LILY_TESTS_API_LOST_MEMORY_H
#define LILY_TESTS_API_LOST_MEMORY_H

#include "../check.h"
#include "base/buf.h"
#include "base/mem.h"

/* `request` appends its answer to *out.  It must tell LILY_NO_MEMORY, or give the whole answer. */
static void check_lost_memory(int (*request)(bool streamed, lily_buf *out, lily_err *e))
{
    for (int streamed = 0; streamed < 2; streamed++) {
        lily_buf out = {0};
        lily_err e = {0};
        check_ok(request(streamed, &out, &e), &e);
        size_t len = out.len;
        lily_buf_free(&out);
        for (int64_t n = 0;; n++) {
            out = (lily_buf){0};
            lily_mem_fail_after(n);
            int rc = request(streamed, &out, &e);
            int64_t asked = lily_mem_count();
            lily_mem_fail_after(-1);
            if (rc == LILY_OK) assert_int_equal(out.len, len);
            else assert_int_equal(rc, LILY_NO_MEMORY);
            lily_buf_free(&out);
            if (asked <= n) break;
        }
    }
}

#endif
