/* state.h - one session's memory as devices on the host share it: where it stands, the recurrent states that cannot
 * be rewound, and snapshots of these to go back to.  Keys and values are each device's own. */
#ifndef LILY_DEVICE_HOST_STATE_H
#define LILY_DEVICE_HOST_STATE_H

#include "device/host/weights.h"

typedef struct lily_kv lily_kv; /* defined by each device */

/* Recurrent state of all DeltaNet layers at one position; shared by the states that branched from it, never
 * written again. */
typedef struct lily_snapshot {
    uint32_t position, refs;
    float recurrent[];          /* as lily_state.recurrent */
} lily_snapshot;

struct lily_state {
    const lily_weights *weights;
    uint32_t position;          /* tokens so far */
    uint64_t capacity;          /* tokens that kv has room for; set by the device */
    float *recurrent;           /* [DeltaNet layers]: tail [K-1][C], then S [Gv][Dv][Dk]; whole 64 bytes a layer */
    lily_snapshot **snapshot;   /* ascending positions, none above `position` */
    uint32_t n_snapshots;
    uint32_t *count;            /* [V] for the penalties */
    int32_t next;               /* chosen by the last run that chose, or -1 */
    lily_kv *kv;                /* freed with the state; what it points to is the device's */
};

/* Where one DeltaNet layer's part of a recurrent block lies. */
float *lily_state_tail(const lily_weights *w, float *recurrent, uint16_t layer);
float *lily_state_s(const lily_weights *w, float *recurrent, uint16_t layer);

/* An empty state with kv_bytes of zeros as its kv. */
int lily_state_open(const lily_weights *w, size_t kv_bytes, lily_state **out, lily_err *e);
void lily_state_close(lily_state *s);

/* As in lily_dev_ops. */
uint32_t lily_state_position(const lily_state *s);
size_t lily_state_positions(const lily_state *s, uint32_t *out, size_t room);
void lily_state_drop(lily_dev *, lily_state *s, uint32_t position);
void lily_state_count_reset(lily_state *s);

/* The recurrent block at a position that the state can go back to; NULL in *block stands for the empty state.
 * LILY_ARGUMENT when it was not kept. */
int lily_state_at(const lily_state *s, uint32_t position, const float **block, lily_err *e);
/* lily_dev_ops.state_copy without keys and values.  When it fails dst is as it was. */
int lily_state_copy(lily_state *dst, const lily_state *src, uint32_t position, lily_err *e);
/* Back to the newest snapshot, or to nothing: what a run leaves that did not end. */
void lily_state_recover(lily_state *s);

/* The snapshots that a lane marks, still to be filled by the run; then either kept or thrown away.  NULL for none. */
int lily_state_marks_new(lily_state *s, const lily_lane *lane, lily_snapshot ***out, lily_err *e);
void lily_state_marks_keep(lily_state *s, lily_snapshot **mark, uint32_t n);
void lily_state_marks_free(lily_snapshot **mark, uint32_t n);

/* lily_dev_ops.recurrent_save and recurrent_load. */
int lily_recurrent_save(lily_dev *, const lily_state *s, uint32_t position, void *out, lily_err *e);
int lily_recurrent_load(lily_dev *, lily_state *s, uint32_t position, const void *in, lily_err *e);
/* Whether rows from … from + n may be saved, or loaded. */
int lily_rows_saved(const lily_state *s, uint32_t from, uint32_t n, lily_err *e);
int lily_rows_loaded(const lily_state *s, uint32_t from, uint32_t n, lily_err *e);

/* Bytes held, keys and values not counted. */
uint64_t lily_state_bytes(const lily_state *s);
/* lily_dev_ops.state_cost, with keys and values of so many bytes an element. */
void lily_state_cost(const lily_config *c, size_t kv_element, uint64_t *fixed, uint64_t *snapshot, uint64_t *per_token);
/* lily_dev_ops.peek_state; for SLOT_KV all but the copy, which is left to the device. */
int lily_state_peek(const lily_state *s, unsigned slot, uint16_t layer, float *dst, size_t room, size_t *n,
                    lily_err *e);

#endif
