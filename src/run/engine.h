/* engine.h - tokens in, tokens out: the one thread that owns the device, its queue and its sessions.
 *
 * An engine is one model on one device.  Requests are token ids with a rule for choosing the next one; they
 * are begun in order and answered by turns.  What happens comes back as a list of events that the requester drains on a thread of
 * its own, so that parsing and formatting never hold up the device.  Text, stop strings and protocols are
 * the business of api/. */
#ifndef LILY_RUN_ENGINE_H
#define LILY_RUN_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/graph.h"
#include "run/replies.h"
#include "sample/grammar.h"
#include "text/template.h"
#include "text/tokenizer.h"

typedef struct lily_engine lily_engine;
typedef struct lily_request lily_request;

typedef struct lily_engine_options {
    const char *model_dir;
    const char *device;             /* "auto", "ref", "cpu" …; a variant may follow a colon: "cpu:portable" */
    uint32_t threads;               /* 0: real cores */
    uint32_t context;               /* tokens in all; 0: the model's, at most LILY_DEFAULT_CONTEXT */
    uint32_t chunk;                 /* prompt tokens a run; 0: LILY_DEFAULT_CHUNK, or more where it suits the device */
    uint64_t ablated;               /* lily_ablation bits */
    uint64_t memory_limit;          /* bytes; the plan must fit or opening is refused; 0: what the system has (memory.h) */
    uint32_t queue;                 /* requests that may wait; 0: LILY_DEFAULT_QUEUE */
    uint32_t parallel;              /* requests that are answered at once, by turns; 0: LILY_DEFAULT_PARALLEL */
    uint64_t cache_bytes;           /* for conversations that nobody runs; 0: chosen from the memory, LILY_NO_CACHE: none,
                                       LILY_OWN_CACHE: nothing beside what is planned for the one that runs, which keeps
                                       one while nobody does */
    const char *cache_dir;          /* conversations are kept here too, across restarts; NULL: nowhere */
    uint64_t cache_dir_bytes;       /* that its files may take; 0: LILY_DEFAULT_DISK_BYTES */
    const char *script;             /* scripted replies (docs/scripted-replies.md), or NULL */
    /* Long steps tell how far they are: what, from 0 to 1. May be NULL. Called on the opening thread. */
    void (*progress)(void *user, const char *what, double fraction);
    void *user;
    const atomic_bool *cancel;      /* set by another thread: opening ends soon with LILY_CANCELLED. May be NULL */
} lily_engine_options;

enum { LILY_DEFAULT_CONTEXT = 32768, LILY_DEFAULT_CHUNK = 512, LILY_DEFAULT_QUEUE = 64, LILY_DEFAULT_PARALLEL = 8 };
#define LILY_NO_CACHE UINT64_MAX
#define LILY_OWN_CACHE (UINT64_MAX - 1)
#define LILY_DEFAULT_DISK_BYTES (UINT64_C(8) << 30)

/* Memory as planned from the headers, before weights are read; bytes. */
typedef struct lily_memory {
    uint64_t weights;               /* mapped from the files (the page cache may drop them), or in the device's own memory */
    uint64_t device;                /* copies and expansions that the device makes at load beside them */
    uint64_t kv;                    /* keys and values at the full context */
    uint64_t state;                 /* recurrent states, and the snapshots kept for prefix reuse */
    uint64_t replies;               /* sampled tokens kept to read history by */
    uint64_t cache;                 /* budget of the conversations that are kept beside the one that runs */
    uint64_t scratch;               /* one run's buffers */
    uint64_t planned;               /* the sum */
} lily_memory;

/* What can be wrong with the options alone, told within moments: the device's name, the script's, config.json and the
 * context.  Opening finds it too, but later. */
int lily_engine_precheck(const lily_engine_options *o, lily_err *e);
/* Reads and checks everything but the weights' values: config, headers, tokenizer, template, plans, memory.
 * What `inspect` shows; `serve` and `score` would load exactly when this succeeds. */
int lily_engine_check(const lily_engine_options *o, lily_memory *memory, uint32_t *context, lily_err *e);
/* The context in force for an asked one (0: none asked). */
uint32_t lily_context_of(uint32_t asked, const lily_config *c);

/* Loads the model and starts the thread.  Blocks; progress tells. */
int lily_engine_open(lily_engine **out, const lily_engine_options *o, lily_err *e);
/* Cancels what runs and waits, ends the thread, frees. */
void lily_engine_close(lily_engine *g);

const lily_config *lily_engine_config(const lily_engine *g);
const lily_sampling_defaults *lily_engine_sampling(const lily_engine *g);
const lily_tokenizer *lily_engine_tokenizer(const lily_engine *g);
const lily_template *lily_engine_template(const lily_engine *g);
const lily_memory *lily_engine_memory(const lily_engine *g);
uint32_t lily_engine_context(const lily_engine *g);
const char *lily_engine_model_name(const lily_engine *g);       /* the folder's name */
const char *lily_engine_device_text(const lily_engine *g);      /* "cpu: 2 threads, avx2" */
const char *lily_engine_fingerprint(const lily_engine *g);      /* of the checkpoint */
uint32_t lily_engine_chunk(const lily_engine *g);               /* prompt tokens a run at most */
uint64_t lily_engine_ablated(const lily_engine *g);             /* lily_ablation bits */
uint64_t lily_engine_switches(const lily_engine *g);            /* those that could be turned off on its device */
uint64_t lily_engine_plan_hash(const lily_engine *g, enum lily_mode mode);
lily_replies *lily_engine_replies(lily_engine *g);              /* what it has said, for those who make prompts */
/* Requests that run now and that wait. */
void lily_engine_load(lily_engine *g, uint32_t *running, uint32_t *queued);

enum lily_end { LILY_END_STOP, LILY_END_LENGTH, LILY_END_CANCELLED, LILY_END_ERROR, N_LILY_ENDS };

/* What happened since the engine was opened; nothing of this ever goes down.  And how things stand now. */
typedef struct lily_engine_stats {
    uint64_t requests[N_LILY_ENDS]; /* ended, by how */
    uint64_t refused;               /* the queue was full */
    uint64_t prompt_tokens;         /* of prompts: read, those that were reused not counted */
    uint64_t reused_tokens;
    uint64_t generated_tokens;
    double prompt_seconds, reply_seconds;       /* the sums of what the END events tell */
    uint64_t evicted_sessions, evicted_snapshots;

    uint32_t running, queued;
    uint32_t sessions, snapshots;   /* kept or running */
    uint64_t kept_bytes;            /* of conversations that nobody runs: never above cache_bytes */
    uint64_t running_bytes;         /* of those that run */
    uint64_t cache_bytes;           /* the budget in force */
} lily_engine_stats;

/* Any thread; does not wait for the device. */
void lily_engine_get_stats(lily_engine *g, lily_engine_stats *out);
/* Forgets every conversation that is kept, on disk too, and every reply; one that runs is forgotten at its end.  Any thread; does not wait: it is
 * done before any request that is submitted later begins. */
void lily_engine_cache_clear(lily_engine *g);

/* ---- a request ---- */

typedef struct lily_sampling {
    float temperature, top_p, min_p, presence, frequency, repetition;
    int32_t top_k;
    uint64_t seed;
    int32_t n_logprobs;             /* alternatives a token, 0 … 20 */
    bool logprobs;
    const struct lily_bias *bias;   /* device/dev.h; copied by submit */
    uint32_t n_bias;
} lily_sampling;

/* With a seed a request gives the same tokens again on the same device and chunks.  Penalties count the tokens of the
 * reply, not those of the prompt. */
typedef struct lily_ask {
    const int32_t *tokens;          /* the prompt, not empty; copied */
    uint32_t n_tokens;
    const uint32_t *marks;          /* ascending positions 1 … n_tokens worth returning to: message boundaries; copied */
    uint32_t n_marks;
    uint32_t fork;                  /* the mark where the next turn's prompt may part from this one: thoughts that are
                                       shown now are left out then; 0: none */
    uint32_t max_tokens;            /* of the reply; 0: the room left in the context */
    lily_sampling sampling;
    lily_grammar *grammar;          /* what the reply must be, or NULL; held while the request lives */
    bool in_think;                  /* the prompt ends inside a thought, which stays free */
    bool may_call;                  /* with a grammar: a tool call may come in its place */
    lily_grammar *calls;            /* what tool calls must be (sample/call_grammar.h), NULL: free; held as well */
    bool must_call;                 /* with `calls`: the reply behind a thought is calls and nothing else */
    bool single_call;               /* with must_call: just one */
    bool think_limited;             /* a thought takes think_budget tokens at most, then it is closed */
    uint32_t think_budget;
    bool ignore_eos;                /* a grammar that is complete ends the reply all the same */
    bool no_reuse;                  /* read the whole prompt anew and keep nothing of it */
    /* With a script only: the rendered prompt, which chooses the reply, and a reply named by the client (-1: none). */
    const char *prompt_text;
    size_t n_prompt_text;
    const char *endpoint;
    int32_t script_reply;
    /* Called whenever there is a new event for an empty list, and once at the end: by the engine's thread, or inside
     * the cancel of a request that still waits. Must be quick and must not call the engine or take a lock that is held
     * around such calls. Never called again once lily_request_free has returned. May be NULL: then use
     * lily_request_wait. */
    void (*wake)(void *user);
    void *user;
} lily_ask;

enum lily_event_kind {
    LILY_EVENT_START,       /* its turn has come: n_prompt, n_reused */
    LILY_EVENT_PROGRESS,    /* n_done of n_prompt tokens are read, reused ones included */
    LILY_EVENT_TOKEN,       /* a token of the reply; the end-of-turn token is not sent */
    LILY_EVENT_END,         /* nothing follows */
};

typedef struct lily_event {
    enum lily_event_kind kind;
    uint32_t n_prompt, n_reused, n_done;
    /* TOKEN */
    int32_t id;                     /* -1: a scripted token without id (its one alternative, itself, is -1 too) */
    const char *bytes;              /* what it stands for; owned by the event; may cut a character */
    size_t n_bytes;
    bool added;                     /* an added token (<think>, <tool_call> …), not letters that look like it */
    float logprob;
    uint32_t n_top;
    const struct lily_top *top;     /* device/dev.h */
    /* END */
    enum lily_end end;
    const lily_err *err;            /* for LILY_END_ERROR */
    const char *err_code;           /* a name for API clients ("script_exhausted"), or NULL */
    uint32_t n_generated;           /* tokens of the reply, the end-of-turn token not counted */
    double prompt_seconds, reply_seconds;   /* reading what was not reused; first to last token */
} lily_event;

/* Puts a request into the queue.  LILY_CONTEXT with both counts before any work when the context has no room for
 * the prompt and one token of a reply (a longer max_tokens is cut to the room); LILY_ARGUMENT for ids that the model
 * does not have; LILY_BUSY when the queue is full.  The caller owns the request until lily_request_free. */
int lily_engine_submit(lily_engine *g, const lily_ask *ask, lily_request **out, lily_err *e);
/* The next event, or NULL when there is none now; freed by lily_event_free. Any one thread. */
lily_event *lily_request_next(lily_request *r);
/* The same, but waits; NULL only after the END was taken. */
lily_event *lily_request_wait(lily_request *r);
void lily_event_free(lily_event *ev);
/* Any thread, any time: the request ends soon with LILY_END_CANCELLED, between two stages at the latest. */
void lily_request_cancel(lily_request *r);
/* The same, because the requester found a stop string in the text: it ends with LILY_END_STOP. */
void lily_request_stop(lily_request *r);
/* Cancels if it still runs, and frees once the engine has let go. */
void lily_request_free(lily_request *r);

/* With --script: the record of GET /script as JSON text (owned by the caller's buffer). */
int lily_engine_script_record(lily_engine *g, lily_buf *out, lily_err *e);

#endif
