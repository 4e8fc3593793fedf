/* guard.h - who may ask: keys, origins of web pages, names of this host.  Judged by the head of a request alone.
 *
 *     key      with keys set every path needs one, but GET /health, the chat page's files, and preflight requests,
 *              which browsers send without.  `Authorization: Bearer KEY` or `x-api-key: KEY`
 *     origin   a web page of another origin may read answers only when it is allowed.  Without keys it may not even
 *              ask: a page could make the machine work, though it would not see the answer
 *     host     without keys, on loopback addresses and where names are given, a request must name
 *              this machine: a page whose own name was made to point here (DNS rebinding) is refused */
#ifndef LILY_API_GUARD_H
#define LILY_API_GUARD_H

#include <stdbool.h>

#include "api/http.h"
#include "base/err.h"

typedef struct lily_guard_options {
    const char *key, *key_file;     /* may be NULL; a file holds one key a line, '#' begins a comment line */
    const char *origins;            /* "https://a.example,http://localhost:3000" or "*"; NULL: none */
    const char *hosts;              /* further names of this host, with commas between; "*": any; NULL: none */
    enum lily_reach reach;
} lily_guard_options;

typedef struct lily_guard lily_guard;

/* LILY_ARGUMENT for a key that could not stand in a header, a key file without keys or one that others may write, an
 * origin that is none.  A key file that others may read is told in the log. Keys are kept as hashes only. */
int lily_guard_new(lily_guard **out, const lily_guard_options *o, lily_err *e);
void lily_guard_free(lily_guard *g);
bool lily_guard_has_key(const lily_guard *g);

/* On the network thread (http.h: admit): sets the headers that browsers want, and answers what may not go on; true: it
 * may. */
bool lily_guard_admit(const lily_guard *g, lily_http_req *req);

#endif
