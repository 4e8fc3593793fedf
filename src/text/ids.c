#include "text/ids.h"

#include "base/mem.h"

void lily_ids_free(lily_ids *ids)
{
    lily_free(ids->id);
    *ids = (lily_ids){0};
}

int lily_ids_reserve(lily_ids *ids, size_t more, lily_err *e)
{
    if (more <= ids->cap - ids->n) return LILY_OK;
    if (more > SIZE_MAX / 4 - ids->n) return lily_no_memory(e, SIZE_MAX, "token ids");
    size_t cap = ids->n + more;
    if (cap < ids->cap * 2) cap = ids->cap * 2;
    if (cap < 64) cap = 64;
    int32_t *id = lily_realloc(ids->id, cap, sizeof *id);
    if (!id) return lily_no_memory(e, cap * sizeof *id, "token ids");
    ids->id = id;
    ids->cap = cap;
    return LILY_OK;
}

int lily_ids_add(lily_ids *ids, int32_t id, lily_err *e)
{
    TRY(lily_ids_reserve(ids, 1, e));
    ids->id[ids->n++] = id;
    return LILY_OK;
}
