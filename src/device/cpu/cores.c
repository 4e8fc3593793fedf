/* cores.c - how many physical cores and how much memory this machine gives a process. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "device/cpu/pool.h"

#if defined(__APPLE__)
#include <sys/sysctl.h>

unsigned lily_physical_cores(void)
{
    int n = 0;
    size_t size = sizeof n;
    /* Performance cores alone where there are two kinds: a static share on a slow core would hold up all. */
    if (sysctlbyname("hw.perflevel0.physicalcpu", &n, &size, NULL, 0) == 0 && n > 0) return (unsigned)n;
    size = sizeof n;
    if (sysctlbyname("hw.physicalcpu", &n, &size, NULL, 0) == 0 && n > 0) return (unsigned)n;
    return 1;
}

void lily_cpu_memory(uint64_t *total, uint64_t *available)
{
    size_t size = sizeof *total;
    *total = *available = 0;
    if (sysctlbyname("hw.memsize", total, &size, NULL, 0) != 0) *total = 0;
}

#elif defined(__linux__)
#include <sched.h>

/* The lowest-numbered hardware thread of cpu's core, or cpu itself when the system does not say. */
static int first_sibling(int cpu)
{
    char path[96];
    int first = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *f = fopen(path, "r");
    if (f == NULL) return cpu;
    if (fscanf(f, "%d", &first) != 1 || first < 0 || first >= CPU_SETSIZE) first = cpu;
    fclose(f);
    return first;
}

/* Whole CPUs of the control group's quota (version 2), or 0 for no limit known. */
static unsigned quota_cores(void)
{
    long long quota, period;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (f == NULL) return 0;
    int got = fscanf(f, "%lld %lld", &quota, &period);
    fclose(f);
    return got == 2 && quota > 0 && period > 0 ? (unsigned)((quota + period - 1) / period) : 0;
}

unsigned lily_physical_cores(void)
{
    cpu_set_t allowed, seen;
    CPU_ZERO(&seen);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
    unsigned n = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        int core = first_sibling(cpu);
        if (CPU_ISSET(core, &seen)) continue;
        CPU_SET(core, &seen);
        n++;
    }
    unsigned quota = quota_cores();
    if (quota > 0 && quota < n) n = quota;
    return n > 0 ? n : 1;
}

void lily_cpu_memory(uint64_t *total, uint64_t *available)
{
    char line[128];
    unsigned long long kib;
    *total = *available = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "MemTotal: %llu kB", &kib) == 1) *total = kib * 1024;
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) *available = kib * 1024;
    }
    if (f) fclose(f);
}

#else

void lily_cpu_memory(uint64_t *total, uint64_t *available) { *total = *available = 0; }

unsigned lily_physical_cores(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (unsigned)n : 1;
}

#endif
