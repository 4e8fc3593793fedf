/* names.c - what steps.def and slots.def say, as functions. */
#include "model/graph.h"

static const char *const steps[] = {
#define X(name, formula) #name,
#include "model/steps.def"
#undef X
};

static const struct {
    const char *name;
    enum lily_slot_kind kind;
} slots[] = {
#define X(name, kind, elements, what) {#name, SLOT_##kind},
#include "model/slots.def"
#undef X
};

const char *lily_step_name(unsigned step) { return step < N_STEPS ? steps[step] : "?"; }
const char *lily_slot_name(unsigned slot) { return slot < N_SLOTS ? slots[slot].name : "?"; }
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
