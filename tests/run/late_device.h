/* late_device.h - a device that takes a run before the one in front of it is waited for, made of any: it runs at once, and
 * tells later.  Without a GPU there is no other. */
#ifndef LILY_TESTS_RUN_LATE_DEVICE_H
#define LILY_TESTS_RUN_LATE_DEVICE_H

#include "run/engine_inside.h"

enum { LATE_KEPT = 4 };

static struct {
    const lily_dev_ops *real;
    lily_dev_ops ops;
    lily_done done[LATE_KEPT];      /* of ticket t at t % LATE_KEPT */
    uint64_t ticket[LATE_KEPT];
    atomic_uint handed, again;      /* runs without tokens; choices made anew */
    atomic_int until_fault;         /* runs without tokens until one cannot be submitted; negative: never */
} late_device;

static inline int late_submit(lily_dev *d, lily_exec *x, enum lily_segment first, enum lily_segment last, const lily_lane *lane,
                              uint32_t n_lanes, uint64_t *ticket, lily_err *e)
{
    lily_lane cut = *lane;
    atomic_bool now = true;
    bool fails = !lane->tokens && atomic_fetch_sub(&late_device.until_fault, 1) == 0;
    if (fails) cut.cancel = &now;
    TRY(late_device.real->submit(d, x, first, last, &cut, n_lanes, ticket, e));
    if (fails) return lily_fail(e, LILY_DEVICE, "planted failure");
    atomic_fetch_add(&late_device.handed, !lane->tokens);
    atomic_fetch_add(&late_device.again, first == LILY_PICK);
    late_device.ticket[*ticket % LATE_KEPT] = *ticket;
    return late_device.real->wait(d, *ticket, &late_device.done[*ticket % LATE_KEPT], n_lanes, e);
}

static inline int late_wait(lily_dev *d, uint64_t ticket, lily_done *done, uint32_t n_lanes, lily_err *e)
{
    (void)d, (void)n_lanes;
    if (late_device.ticket[ticket % LATE_KEPT] != ticket) return lily_fail(e, LILY_INTERNAL, "run %d is forgotten", (int)ticket);
    *done = late_device.done[ticket % LATE_KEPT];
    return LILY_OK;
}

/* The engine must be idle. */
static inline void hand_over(lily_engine *g, bool on)
{
    if (!late_device.real) {
        late_device.real = g->m.ops;
        late_device.ops = *late_device.real;
        late_device.ops.submit = late_submit;
        late_device.ops.wait = late_wait;
        late_device.ops.heeds |= lily_bit(ABLATE_TOKEN_HANDOFF);
        atomic_store(&late_device.until_fault, -1);
    }
    g->m.ops = on ? &late_device.ops : late_device.real;
    g->m.ablated = on ? 0 : lily_bit(ABLATE_TOKEN_HANDOFF);
    atomic_store(&late_device.handed, 0);
    atomic_store(&late_device.again, 0);
}

#endif
