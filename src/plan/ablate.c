/* ablate.c - switches by name. */
#include <string.h>

#include "plan/plan.h"

static const struct {
    const char *name, *with, *without;
    unsigned phases;
} switches[] = {
#define X(id, name, phases, with, without) {name, with, without, phases},
#include "plan/ablate.def"
#undef X
};

const char *lily_ablation_name(unsigned id) { return id < N_ABLATIONS ? switches[id].name : "?"; }
const char *lily_ablation_with(unsigned id) { return id < N_ABLATIONS ? switches[id].with : "?"; }
const char *lily_ablation_without(unsigned id) { return id < N_ABLATIONS ? switches[id].without : "?"; }

unsigned lily_ablation_phases(unsigned id) { return id < N_ABLATIONS ? switches[id].phases : 0; }

uint64_t lily_ablation_below(unsigned id) { return id == ABLATE_REGISTER_SCAN ? lily_bit(ABLATE_MATRIX_SCAN) : 0; }

static int unknown_switch(const char *name, size_t n, lily_err *e)
{
    lily_buf known = {0};
    for (unsigned i = 0; i < N_ABLATIONS; i++) lily_buf_printf(&known, "%s%s", i ? ", " : "", switches[i].name);
    int rc = lily_fail(e, LILY_ARGUMENT, "no switch is called '%.*s'; there are %s", (int)n, name, lily_buf_str(&known));
    lily_buf_free(&known);
    return rc;
}

int lily_ablation_parse(const char *names, uint64_t *mask, lily_err *e)
{
    static const char separators[] = ", \t";
    for (const char *p = names + strspn(names, separators); *p; p += strspn(p, separators)) {
        size_t n = strcspn(p, separators);
        unsigned i = 0;
        while (i < N_ABLATIONS && !(strlen(switches[i].name) == n && memcmp(switches[i].name, p, n) == 0)) i++;
        if (i == N_ABLATIONS) return unknown_switch(p, n, e);
        *mask |= lily_bit(i);
        p += n;
    }
    return LILY_OK;
}
