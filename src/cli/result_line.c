#include "cli/result_line.h"

#include <stdio.h>
#include <time.h>

#include "plan/plan.h"
#include "version.h"

void lily_result_line_begin(const lily_engine *g, const lily_engine_options *o)
{
    char when[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    printf("{\"version\": \"%s\", \"commit\": \"%s\", \"date\": \"%s\", \"device\": \"%s\", \"without\": [", LILY_VERSION,
           LILY_COMMIT, when, lily_engine_device_text(g));
    const char *comma = "";
    for (unsigned i = 0; i < N_ABLATIONS; i++) {
        if (!(o->ablated & lily_bit(i))) continue;
        printf("%s\"%s\"", comma, lily_ablation_name(i));
        comma = ", ";
    }
    printf("], \"model\": \"%s\"", lily_engine_fingerprint(g));
}
