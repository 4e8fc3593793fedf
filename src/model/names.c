/* names.c - what steps.def and slots.def say, as functions. */
#include "model/graph.h"

static const struct {
    const char *name, *formula;
} steps[] = {
#define X(name, formula) {#name, formula},
#include "model/steps.def"
#undef X
};

static const struct {
    const char *name, *what;
    enum lily_slot_kind kind;
} slots[] = {
#define X(name, kind, elements, what) {#name, what, SLOT_##kind},
#include "model/slots.def"
#undef X
};

const char *lily_step_name(unsigned step) { return step < N_STEPS ? steps[step].name : "?"; }
const char *lily_step_formula(unsigned step) { return step < N_STEPS ? steps[step].formula : "?"; }
const char *lily_slot_name(unsigned slot) { return slot < N_SLOTS ? slots[slot].name : "?"; }
const char *lily_slot_what(unsigned slot) { return slot < N_SLOTS ? slots[slot].what : "?"; }
enum lily_slot_kind lily_slot_kind(unsigned slot) { return slots[slot].kind; }

uint64_t lily_slot_elements(unsigned slot, const lily_config *c, uint64_t T)
{
    switch (slot) {
#define X(name, kind, elements, what)                                                                        \
    case SLOT_##name: return (uint64_t)(elements);
#include "model/slots.def"
#undef X
    default: return 0;
    }
}
