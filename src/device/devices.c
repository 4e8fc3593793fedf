/* devices.c - the devices that were built, best first. */
#include <string.h>

#include "base/buf.h"
#include "device/dev.h"

static const lily_dev_ops *const devices[] = {
#ifdef LILY_DEVICE_CUDA
    &lily_dev_cuda,
#endif
#ifdef LILY_DEVICE_CPU
    &lily_dev_cpu,
#endif
    &lily_dev_ref,
};

enum { N_DEVICES = sizeof devices / sizeof *devices };

const lily_dev_ops *const *lily_devices(size_t *n)
{
    *n = N_DEVICES;
    return devices;
}

static const lily_dev_ops *find(const char *name, size_t n)
{
    for (size_t i = 0; i < N_DEVICES; i++)
        if (strlen(devices[i]->name) == n && memcmp(devices[i]->name, name, n) == 0) return devices[i];
    return NULL;
}

const lily_dev_ops *lily_device_find(const char *name)
{
    return find(name, strlen(name));
}

/* The last reason is the one for people: it is about the device that this machine most likely has. */
static int open_best(const lily_dev_ops **ops, lily_dev **dev, const lily_dev_options *o, lily_err *e)
{
    int rc = lily_fail(e, LILY_UNSUPPORTED, "this build has no device but ref");
    for (size_t i = 0; i < N_DEVICES; i++) {
        if (devices[i] == &lily_dev_ref) continue;
        rc = devices[i]->open(dev, o, e);
        *ops = devices[i];
        if (rc == LILY_OK) return LILY_OK;
    }
    return rc;
}

static int unknown_device(const char *name, lily_err *e)
{
    lily_buf known = {0};
    for (size_t i = 0; i < N_DEVICES; i++) lily_buf_printf(&known, ", %s", devices[i]->name);
    int rc =
        lily_fail(e, LILY_ARGUMENT, "no device is called '%s'; there are auto%s", name, lily_buf_str(&known));
    lily_buf_free(&known);
    return rc;
}

static size_t name_length(const char *name) { return strcspn(name, ":"); }

int lily_device_known(const char *name, lily_err *e)
{
    return strcmp(name, "auto") == 0 || find(name, name_length(name)) ? LILY_OK : unknown_device(name, e);
}

int lily_device_open(const lily_dev_ops **ops, lily_dev **dev, const char *name, const lily_dev_options *o, lily_err *e)
{
    lily_dev_options options = *o;
    const char *variant = strchr(name, ':');
    *dev = NULL;
    options.which = variant ? variant + 1 : NULL;
    if (strcmp(name, "auto") == 0) return open_best(ops, dev, &options, e);
    *ops = find(name, name_length(name));
    return *ops ? (*ops)->open(dev, &options, e) : unknown_device(name, e);
}

lily_plan_device lily_device_for_plan(const lily_dev_ops *ops, const lily_dev *dev)
{
    return (lily_plan_device){ops->name, ops->rows, ops->n_rows, dev, ops->slot_bytes, {0}};
}

static bool is_removable(const lily_dev_ops *ops, uint64_t ablation)
{
    uint64_t rows = 0;
    for (size_t i = 0; i < ops->n_rows; i++) rows |= ops->rows[i].off;
    return (rows | ops->heeds | LILY_ENGINE_ABLATIONS) & ablation;
}

const char *lily_device_keeps(const lily_dev_ops *ops, unsigned ablation)
{
    if (is_removable(ops, lily_bit(ablation))) return NULL;
    return ops->keeps && ops->keeps[ablation] ? ops->keeps[ablation] : "it has no such thing";
}

int lily_device_without(const lily_dev_ops *ops, uint64_t ablated, lily_err *e)
{
    for (unsigned i = 0; i < N_ABLATIONS; i++) {
        const char *why = ablated & lily_bit(i) ? lily_device_keeps(ops, i) : NULL;
        if (why)
            return lily_fail(e, LILY_UNSUPPORTED, "device %s cannot turn %s off: %s", ops->name, lily_ablation_name(i), why);
    }
    return LILY_OK;
}
