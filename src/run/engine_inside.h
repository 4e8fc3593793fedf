/* engine_inside.h - the engine as its own sources see it.  Private to src/run. */
#ifndef LILY_RUN_ENGINE_INSIDE_H
#define LILY_RUN_ENGINE_INSIDE_H

#include "run/request.h"
#include "run/script.h"
#include "run/session.h"

struct lily_engine {
    lily_loaded m;
    lily_session *session;          /* NULL with a script */
    lily_script *script;            /* or NULL */
    lily_replies *replies;
    lily_queue *queue;
    pthread_t thread;
    bool started;
    atomic_bool clear;              /* forget what is kept, before the next request begins */
    pthread_mutex_t lock;           /* for what follows: how sessions stand, told by the engine's thread */
    lily_engine_stats kept;
};

#endif
