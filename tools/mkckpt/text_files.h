/* text_files.h - the JSON files of a checkpoint. */
#ifndef LILY_TOOLS_TEXT_FILES_H
#define LILY_TOOLS_TEXT_FILES_H

#include "json_writer.h"
#include "preset.h"
#include "vocabulary.h"

/* Each writes one whole JSON value to an empty writer. */
void config_json(jw *w, const preset *p, const vocabulary *v);
void generation_config_json(jw *w, const vocabulary *v);
void tokenizer_json(jw *w, const vocabulary *v);
void tokenizer_config_json(jw *w, const preset *p, const vocabulary *v);

#endif
