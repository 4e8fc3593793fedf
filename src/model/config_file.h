/* config_file.h - the parts that config.json is read in.  Private to src/model.
 * All sentences begin with the file's name; JSON null counts as absent, as in the files that people ship. */
#ifndef LILY_MODEL_CONFIG_FILE_H
#define LILY_MODEL_CONFIG_FILE_H

#include "base/json.h"
#include "model/config.h"

/* One file as it is read: `top` is its object, `text` the object of the language model inside it (the same
 * one in a flat file). */
typedef struct lily_config_file {
    const char *name;
    const json_t *top, *text;
} lily_config_file;

/* Quantisation of one module, by its canonical name (tensor_name.h). */
typedef struct lily_quant_entry {
    char *module;
    lily_quant quant;
} lily_quant_entry;

typedef struct lily_quant_table {
    lily_quant base;                /* for modules without an entry; bits 0 when there is no quantisation */
    lily_quant_entry *entries;      /* by name */
    size_t n;
} lily_quant_table;

/* obj.key, or NULL when absent or null. */
const json_t *lily_config_get(const json_t *obj, const char *key);

/* What lily_config_open does once the files are read: `config` is an object, `generation` one or NULL. */
int lily_config_parse(lily_model_config **out, const json_t *config, const json_t *generation, lily_err *e);

int lily_numbers_read(lily_config *c, const lily_config_file *f, lily_err *e);

int lily_quant_read(lily_quant_table *t, const lily_config_file *f, lily_err *e);
void lily_quant_free(lily_quant_table *t);
lily_quant lily_quant_find(const lily_quant_table *t, const char *module);

/* generation_config.json: adds its end-of-turn ids to c, fills s. */
int lily_generation_read(lily_config *c, lily_sampling_defaults *s, const lily_config_file *f, lily_err *e);
/* Adds obj.eos_token_id, an id or a list of them, to the set in c. */
int lily_eos_add(lily_config *c, const json_t *obj, const char *file, lily_err *e);

#endif
