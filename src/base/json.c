#include "base/json.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

int lily_json_parse(json_t **out, const char *text, size_t n, const char *what, lily_err *e)
{
    json_error_t je;
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &je);
    if (*out) return LILY_OK;
    /* Without memory jansson mostly fails without a word. */
    if (!je.text[0] || json_error_code(&je) == json_error_out_of_memory) return lily_no_memory(e, n, what);
    return lily_fail(e, LILY_FORMAT, "%s: not valid JSON: %s (line %d, column %d)", what, je.text, je.line, je.column);
}

size_t lily_json_parts(const char *text, size_t n)
{
    size_t parts = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"') in_string = !in_string;
        else if (in_string && text[i] == '\\') i++;
        else if (!in_string) parts += text[i] == '[' || text[i] == '{';
    }
    return parts;
}

int lily_json_read(json_t **out, const char *path, size_t limit, lily_err *e)
{
    lily_buf text = {0};
    int rc = lily_file_read(&text, path, limit, e);
    if (rc == LILY_OK) rc = lily_json_parse(out, lily_buf_str(&text), text.len, lily_path_base(path), e);
    lily_buf_free(&text);
    return rc;
}

int lily_json_uint(const json_t *obj, const char *key, int64_t low, int64_t high, int64_t missing, int64_t *out,
                   const char *what, lily_err *e)
{
    const json_t *v = json_object_get(obj, key);
    if (!v && missing >= 0) {
        *out = missing;
        return LILY_OK;
    }
    if (!v) return lily_fail(e, LILY_FORMAT, "%s: \"%s\" is missing", what, key);
    if (!json_is_integer(v)) return lily_fail(e, LILY_FORMAT, "%s: \"%s\" is not an integer", what, key);
    *out = json_integer_value(v);
    if (*out < low || *out > high)
        return lily_fail(e, LILY_FORMAT, "%s: \"%s\" is %lld, expected %lld to %lld", what, key, (long long)*out,
                         (long long)low, (long long)high);
    return LILY_OK;
}
