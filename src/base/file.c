#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

const char *lily_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

char *lily_path_join(const char *dir, const char *name)
{
    lily_buf b = {0};
    lily_buf_puts(&b, dir);
    if (b.len && b.data[b.len - 1] != '/') lily_buf_putc(&b, '/');
    lily_buf_puts(&b, name);
    if (!b.failed) return b.data;
    lily_buf_free(&b);
    return NULL;
}

bool lily_file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* Opens a regular file. O_NONBLOCK, so that a named pipe in a hostile folder cannot make us wait. */
static int open_regular(const char *path, int *fd, uint64_t *size, lily_err *e)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return lily_fail(e, LILY_IO, "%s: %s", path, strerror(errno));
    struct stat st;
    if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(*fd);
        return lily_fail(e, LILY_IO, "%s: not a regular file", lily_path_base(path));
    }
    *size = (uint64_t)st.st_size;
    return LILY_OK;
}

int lily_map_open(lily_map *m, const char *path, lily_err *e)
{
    int fd;
    uint64_t size;
    *m = (lily_map){0};
    TRY(open_regular(path, &fd, &size, e));
    void *p = NULL;
    if (size > 0) p = size > SIZE_MAX ? MAP_FAILED : mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
    int saved = errno;
    close(fd);
    if (p == MAP_FAILED) return lily_fail(e, LILY_IO, "%s: cannot be mapped: %s", lily_path_base(path), strerror(saved));
    *m = (lily_map){p, size};
    return LILY_OK;
}

void lily_map_close(lily_map *m)
{
    if (m->data) munmap((void *)m->data, (size_t)m->size);
    *m = (lily_map){0};
}

static int read_all(lily_buf *out, int fd, const char *name, size_t limit, lily_err *e)
{
    size_t start = out->len;
    for (;;) {
        if (!lily_buf_reserve(out, 65536)) return lily_no_memory(e, out->len - start, name);
        ssize_t n = read(fd, out->data + out->len, 65536);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return lily_fail(e, LILY_IO, "%s: %s", name, strerror(errno));
        if (n == 0) break;
        out->len += (size_t)n;
        if (out->len - start > limit)
            return lily_fail(e, LILY_FORMAT, "%s: larger than the limit of %zu bytes", name, limit);
    }
    out->data[out->len] = 0;
    return LILY_OK;
}

int lily_file_read(lily_buf *out, const char *path, size_t limit, lily_err *e)
{
    if (strcmp(path, "-") == 0) return read_all(out, STDIN_FILENO, "standard input", limit, e);
    int fd;
    uint64_t size;
    TRY(open_regular(path, &fd, &size, e));
    int rc = read_all(out, fd, lily_path_base(path), limit, e);
    close(fd);
    return rc;
}
