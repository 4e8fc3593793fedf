/* math.c - the small functions.  Inside they are double: the result is the correctly rounded float but for
 * one case in millions, whatever the machine's libm. */
#include <math.h>

#include "device/ref/ref.h"

float ref_sigmoid(float x)
{
    return (float)(1.0 / (1.0 + exp(-(double)x)));
}

float ref_silu(float x)
{
    return (float)(x / (1.0 + exp(-(double)x)));
}

void ref_rms_norm(float *y, const float *x, const float *w, uint32_t n, float eps)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    float scale = (float)(1.0 / sqrt(sum / n + eps));
    for (uint32_t i = 0; i < n; i++) y[i] = x[i] * scale * w[i];
}
