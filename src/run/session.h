/* session.h - one conversation's state on the device, and which tokens it stands for.
 *
 * Verbs: BEGIN takes a prompt and goes back to the longest prefix of it that the state still knows; READ brings in
 * the rest, a chunk or less a call; STEP feeds one token and chooses the next.  BRANCH makes an empty session the
 * beginning of another one, with what the device can share.  The state of a recurrent model cannot be cut at any
 * length: it can go back only to where a snapshot was taken.  Snapshots stand at the marks of prompts (ends of
 * messages; the one where the next turn may fork off stays longest), every LILY_SNAPSHOT_DISTANCE tokens, before the last token of the last prompt, so that asking again
 * costs one token, and at the end of the newest chunk, so that a prompt that was cancelled half way is not read
 * twice.  None of them cuts a run.
 *
 * Invariant: tokens[0 … n) are exactly what the device's state has read, n its position; also after a run that
 * failed or was cancelled, which sets the state back to a snapshot.
 *
 * The last token of a prompt is always a run of its own with the decode plan: its logits are needed, and a prompt
 * that is read anew and one that is asked again then end with the same computation. */
#ifndef LILY_RUN_SESSION_H
#define LILY_RUN_SESSION_H

#include "run/load.h"

enum {
    LILY_SNAPSHOTS = 12,            /* that a state holds at most */
    LILY_SNAPSHOT_DISTANCE = 2048,  /* tokens, in the text between marks */
};

typedef struct lily_session lily_session;

/* `m` must outlive the session. */
int lily_session_new(lily_session **out, const lily_loaded *m, lily_err *e);
void lily_session_free(lily_session *s);

/* The tokens that the state has read; *n of them. */
const int32_t *lily_session_tokens(const lily_session *s, uint32_t *n);
/* Positions that BEGIN could go back to, ascending, the present one last; returns how many (at most
 * LILY_SNAPSHOTS + 1). */
uint32_t lily_session_positions(const lily_session *s, uint32_t out[LILY_SNAPSHOTS + 1]);
/* Forgets everything. */
int lily_session_reset(lily_session *s, lily_err *e);

/* How many of these tokens BEGIN or BRANCH would not have to read: a snapshot's position or the present one. */
uint32_t lily_session_prefix(const lily_session *s, const int32_t *tokens, uint32_t n);
/* From this position on there is nothing but the last prompt's reply, and thoughts that the next turn leaves out: who
 * goes back no further loses no more. */
uint32_t lily_session_settled(const lily_session *s);
/* The empty `s` becomes `from` as it was at a position that lily_session_prefix gave.  When it fails, `s` is empty. */
int lily_session_branch(lily_session *s, const lily_session *from, uint32_t position, lily_err *e);

/* For the cache on disk: what the device holds.  FILL gives an empty session these tokens and a state with room for
 * them, which the caller then loads; FILLED takes the session to where the state stands, whatever became of that. */
lily_state *lily_session_state(const lily_session *s);
int lily_session_fill(lily_session *s, const int32_t *tokens, uint32_t n, lily_err *e);
void lily_session_filled(lily_session *s);

/* Memory that goes with it; of what branches share its part (lily_dev_ops.state_bytes). */
uint64_t lily_session_bytes(const lily_session *s);
/* What so many more tokens and snapshots add at most; and the most that a session of so many can hold. */
uint64_t lily_session_growth(const lily_loaded *m, uint32_t tokens, uint32_t snapshots);
uint64_t lily_session_cost(const lily_loaded *m, uint32_t tokens, uint32_t snapshots);
uint32_t lily_session_snapshots(const lily_session *s);
/* Drops the snapshot that is missed least; never the first one, the newest ones, or that where the next turn may fork
 * off.  False: there is no other. */
bool lily_session_thin(lily_session *s);

typedef struct lily_reading {
    const int32_t *tokens;          /* without the last one, which STEP is for; may be empty */
    uint32_t n;
    const uint32_t *marks;          /* ascending; those up to n count */
    uint32_t n_marks;
    uint32_t fork;                  /* as in lily_ask */
    bool fresh;                     /* read from the start, take no snapshots */
    uint32_t n_read;                /* set by BEGIN and READ */
    /* Where snapshots will be taken, set by BEGIN: what there is room for. */
    uint32_t wanted[LILY_SNAPSHOTS], n_wanted;
} lily_reading;

/* Goes to the longest prefix and sets n_read, the number of tokens reused. The prompt must stay until it is read. */
int lily_session_begin(lily_session *s, lily_reading *p, lily_err *e);
/* Reads the next tokens, if any are left (n_read < n): a chunk, but not more than `most`, from 1.  LILY_CANCELLED
 * when *cancel was seen. */
int lily_session_read(lily_session *s, lily_reading *p, uint32_t most, const atomic_bool *cancel, lily_err *e);

/* One run, which appends to the state; the other verbs are made of it. */
typedef struct lily_feed {
    const int32_t *tokens;
    uint32_t n;                     /* 1: the decode plan; at most the chunk, or what `exec` was planned for */
    lily_exec *exec;                /* NULL: the session's own */
    const lily_pick *pick;          /* NULL: no token wanted */
    /* Not NULL: asked for the tokens that may follow, in place of pick->allow, while the device works. */
    int (*allow)(void *user, const uint32_t **allow, lily_err *e);
    void *user;
    bool count;                     /* for the penalties */
    const int32_t *scored;          /* as in lily_lane */
    const uint32_t *marks;          /* offsets, as in lily_lane */
    uint32_t n_marks;
    const atomic_bool *cancel;
} lily_feed;

int lily_session_feed(lily_session *s, const lily_feed *f, lily_done *done, lily_err *e);

/* STEP: feeds one token and chooses what follows it.  With `next`, on a device that heeds TOKEN_HANDOFF, the run that reads
 * what is chosen here is submitted before the choice is known, and what that run chooses, by `next`, is the answer of the
 * next STEP, which must feed the token that this one gave.  So the session is then one token further than was asked for:
 * it has read the token that it gave last.  Whoever wants no further token calls FORGET_FLIGHT, and BEGIN and FEED do. */
int lily_session_step(lily_session *s, const lily_feed *f, const lily_pick *next, lily_done *done, lily_err *e);
/* Whether there is a run whose choice no STEP has asked for yet. */
bool lily_session_flies(const lily_session *s);
/* Waits for it, so that the device may run others, and keeps its answer for the next STEP. */
void lily_session_end_flight(lily_session *s);
void lily_session_forget_flight(lily_session *s);
/* It chose by what no longer holds: chooses again, once.  No other session has run since it was submitted. */
int lily_session_choose_again(lily_session *s, const lily_pick *pick, lily_err *e);

#endif
