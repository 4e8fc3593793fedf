#include "model/config.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "model/config_file.h"

enum { MAX_FILE = 4 << 20 };

struct lily_model_config {
    lily_config numbers;
    lily_sampling_defaults sampling;
    lily_quant_table quant;
};

/* Parses dir/name.  A missing file is an error unless `optional`, then *root stays NULL. */
static int read_file(json_t **root, const char *dir, const char *name, bool optional, lily_err *e)
{
    *root = NULL;
    char *path = lily_path_join(dir, name);
    if (!path) return lily_no_memory(e, strlen(dir), "a path");
    int rc = LILY_OK;
    if (!optional || lily_file_exists(path)) rc = lily_json_read(root, path, MAX_FILE, e);
    lily_free(path);
    if (rc == LILY_OK && *root && !json_is_object(*root)) {
        json_decref(*root);
        *root = NULL;
        rc = lily_fail(e, LILY_FORMAT, "%s: not a JSON object", name);
    }
    return rc;
}

static int read_config(lily_model_config *m, const json_t *root, lily_err *e)
{
    lily_config_file f = {"config.json", root, root};
    const json_t *text = lily_config_get(root, "text_config");
    if (text) f.text = text;
    if (!json_is_object(f.text))
        return lily_fail(e, LILY_FORMAT, "%s: \"text_config\" is not an object", f.name);
    TRY(lily_numbers_read(&m->numbers, &f, e));
    return lily_quant_read(&m->quant, &f, e);
}

int lily_config_parse(lily_model_config **out, const json_t *config, const json_t *generation, lily_err *e)
{
    *out = NULL;
    lily_model_config *m = lily_calloc(1, sizeof *m);
    if (!m) return lily_no_memory(e, sizeof *m, "a configuration");
    int rc = read_config(m, config, e);
    lily_config_file f = {"generation_config.json", generation, generation};
    if (rc == LILY_OK) rc = lily_generation_read(&m->numbers, &m->sampling, &f, e);
    if (rc == LILY_OK)
        *out = m;
    else
        lily_config_close(m);
    return rc;
}

int lily_config_open(lily_model_config **out, const char *dir, lily_err *e)
{
    json_t *config = NULL, *generation = NULL;
    *out = NULL;
    int rc = read_file(&config, dir, "config.json", false, e);
    if (rc == LILY_OK) rc = read_file(&generation, dir, "generation_config.json", true, e);
    if (rc == LILY_OK) rc = lily_config_parse(out, config, generation, e);
    json_decref(config);
    json_decref(generation);
    return rc;
}

void lily_config_close(lily_model_config *m)
{
    if (!m) return;
    lily_quant_free(&m->quant);
    lily_free(m);
}

const lily_config *lily_config_numbers(const lily_model_config *m)
{
    return &m->numbers;
}

const lily_sampling_defaults *lily_config_sampling(const lily_model_config *m)
{
    return &m->sampling;
}

lily_quant lily_config_quant(const lily_model_config *m, const char *module)
{
    return lily_quant_find(&m->quant, module);
}
