/* configs.h - models as numbers. */
#ifndef LILY_TESTS_PLAN_CONFIGS_H
#define LILY_TESTS_PLAN_CONFIGS_H

#include "model/config.h"

/* Layers of the small one: three of Gated DeltaNet, then one of attention, and so on. */
lily_config small_config(uint32_t layers);
/* Qwen3.6-35B-A3B. */
lily_config full_config(void);

#endif
