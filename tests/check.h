/* check.h - cmocka with the headers it wants, in the order it wants them. */
#ifndef LILY_TESTS_CHECK_H
#define LILY_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"

/* Fails with the error's own sentence. */
#define check_ok(call, err)                                                                                  \
    do {                                                                                                     \
        if ((call) != LILY_OK) fail_msg("%s: %s", #call, (err)->text);                                       \
    } while (0)

#define check_fails(call, want, err)                                                                         \
    do {                                                                                                     \
        int got_ = (call);                                                                                   \
        if (got_ != (want)) fail_msg("%s: wanted %s, got %s (%s)", #call, lily_err_name(want),               \
                                     lily_err_name(got_), got_ ? (err)->text : "");                          \
    } while (0)

#endif
