/* err.h - errors are values: a code, the place that made it, and one sentence for a person.
 *
 * A function that can fail returns an enum lily_code (LILY_OK is 0) and takes a lily_err * last.
 * The first failure fills it; TRY forwards.  Only the top (cli, api) turns a code into an exit
 * status or an HTTP status; libraries never print and never exit. */
#ifndef LILY_BASE_ERR_H
#define LILY_BASE_ERR_H

#include <stddef.h>

/*      name         exit  HTTP  what it means */
#define LILY_CODES(X)                                                                                        \
    X(OK,              0,  200, "no error")                                                                  \
    X(NO_MEMORY,       9,  503, "an allocation failed or would pass a limit")                                \
    X(IO,              3,  500, "the system refused a read, write, map or socket call")                      \
    X(FORMAT,          4,  500, "a file of the checkpoint is damaged or not what it claims to be")           \
    X(UNSUPPORTED,     5,  400, "well-formed, but Lily does not do it")                                      \
    X(ARGUMENT,        2,  400, "the caller's value is wrong")                                               \
    X(CONTEXT,         6,  400, "more tokens than the context holds")                                        \
    X(BUSY,            7,  429, "a queue is full or a port is taken")                                        \
    X(CANCELLED,     130,  499, "stopped on request")                                                        \
    X(DEVICE,          8,  500, "the device failed or disagreed")                                            \
    X(INTERNAL,       70,  500, "a bug in Lily")

enum lily_code {
#define X(name, exit_status, http_status, what) LILY_##name,
    LILY_CODES(X)
#undef X
};

#define LILY_ERR_TEXT 1024

typedef struct lily_err {
    enum lily_code code;
    int line;
    const char *file;             /* place in the source; static storage */
    char text[LILY_ERR_TEXT];     /* one sentence, UTF-8, never a control character, NUL-terminated */
} lily_err;

/* Fills e (may be NULL) and returns code.  Control bytes and broken UTF-8 in the text, which may come
 * out of hostile files, are replaced by '?'. */
#define lily_fail(e, code, ...) lily_fail_at((e), (code), __FILE__, __LINE__, __VA_ARGS__)
int lily_fail_at(lily_err *e, enum lily_code code, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Puts "PREFIX: " before the sentence of an error on its way up; returns its code. */
int lily_err_prefix(lily_err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

const char *lily_err_name(int code);          /* "NO_MEMORY" … */
int lily_err_exit_status(int code);
int lily_err_http_status(int code);

/* Forward a failure to the caller. */
#define TRY(call)                                                                                            \
    do {                                                                                                     \
        int try_code_ = (call);                                                                              \
        if (try_code_ != 0) return try_code_;                                                                \
    } while (0)

/* Forward a failure to a label that frees; `rc` must be in scope. */
#define TRY_TO(label, call)                                                                                  \
    do {                                                                                                     \
        rc = (call);                                                                                         \
        if (rc != 0) goto label;                                                                             \
    } while (0)

#endif
