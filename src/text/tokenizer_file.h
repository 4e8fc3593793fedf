/* tokenizer_file.h - the parts of a tokenizer and how they are read from tokenizer.json. */
#ifndef LILY_TEXT_TOKENIZER_FILE_H
#define LILY_TEXT_TOKENIZER_FILE_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

struct lily_tokenizer {
    lily_vocab vocab;
    lily_added added;
    lily_bpe bpe;
    lily_pretokenizer *pre;
};

/* Fills a zeroed tokenizer from the text of a tokenizer.json; what was filled before a failure is freed by
 * lily_tokenizer_free. The text is not trusted. */
int lily_tokenizer_read(lily_tokenizer *t, const char *json, size_t n, lily_err *e);

#endif
