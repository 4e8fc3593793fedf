#include "model/tensor_name.h"

#include <stddef.h>
#include <string.h>

static const char *after(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 ? name + n : NULL;
}

enum lily_tensor_kind lily_tensor_name(const char *name, const char **canonical)
{
    static const char *const skipped[] = {"vision_tower.", "model.visual.", "mtp."};
    static const char *const text[] = {"language_model.model.", "model.language_model.", "model."};
    for (size_t i = 0; i < sizeof skipped / sizeof *skipped; i++)
        if (after(name, skipped[i])) return LILY_TENSOR_SKIPPED;
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        if ((*canonical = after(name, text[i])) != NULL) return LILY_TENSOR_TEXT;
    const char *head = after(name, "language_model.");
    if (!head) head = name;
    if (!after(head, "lm_head.") && strcmp(head, "lm_head") != 0) return LILY_TENSOR_UNKNOWN;
    *canonical = head;
    return LILY_TENSOR_TEXT;
}
