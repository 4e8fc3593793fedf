/* checker.h - is a plan right?  Found out from the model's graph and the bytes, by brute force, sharing no code
 * with the planner. */
#ifndef LILY_TESTS_PLAN_CHECKER_H
#define LILY_TESTS_PLAN_CHECKER_H

#include "plan/plan.h"

/* NULL when it is; else what is wrong, in a static buffer. */
const char *check_plan(const lily_plan *p, const lily_plan_device *d, const lily_config *c, uint64_t keep);

#endif
