/* lines.h - a program for the property tests: one JSON value a line in, one a line out. */
#ifndef LILY_TESTS_SAMPLE_LINES_H
#define LILY_TESTS_SAMPLE_LINES_H

#include <stdio.h>
#include <stdlib.h>

#include "text/big_number.h"

/* Prints answer(value) for each line of standard input; the exit status of `program`. */
static int answer_lines(const char *program, json_t *(*answer)(const json_t *in))
{
    char *line = NULL;
    size_t room = 0;
    for (ssize_t n; (n = getline(&line, &room, stdin)) > 0;) {
        lily_err e;
        json_t *in;
        if (lily_json_parse_big(&in, line, (size_t)n, "a line", &e) != LILY_OK) {
            fprintf(stderr, "%s: %s\n", program, e.text);
            free(line);
            return 1;
        }
        json_t *out = answer(in);
        json_dumpf(out, stdout, JSON_COMPACT | JSON_ENCODE_ANY);
        putchar('\n');
        fflush(stdout);
        json_decref(out);
        json_decref(in);
    }
    free(line);
    return 0;
}

#endif
