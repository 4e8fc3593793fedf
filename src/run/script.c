/* script.c - which reply is next, and the record of what was taken. */
#include "run/script.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "run/script_file.h"

enum { RECORDS = 256 };

typedef struct record {
    uint32_t reply;
    char *endpoint, *prompt;        /* owned */
    size_t n_prompt;
    int32_t *prompt_ids;            /* owned */
    uint32_t n_prompt_ids;
    lily_buf ids;                   /* int32 each */
    const char *ended;              /* NULL while it runs */
} record;

struct lily_script {
    lily_script_file file;
    pthread_mutex_t lock;           /* for what follows */
    uint32_t *used;                 /* [n_replies] */
    uint64_t n_taken;               /* also the next ticket */
    record records[RECORDS];        /* of ticket t at t % RECORDS */
};

int lily_script_open(lily_script **out, const char *path, const lily_tokenizer *t, uint32_t n_rows, lily_err *e)
{
    lily_script *s = lily_calloc(1, sizeof *s);
    if (!s) return lily_no_memory(e, sizeof *s, "a script");
    pthread_mutex_init(&s->lock, NULL);
    int rc = lily_script_file_read(&s->file, path, t, n_rows, e);
    if (rc == LILY_OK) {
        s->used = lily_calloc(s->file.n_replies, sizeof *s->used);
        if (!s->used) rc = lily_no_memory(e, s->file.n_replies * sizeof *s->used, "a script");
    }
    if (rc == LILY_OK)
        *out = s;
    else
        lily_script_close(s);
    return rc;
}

static void record_free(record *r)
{
    lily_free(r->endpoint);
    lily_free(r->prompt);
    lily_free(r->prompt_ids);
    lily_buf_free(&r->ids);
    *r = (record){0};
}

void lily_script_close(lily_script *s)
{
    if (!s) return;
    for (unsigned i = 0; i < RECORDS; i++) record_free(&s->records[i]);
    lily_arena_free(&s->file.arena);
    pthread_mutex_destroy(&s->lock);
    lily_free(s->used);
    lily_free(s);
}

bool lily_script_runs_model(const lily_script *s) { return s->file.model; }

/* ---- choosing ---- */

static bool used_up(const lily_script *s, uint32_t i)
{
    return s->file.replies[i].times && s->used[i] >= s->file.replies[i].times;
}

/* The first reply that is not used up and whose `when` fits; n_replies: none. */
static uint32_t first_fit(const lily_script *s, const lily_ask *ask)
{
    for (uint32_t i = 0; i < s->file.n_replies; i++) {
        const lily_script_reply *r = &s->file.replies[i];
        if (used_up(s, i)) continue;
        if (!r->when || memmem(ask->prompt_text, ask->n_prompt_text, r->when, r->n_when)) return i;
    }
    return s->file.n_replies;
}

/* *index n_replies: the model itself. */
static int choose(lily_script *s, const lily_ask *ask, uint32_t *index, const char **err_code, lily_err *e)
{
    uint32_t n = s->file.n_replies;
    if (ask->script_reply >= 0) {
        if ((uint32_t)ask->script_reply >= n)
            return lily_fail(e, LILY_ARGUMENT, "x-lily-reply: %d was asked for, the script has %u replies",
                             ask->script_reply, n);
        *index = (uint32_t)ask->script_reply;
        return LILY_OK;
    }
    *index = first_fit(s, ask);
    if (*index == n && s->file.end == SCRIPT_END_LAST) *index = n - 1;
    if (*index == n && s->file.end == SCRIPT_END_RESTART) {
        memset(s->used, 0, n * sizeof *s->used);
        *index = first_fit(s, ask);
    }
    if (*index < n || s->file.end == SCRIPT_END_MODEL) return LILY_OK;
    *err_code = "script_exhausted";
    return lily_fail(e, LILY_DEVICE, "no scripted reply is left for this request");
}

/* ---- the record ---- */

static int record_open(record *r, uint32_t reply, const lily_ask *ask, lily_err *e)
{
    record_free(r);
    r->reply = reply;
    r->endpoint = lily_strdup(ask->endpoint);
    r->prompt = lily_strndup(ask->prompt_text, ask->n_prompt_text);
    r->n_prompt = ask->n_prompt_text;
    r->prompt_ids = lily_calloc(ask->n_tokens, sizeof *r->prompt_ids);
    if (!r->endpoint || !r->prompt || !r->prompt_ids) {
        record_free(r);
        return lily_no_memory(e, ask->n_prompt_text, "the script's record");
    }
    memcpy(r->prompt_ids, ask->tokens, ask->n_tokens * sizeof *r->prompt_ids);
    r->n_prompt_ids = ask->n_tokens;
    return LILY_OK;
}

int lily_script_take(lily_script *s, const lily_ask *ask, const lily_script_reply **reply, uint64_t *ticket,
                     const char **err_code, lily_err *e)
{
    uint32_t index = 0;
    *reply = NULL;
    pthread_mutex_lock(&s->lock);
    int rc = choose(s, ask, &index, err_code, e);
    bool taken = rc == LILY_OK && index < s->file.n_replies;
    if (taken) rc = record_open(&s->records[s->n_taken % RECORDS], index, ask, e);
    if (taken && rc == LILY_OK) {
        if (s->used[index] < UINT32_MAX) s->used[index]++;
        *reply = &s->file.replies[index];
        *ticket = s->n_taken++;
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int lily_script_note_token(lily_script *s, uint64_t ticket, int32_t id, lily_err *e)
{
    pthread_mutex_lock(&s->lock);
    lily_buf *ids = &s->records[ticket % RECORDS].ids;
    lily_buf_add(ids, &id, sizeof id);
    int rc = lily_buf_ok(ids, "the script's record", e);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

void lily_script_note_end(lily_script *s, uint64_t ticket, const char *ended)
{
    pthread_mutex_lock(&s->lock);
    s->records[ticket % RECORDS].ended = ended;
    pthread_mutex_unlock(&s->lock);
}

static json_t *ids_json(const int32_t *ids, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, json_integer(ids[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *record_json(const record *r, uint64_t n)
{
    size_t n_ids = r->ids.len / sizeof(int32_t);
    json_t *ended = r->ended ? json_string(r->ended) : json_null();
    json_t *prompt_ids = ids_json(r->prompt_ids, r->n_prompt_ids);
    json_t *ids = ids_json((const int32_t *)(const void *)r->ids.data, n_ids);
    /* "o" takes the value over, also when it is NULL or packing fails. */
    return json_pack("{s:I, s:I, s:s, s:s%, s:o, s:I, s:o, s:o}", "n", (json_int_t)n, "reply", (json_int_t)r->reply,
                     "endpoint", r->endpoint, "prompt", r->prompt, r->n_prompt, "prompt_ids", prompt_ids, "tokens",
                     (json_int_t)n_ids, "ids", ids, "ended", ended);
}

static json_t *script_json(const lily_script *s)
{
    json_int_t left = 0;
    for (uint32_t i = 0; i < s->file.n_replies; i++) left += !used_up(s, i);
    json_t *requests = json_array();
    for (uint64_t n = s->n_taken > RECORDS ? s->n_taken - RECORDS : 0; requests && n < s->n_taken; n++)
        if (json_array_append_new(requests, record_json(&s->records[n % RECORDS], n)) != 0) {
            json_decref(requests);
            return NULL;
        }
    return json_pack("{s:I, s:o}", "left", left, "requests", requests);
}

int lily_script_record(lily_script *s, lily_buf *out, lily_err *e)
{
    pthread_mutex_lock(&s->lock);
    json_t *root = script_json(s);
    pthread_mutex_unlock(&s->lock);
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!text) return lily_no_memory(e, 0, "the script's record");
    lily_buf_puts(out, text);
    free(text);     /* jansson's memory, not ours */
    return lily_buf_ok(out, "the script's record", e);
}
