/* pace.c - see pace.h. */
#include "run/pace.h"

enum { FIRST = 4 };     /* tokens, when nothing is known */

uint32_t lily_pace_slice(const lily_pace *p, uint32_t ms)
{
    uint64_t target = ms * 1000000ull, n = FIRST;
    if (p->token_ns) {
        n = target / p->token_ns;
        if (n > 2ull * p->slice) n = 2ull * p->slice;
    } else if (p->decode_ns) {
        n = target / p->decode_ns;
    }
    return n < 1 ? 1 : n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

void lily_pace_decoded(lily_pace *p, uint64_t ns) { p->decode_ns = ns ? ns : 1; }

void lily_pace_sliced(lily_pace *p, uint32_t tokens, uint64_t ns)
{
    uint64_t share = ns / tokens;
    /* The rest of a prompt is short, and says nothing of how long a whole slice would take. */
    if (p->token_ns && tokens < p->slice / 2) return;
    p->token_ns = share ? share : 1;
    p->slice = tokens;
}
