/* engine_inside.h - the engine as its own sources see it.  Private to src/run. */
#ifndef LILY_RUN_ENGINE_INSIDE_H
#define LILY_RUN_ENGINE_INSIDE_H

#include "run/serve.h"

struct lily_engine {
    lily_loaded m;
    lily_disk *disk;                /* NULL: no cache on disk */
    lily_pool *pool;                /* NULL with a script alone */
    lily_script *script;            /* or NULL */
    lily_replies *replies;
    lily_turn *turn;                /* [parallel], the loop's */
    uint32_t parallel;
    lily_queue *queue;
    pthread_t thread;
    bool started;
    atomic_bool clear;              /* forget what is kept, before the next request begins; until then nothing counts as kept */
    pthread_mutex_t lock;           /* for what follows: how sessions stand, told by the engine's thread */
    lily_engine_stats kept;
};

#endif
