/* memory.c - what the system has, and whether a plan fits. */
#include "run/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"

#ifdef __APPLE__
#include <mach/mach.h>
#include <sys/sysctl.h>

void lily_system_memory(uint64_t *total, uint64_t *available)
{
    size_t n = sizeof *total;
    *total = *available = 0;
    if (sysctlbyname("hw.memsize", total, &n, NULL, 0) != 0) *total = 0;
    vm_statistics64_data_t vm = {0};
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&vm, &count) == KERN_SUCCESS)
        *available = ((uint64_t)vm.free_count + vm.inactive_count + vm.purgeable_count) * vm_kernel_page_size;
}

#else
#include <stdio.h>

/* Files of /proc and /sys say that they are empty, so they are read as a stream. */
static bool read_small(const char *path, char *text, size_t room)
{
    FILE *f = fopen(path, "r");
    if (!f) return false;
    size_t n = fread(text, 1, room - 1, f);
    text[n] = 0;
    fclose(f);
    return n > 0;
}

/* "NAME:   123 kB" in bytes, or 0. */
static uint64_t meminfo(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) * 1024 : 0;
}

void lily_system_memory(uint64_t *total, uint64_t *available)
{
    char text[4096];
    *total = *available = 0;
    if (read_small("/proc/meminfo", text, sizeof text)) {
        *total = meminfo(text, "MemTotal:");
        *available = meminfo(text, "MemAvailable:");
    }
    /* In a container the group's limit shows here; "max" gives 0. */
    if (read_small("/sys/fs/cgroup/memory.max", text, sizeof text)) {
        uint64_t max = strtoull(text, NULL, 10);
        if (max && (!*total || max < *total)) *total = max;
        if (max && (!*available || max < *available)) *available = max;
    }
}
#endif

static double gib(uint64_t bytes) { return (double)bytes / (1 << 30); }

int lily_memory_fits(const lily_memory *m, uint64_t limit, uint32_t context, lily_err *e)
{
    uint64_t total, available, allocated = m->planned - m->weights;
    if (limit) {
        if (m->planned <= limit) return LILY_OK;
        return lily_fail(e, LILY_NO_MEMORY,
                         "a context of %u tokens needs %.2f GiB (%.2f for weights, %.2f beside them), the limit is %.2f GiB",
                         context, gib(m->planned), gib(m->weights), gib(allocated), gib(limit));
    }
    lily_system_memory(&total, &available);
    if (total && m->planned > total)
        return lily_fail(e, LILY_NO_MEMORY,
                         "a context of %u tokens needs %.2f GiB (%.2f for weights, %.2f beside them), the machine has %.2f GiB",
                         context, gib(m->planned), gib(m->weights), gib(allocated), gib(total));
    if (available && allocated > available)
        return lily_fail(e, LILY_NO_MEMORY,
                         "a context of %u tokens needs %.2f GiB beside the weights, %.2f GiB are free", context,
                         gib(allocated), gib(available));
    return LILY_OK;
}

int lily_device_memory_fits(const lily_memory *m, uint64_t available, uint64_t limit, uint32_t context, lily_err *e)
{
    const uint64_t most = limit && (!available || limit < available) ? limit : available;
    if (!most || m->planned <= most) return LILY_OK;
    return lily_fail(e, LILY_NO_MEMORY,
                     "a context of %u tokens needs %.2f GiB of the device's memory (%.2f for weights), %s %.2f GiB", context,
                     gib(m->planned), gib(m->weights), most == limit ? "the limit is" : "free are", gib(most));
}
