/* nfc.h - Unicode normalisation form C (UAX #15), in linear time. */
#ifndef LILY_TEXT_NFC_H
#define LILY_TEXT_NFC_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

typedef struct lily_nfc_work {
    int32_t *point;      /* code points of the stretch being normalised */
    size_t n, cap;
    int32_t *sorted;     /* [sorted_cap] */
    size_t sorted_cap;
    lily_buf out;
} lily_nfc_work;         /* {0} is an empty one; memory is kept from one call to the next */

void lily_nfc_work_free(lily_nfc_work *w);

/* *out, *n_out: text[0 … n), well-formed UTF-8, in form C.  They point to text itself when nothing can
 * change, else into w->out, valid until the next call. */
int lily_nfc(lily_nfc_work *w, const char *text, size_t n, const char **out, size_t *n_out, lily_err *e);

#endif
