/* metrics.h - what GET /metrics tells beside the engine's own counters: requests, answers and how long things took.
 * Any thread. */
#ifndef LILY_API_METRICS_H
#define LILY_API_METRICS_H

#include <pthread.h>
#include <stdint.h>

#include "base/buf.h"
#include "run/engine.h"

enum { LILY_METRIC_PATHS = 8, LILY_METRIC_CODES = 16, LILY_METRIC_BUCKETS = 16 };

typedef struct lily_histogram {
    uint64_t bucket[LILY_METRIC_BUCKETS];   /* not cumulative; the last is "longer" */
    uint64_t count;
    double sum;                             /* seconds */
} lily_histogram;

enum lily_timing {
    LILY_TIME_FIRST_TOKEN,      /* from the request's head to the first token */
    LILY_TIME_PER_TOKEN,        /* of an answer with several: its mean distance of tokens */
    LILY_TIME_REQUEST,          /* from the request's head to its end, of requests for tokens */
    N_LILY_TIMINGS
};

typedef struct lily_metrics {
    pthread_mutex_t lock;
    uint64_t requests;
    uint64_t answers[LILY_METRIC_PATHS][LILY_METRIC_CODES];
    lily_histogram timings[N_LILY_TIMINGS];
} lily_metrics;

void lily_metrics_init(lily_metrics *m);
void lily_metrics_destroy(lily_metrics *m);

void lily_metrics_request(lily_metrics *m);     /* one for tokens, valid or not, was read */
/* A request of any kind is over; 499: the client left before there was an answer. */
void lily_metrics_answer(lily_metrics *m, const char *path, int status);
void lily_metrics_time(lily_metrics *m, enum lily_timing what, double seconds);

/* Prometheus' text format 0.0.4; g may be NULL while loading. */
void lily_metrics_text(lily_metrics *m, lily_engine *g, lily_buf *out);

#endif
