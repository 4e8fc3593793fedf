/* devices.c - the devices that were built, best first. */
#include <string.h>

#include "device/dev.h"

static const lily_dev_ops *const devices[] = {
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

static bool opens(const lily_dev_ops *ops)
{
    lily_dev *dev;
    const lily_dev_options options = {0};
    if (ops->open(&dev, &options, NULL) != LILY_OK) return false;
    ops->close(dev);
    return true;
}

const lily_dev_ops *lily_device_find(const char *name)
{
    const bool any = strcmp(name, "auto") == 0;
    for (size_t i = 0; i < N_DEVICES; i++)
        if (any ? opens(devices[i]) : strcmp(name, devices[i]->name) == 0) return devices[i];
    return NULL;
}

lily_plan_device lily_device_for_plan(const lily_dev_ops *ops, const lily_dev *dev)
{
    return (lily_plan_device){ops->name, ops->rows, ops->n_rows, dev, ops->slot_bytes};
}
