/* disk_session.c - one conversation to its file and back. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/disk_inside.h"

/* ---- reading ---- */

/* Whole pieces are read, so that each can be checked, and of the last one what is wanted is taken. */
static int load_rows(lily_disk *d, const lily_cache_file *f, lily_session *s, uint32_t n, lily_err *e)
{
    const lily_cache_section *rows = lily_cache_find(f, LILY_CACHE_ROWS);
    lily_buf sums = {0};
    int rc = lily_cache_read(f, lily_cache_find(f, LILY_CACHE_ROW_SUMS), (size_t)-1, &sums, e);
    for (uint32_t at = 0; at < n && rc == LILY_OK; at += LILY_CACHE_PIECE) {
        uint32_t there = rows->number - at < LILY_CACHE_PIECE ? rows->number - at : LILY_CACHE_PIECE, sum;
        uint32_t wanted = n - at < there ? n - at : there;
        size_t bytes = (size_t)(there * d->per_token);
        rc = lily_cache_read_part(f, rows, at * d->per_token, d->buffer, bytes, e);
        memcpy(&sum, sums.data + at / LILY_CACHE_PIECE * sizeof sum, sizeof sum);
        if (rc == LILY_OK && lily_crc32c(0, d->buffer, bytes) != sum)
            rc = lily_fail(e, LILY_FORMAT, "keys and values are damaged");
        if (rc == LILY_OK)
            rc = d->m->ops->rows_load(d->m->dev, lily_session_state(s), at, wanted, d->buffer, e);
    }
    lily_buf_free(&sums);
    return rc;
}

static int load_states(lily_disk *d, const lily_cache_file *f, lily_session *s, uint32_t n, lily_err *e)
{
    for (uint32_t i = 0; i < f->n_sections; i++) {
        const lily_cache_section *x = &f->section[i];
        if (x->type != LILY_CACHE_RECURRENT || x->number > n) continue;
        TRY(lily_cache_read_into(f, x, d->buffer, (size_t)d->snapshot, e));
        TRY(d->m->ops->recurrent_load(d->m->dev, lily_session_state(s), x->number, d->buffer, e));
    }
    return LILY_OK;
}

/* The first n tokens of an open file, which must be these. */
static int load(lily_disk *d, const lily_cache_file *f, lily_session *s, const int32_t *tokens, uint32_t n, lily_err *e)
{
    disk_entry x = {0};
    lily_buf said = {0};
    int rc = disk_read_entry(d, f, &x, &said, e);
    if (rc == LILY_OK && (x.n < n || memcmp(said.data, tokens, n * sizeof *tokens) != 0))
        rc = lily_fail(e, LILY_FORMAT, "it holds other tokens now");
    lily_buf_free(&said);
    TRY(rc);
    TRY(lily_session_fill(s, tokens, n, e));
    TRY(load_rows(d, f, s, n, e));
    return load_states(d, f, s, n, e);
}

int lily_disk_load(lily_disk *d, lily_session *s, const int32_t *tokens, uint32_t n, lily_err *e)
{
    uint32_t prefix, i = disk_find(d, tokens, n, &prefix);
    lily_cache_file f;
    lily_err ignored;
    if (i == d->n_entries) return lily_fail(e, LILY_ARGUMENT, "the cache has nothing of this prompt");
    char *path = lily_path_join(d->dir, d->entry[i].name);
    int rc = path ? lily_cache_open(&f, path, e) : lily_no_memory(e, strlen(d->dir), "a path");
    lily_free(path);
    if (rc == LILY_OK) {
        rc = load(d, &f, s, tokens, prefix, e);
        lily_cache_close(&f);
        if (rc != LILY_OK) lily_err_prefix(e, "%s", d->entry[i].name);
    }
    lily_session_filled(s);
    if (rc == LILY_OK && lily_session_prefix(s, tokens, prefix) != prefix)
        rc = lily_fail(e, LILY_FORMAT, "%s: no state at token %u", d->entry[i].name, prefix);
    if (rc == LILY_OK) {
        disk_touch(d, d->entry[i].name);
        return rc;
    }
    (void)lily_session_reset(s, &ignored);
    if (rc != LILY_NO_MEMORY) {
        lily_log(LILY_LOG_WARN, "cache: passed over: %s", e->text);
        disk_remove(d, i, false);
    }
    return rc;
}

/* ---- writing ---- */

/* A prompt goes on from the end, parts from it where its thoughts are left out, or shares only its beginning: these
 * positions, and before the end the newest one. */
static uint32_t choose_positions(const lily_session *s, uint32_t out[DISK_POSITIONS])
{
    uint32_t at[LILY_SNAPSHOTS + 1], n = lily_session_positions(s, at), chosen = 0;
    uint32_t settled = lily_session_settled(s);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || at[i] == settled || i + 2 >= n) out[chosen++] = at[i];
    return chosen;
}

static int save_rows(lily_disk *d, const lily_session *s, lily_cache_writer *w, uint32_t n, bool (*stop)(void *),
                     void *user, lily_err *e)
{
    const lily_dev_ops *ops = d->m->ops;
    lily_buf sums = {0};
    int rc = lily_cache_begin(w, LILY_CACHE_ROWS, n, e);
    for (uint32_t at = 0; at < n && rc == LILY_OK; at += LILY_CACHE_PIECE) {
        uint32_t piece = n - at < LILY_CACHE_PIECE ? n - at : LILY_CACHE_PIECE;
        if (stop && stop(user)) rc = lily_fail(e, LILY_CANCELLED, "there is other work");
        if (rc == LILY_OK) rc = ops->rows_save(d->m->dev, lily_session_state(s), at, piece, d->buffer, e);
        if (rc == LILY_OK) rc = lily_cache_write(w, d->buffer, (size_t)(piece * d->per_token), e);
        uint32_t sum = lily_crc32c(0, d->buffer, (size_t)(piece * d->per_token));
        lily_buf_add(&sums, &sum, sizeof sum);
    }
    if (rc == LILY_OK) rc = lily_buf_ok(&sums, "checksums", e);
    if (rc == LILY_OK) rc = lily_cache_begin(w, LILY_CACHE_ROW_SUMS, 0, e);
    if (rc == LILY_OK) rc = lily_cache_write(w, sums.data, sums.len, e);
    lily_buf_free(&sums);
    return rc;
}

static int save(lily_disk *d, const lily_session *s, const disk_entry *x, lily_cache_writer *w, bool (*stop)(void *),
                void *user, lily_err *e)
{
    uint32_t n;
    const int32_t *tokens = lily_session_tokens(s, &n);
    TRY(lily_cache_begin(w, LILY_CACHE_IDENTITY, 0, e));
    TRY(lily_cache_write(w, d->identity.data, d->identity.len, e));
    TRY(lily_cache_begin(w, LILY_CACHE_TOKENS, x->settled, e));
    TRY(lily_cache_write(w, tokens, n * sizeof *tokens, e));
    for (uint32_t i = 0; i < x->n_places; i++) {
        if (stop && stop(user)) return lily_fail(e, LILY_CANCELLED, "there is other work");
        TRY(d->m->ops->recurrent_save(d->m->dev, lily_session_state(s), x->place[i].position, d->buffer, e));
        TRY(lily_cache_begin(w, LILY_CACHE_RECURRENT, x->place[i].position, e));
        TRY(lily_cache_write(w, d->buffer, (size_t)d->snapshot, e));
    }
    return save_rows(d, s, w, n, stop, user, e);
}

static void describe(const lily_session *s, disk_entry *x)
{
    uint32_t at[DISK_POSITIONS], n = choose_positions(s, at);
    const int32_t *tokens = lily_session_tokens(s, &x->n);
    x->settled = lily_session_settled(s);
    disk_set_places(x, tokens, at, n);
    lily_replies_key key = x->place[n - 1].key;
    snprintf(x->name, sizeof x->name, "%016" PRIx64 "%016" PRIx64 ".lilycache", key.hi, key.lo);
}

static bool is_end_of(const disk_entry *x, const disk_place *p)
{
    const disk_place *end = &x->place[x->n_places - 1];
    return end->position == p->position && end->key.hi == p->key.hi && end->key.lo == p->key.lo;
}

bool lily_disk_has(const lily_disk *d, const lily_session *s)
{
    disk_entry x = {0};
    describe(s, &x);
    for (uint32_t i = 0; i < d->n_entries; i++)
        if (is_end_of(&d->entry[i], &x.place[x.n_places - 1])) return true;
    return false;
}

/* The place from which on an entry has nothing but its last reply; NULL when that is not at a place. */
static const disk_place *settled_place(const disk_entry *x)
{
    for (uint32_t i = 0; i < x->n_places; i++)
        if (x->place[i].position == x->settled) return &x->place[i];
    return NULL;
}

static bool begins_with(const int32_t *tokens, const disk_place *p)
{
    lily_replies_key key = lily_replies_key_add(lily_replies_key_start(), tokens, p->position);
    return key.hi == p->key.hi && key.lo == p->key.lo;
}

bool lily_disk_is_due(const lily_disk *d, const lily_session *s)
{
    enum { SHARE = 8 };
    uint32_t n, there;
    const int32_t *tokens = lily_session_tokens(s, &n);
    if (n * d->per_token + DISK_POSITIONS * d->snapshot <= d->small) return true;
    (void)disk_find(d, tokens, n, &there);
    return n - there >= n / SHARE;
}

/* Entries that x goes on with, or that are another reply to what it goes on with. */
static void drop_beginnings(lily_disk *d, const disk_entry *x, const int32_t *tokens)
{
    for (uint32_t i = d->n_entries; i-- > 0;) {
        const disk_place *settled = settled_place(&d->entry[i]), *end = &d->entry[i].place[d->entry[i].n_places - 1];
        bool goes_on = end->position < x->n && begins_with(tokens, end);
        if (goes_on || (settled && settled->position < x->settled && begins_with(tokens, settled)))
            disk_remove(d, i, true);
    }
}

int lily_disk_save(lily_disk *d, const lily_session *s, bool sync, bool (*stop)(void *user), void *user, lily_err *e)
{
    disk_entry x = {0};
    lily_cache_writer w;
    uint32_t n;
    const int32_t *tokens = lily_session_tokens(s, &n);
    if (n == 0) return LILY_OK;
    describe(s, &x);
    TRY(lily_cache_create(&w, d->dir, LILY_CACHE_CONVERSATION, e));
    int rc = save(d, s, &x, &w, stop, user, e);
    if (rc != LILY_OK) {
        lily_cache_abandon(&w);
        return rc;
    }
    TRY(lily_cache_commit(&w, d->dir, x.name, sync, e));
    TRY(disk_add(d, &x, e));
    drop_beginnings(d, &x, tokens);
    disk_trim(d);
    return LILY_OK;
}
