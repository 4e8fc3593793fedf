#include "../check.h"

#include "scratch.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int scratch_open(void **state)
{
    scratch *s = calloc(1, sizeof *s);
    if (!s) return -1;
    snprintf(s->path, sizeof s->path, "%s/tests/scratch-XXXXXX", LILY_BINARY_DIR);
    *state = s;
    return mkdtemp(s->path) ? 0 : -1;
}

int scratch_close(void **state)
{
    scratch *s = *state;
    DIR *d = opendir(s->path);
    if (!d) return -1;
    for (struct dirent *f; (f = readdir(d)) != NULL;)
        if (strcmp(f->d_name, ".") != 0 && strcmp(f->d_name, "..") != 0) unlinkat(dirfd(d), f->d_name, 0);
    closedir(d);
    int rc = rmdir(s->path);
    free(s);
    return rc;
}

void scratch_write(const scratch *s, const char *name, const void *data, size_t n)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", s->path, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

void scratch_text(const scratch *s, const char *name, const char *text)
{
    scratch_write(s, name, text, strlen(text));
}
