#include "sample/json_keywords.h"

#include <string.h>

static const struct {
    const char *name, *note;
    unsigned group;
} keywords[] = {
#define X(group, name, note) {name, note, KEYWORD_##group},
#include "sample/keywords.def"
#undef X
};

static const struct {
    const char *name, *pattern, *note;
} formats[] = {
#define X(name, pattern, note) {name, pattern, note},
#include "sample/formats.def"
#undef X
};

enum { N_KEYWORDS = sizeof keywords / sizeof *keywords, N_FORMATS = sizeof formats / sizeof *formats };

bool json_keyword_group(const char *name, unsigned *group)
{
    *group = KEYWORD_IGNORED;
    if (strncmp(name, "x-", 2) == 0) return true;
    for (size_t i = 0; i < N_KEYWORDS; i++)
        if (strcmp(keywords[i].name, name) == 0) {
            *group = keywords[i].group;
            return true;
        }
    return false;
}

const char *json_format_pattern(const char *name)
{
    for (size_t i = 0; i < N_FORMATS; i++)
        if (strcmp(formats[i].name, name) == 0) return formats[i].pattern;
    return NULL;
}

/* Keywords of one group with the same note share a line. */
static bool same_line(size_t a, size_t b)
{
    return keywords[a].group == keywords[b].group && strcmp(keywords[a].note, keywords[b].note) == 0 &&
           *keywords[a].note;
}

void lily_json_keyword_table(lily_buf *out)
{
    lily_buf_puts(out, "| keyword | |\n|---|---|\n");
    for (size_t i = 0, to; i < N_KEYWORDS; i = to) {
        lily_buf_puts(out, "| ");
        for (to = i; to < N_KEYWORDS && (to == i || same_line(i, to)); to++)
            lily_buf_printf(out, "%s`%s`", to == i ? "" : ", ", keywords[to].name);
        lily_buf_printf(out, " | %s |\n", keywords[i].note);
    }
    lily_buf_puts(out, "| `x-…` | describes |\n");
}

void lily_json_format_table(lily_buf *out)
{
    lily_buf_puts(out, "| `format` | |\n|---|---|\n");
    for (size_t i = 0; i < N_FORMATS; i++)
        lily_buf_printf(out, "| `%s` | %s |\n", formats[i].name, formats[i].note);
}
