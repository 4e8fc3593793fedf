/* test_cpu_pool.c - every item exactly once, whatever the grain, asleep or awake. */
#include "../check.h"

#include <string.h>
#include <time.h>

#include "device/cpu/pool.h"

enum { ITEMS = 5000 };

typedef struct job {
    uint8_t seen[ITEMS];
    uint32_t grain;
    unsigned threads;
    int wrong;
} job;

static void mark(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    job *j = context;
    if (end - begin > j->grain || thread >= j->threads) j->wrong = 1;
    for (uint32_t i = begin; i < end; i++) j->seen[i]++;
}

static void every_item_once(void **state)
{
    (void)state;
    lily_err e;
    for (unsigned threads = 1; threads <= 4; threads++) {
        lily_pool *p;
        check_ok(lily_pool_open(&p, threads, &e), &e);
        assert_int_equal(lily_pool_threads(p), threads);
        for (uint32_t round = 0; round < 300; round++) {
            static job j;
            uint32_t n = round * 131 % ITEMS;
            memset(&j, 0, sizeof j);
            j.grain = 1 + round % 17;
            j.threads = threads;
            lily_pool_for(p, n, j.grain, mark, &j);
            assert_int_equal(j.wrong, 0);
            for (uint32_t i = 0; i < ITEMS; i++) assert_int_equal(j.seen[i], i < n);
            /* Past the time that workers spin, so that they have to be woken. */
            if (round % 100 == 0) nanosleep(&(struct timespec){0, 2000000}, NULL);
        }
        lily_pool_close(p);
    }
}

static void cores_are_counted(void **state)
{
    (void)state;
    lily_err e;
    lily_pool *p;
    assert_true(lily_physical_cores() >= 1);
    check_ok(lily_pool_open(&p, 0, &e), &e);
    assert_int_equal(lily_pool_threads(p), lily_physical_cores());
    lily_pool_close(p);
    lily_pool_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_item_once), cmocka_unit_test(cores_are_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
