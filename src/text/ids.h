/* ids.h - a growing array of token ids. */
#ifndef LILY_TEXT_IDS_H
#define LILY_TEXT_IDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct lily_ids {
    int32_t *id;        /* owned */
    size_t n, cap;
} lily_ids;             /* {0} is an empty one */

void lily_ids_free(lily_ids *ids);
/* Makes room for `more` ids beyond n. */
int lily_ids_reserve(lily_ids *ids, size_t more, lily_err *e);
int lily_ids_add(lily_ids *ids, int32_t id, lily_err *e);

#endif
