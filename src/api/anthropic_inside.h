/* anthropic_inside.h - what the sources share that read a request in Anthropic's form.  Private to them. */
#ifndef LILY_API_ANTHROPIC_INSIDE_H
#define LILY_API_ANTHROPIC_INSIDE_H

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

#include "api/fields.h"
#include "base/mem.h"

typedef struct anthropic_conversion {
    json_t *made;           /* the chat request; owned, as is the next */
    json_t *messages;       /* of it */
    bool thinking_given;
} anthropic_conversion;

/* ---- anthropic_blocks.c: readers of the fields of the same name; `out` is the conversion ---- */

/* Before the messages, whose first one it makes. */
int anthropic_read_system(void *out, const lily_field *f, const json_t *value, lily_refusal *r);
/* Behind the tools, which blocks may refer to. */
int anthropic_read_messages(void *out, const lily_field *f, const json_t *value, lily_refusal *r);

/* ---- values ---- */

static inline int anthropic_no_memory(lily_refusal *r) { return lily_no_memory(&r->err, 0, "a request"); }

/* Both steal v, also on failure; NULL is lost memory. */
static inline int anthropic_put(json_t *object, const char *key, json_t *v, lily_refusal *r)
{
    return json_object_set_new(object, key, v) == 0 ? LILY_OK : anthropic_no_memory(r);
}

static inline int anthropic_append(json_t *list, json_t *v, lily_refusal *r)
{
    return json_array_append_new(list, v) == 0 ? LILY_OK : anthropic_no_memory(r);
}

/* A further reference. */
static inline json_t *anthropic_share(const json_t *v) { return json_incref((json_t *)v); }

/* The member's text, or NULL. */
static inline const char *anthropic_text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static inline bool anthropic_is(const char *text, const char *wanted) { return text && strcmp(text, wanted) == 0; }

static inline int anthropic_wrong(const char *place, const char *wanted, const json_t *value, lily_refusal *r)
{
    if (!value) return lily_refuse(r, LILY_ARGUMENT, place, "%s is missing, it must be %s", place, wanted);
    return lily_refuse(r, LILY_ARGUMENT, place, "%s must be %s, not %s", place, wanted, lily_json_kind(value));
}

#endif
