/* template_cli.c - renders for the property test: each line of standard input is a JSON object with
 * "template", "messages", "tools", "kwargs", "add_generation_prompt"; each line of output is
 * {"text": …, "spans": [[end, control] …]} or {"error": …, "code": …}. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "text/big_number.h"
#include "text/template.h"

static json_t *render(const json_t *in)
{
    lily_err e = {0};
    lily_template *t = NULL;
    lily_rendered r = {0};
    json_t *out = NULL;
    const json_t *text = json_object_get(in, "template");
    int rc = lily_template_parse(&t, json_string_value(text), json_string_length(text), "t", &e);
    if (rc == LILY_OK)
        rc = lily_template_render(t, json_object_get(in, "messages"), json_object_get(in, "tools"),
                                  json_object_get(in, "kwargs"), json_is_true(json_object_get(in, "add_generation_prompt")),
                                  &r, &e);
    if (rc != LILY_OK) {
        out = json_pack("{s:s, s:s}", "error", e.text, "code", lily_err_name(rc));
    } else {
        json_t *spans = json_array();
        for (size_t i = 0; i < r.n_spans; i++)
            json_array_append_new(spans, json_pack("[I, b]", (json_int_t)r.spans[i].end, r.spans[i].control));
        out = json_pack("{s:s%, s:o}", "text", lily_buf_str(&r.text), r.text.len, "spans", spans);
    }
    lily_rendered_free(&r);
    lily_template_free(t);
    return out;
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        lily_err e;
        json_t *in, *out = NULL;
        if (lily_json_parse_big(&in, line, (size_t)n, "line", &e) != LILY_OK) {
            fprintf(stderr, "%s\n", e.text);
            return 1;
        }
        out = render(in);
        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(in);
        json_decref(out);
    }
    free(line);
    return 0;
}
