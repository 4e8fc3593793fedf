/* pick.h - the next token from the logits, in plain C: the rule that every device follows, and what ref and cpu
 * run.
 *
 * 1. All logits below n_vocab must be numbers below infinity, else LILY_DEVICE.  Log-probabilities (of the
 *    choice, of the alternatives) are those of the plain softmax over ids 0 … n_vocab-1.
 * 2. bias: added.  3. allow: ids whose bit is 0 leave.  4. penalties, for tokens that occurred n > 0 times:
 *    a positive logit is divided by `repetition`, another one multiplied; then presence + frequency * n is
 *    subtracted.  Nothing left (all -infinity) is LILY_ARGUMENT.
 * 5. temperature 0, or less, or top_k 1: the largest, lowest id on ties.  Else weights
 *    exp((logit - largest) / temperature).
 * 6. Candidates stand in order of logit, lowest id first on ties.  top_k > 0 keeps the first top_k; top_p < 1
 *    keeps of these the fewest first ones whose weights reach top_p of their sum, at least one; min_p > 0 keeps
 *    of these the ones whose weight is at least min_p times the first's.
 * 7. The draw: with u = lily_uniform(seed, draw), the first kept id, in ascending order of ids, at which the
 *    running sum of weights passes u times the sum of all kept. */
#ifndef LILY_DEVICE_HOST_PICK_H
#define LILY_DEVICE_HOST_PICK_H

#include "device/dev.h"

/* Bytes of scratch for a vocabulary. */
size_t lily_pick_room(uint32_t vocab);

/* Sets token, logprob and the first n_logprobs of top in *done.  count: [n_vocab] occurrences, or NULL.
 * room: lily_pick_room(n_vocab) bytes or more, aligned for floats. */
int lily_pick_token(const float *logits, const lily_pick *pick, const uint32_t *count, void *room, lily_done *done,
                    lily_err *e);

#endif
