/* fixture.h - tokenizers of the synthetic checkpoints and the reference's results for them. */
#ifndef LILY_TESTS_TEXT_FIXTURE_H
#define LILY_TESTS_TEXT_FIXTURE_H

#include "base/json.h"
#include "text/tokenizer.h"

#define FIXTURES LILY_SOURCE_DIR "/tests/fixtures"

/* Opens the tokenizer of the synthetic checkpoint "tiny", "odd" or "full", which the build makes; fails
 * the running test if it cannot. */
lily_tokenizer *fixture_tokenizer(const char *name);
/* The recorded results of tests/fixtures/NAME/tokenizer.json. */
json_t *fixture_results(const char *name);
/* The text of a tokenizer.json, to be changed. */
json_t *fixture_model(const char *name);
/* The number of entries of a JSON list that differ from ids; -1 when the lengths do. */
int fixture_differences(const json_t *want, const lily_ids *ids);

#endif
