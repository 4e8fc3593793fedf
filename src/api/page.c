/* page.c - the page's files.  All of it comes from this server and nothing else may be loaded or run, whatever a
 * model writes: the policy is as strict as the page allows. */
#include "api/page.h"

#include <string.h>

static const char policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                             "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#define FILES(X)                                                                                                       \
    X("/", lily_page_index, "text/html; charset=utf-8")                                                                \
    X("/app.js", lily_page_app, "text/javascript; charset=utf-8")                                                      \
    X("/markdown.js", lily_page_markdown, "text/javascript; charset=utf-8")                                            \
    X("/stream.js", lily_page_stream, "text/javascript; charset=utf-8")                                                \
    X("/style.css", lily_page_style, "text/css; charset=utf-8")                                                        \
    X("/icon.svg", lily_page_icon, "image/svg+xml")

#define X(path, name, type) extern const unsigned char name[]; extern const size_t name##_len;
FILES(X)
#undef X

static const struct {
    const char *path, *type;
    const unsigned char *data;
    const size_t *n;
} files[] = {
#define X(path, name, type) {path, type, name, &name##_len},
    FILES(X)
#undef X
};

bool lily_is_page(const char *path)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(path, files[i].path) == 0) return true;
    return false;
}

void lily_handle_page(lily_http_req *req, void *api)
{
    (void)api;
    lily_err e;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (strcmp(lily_http_path(req), files[i].path) != 0) continue;
        (void)lily_http_set_header(req, "Content-Security-Policy", policy, &e);
        (void)lily_http_set_header(req, "X-Content-Type-Options", "nosniff", &e);
        (void)lily_http_set_header(req, "Referrer-Policy", "no-referrer", &e);
        (void)lily_http_set_header(req, "Cache-Control", "no-cache", &e);
        (void)lily_http_reply(req, 200, files[i].type, files[i].data, *files[i].n, &e);
        return;
    }
    (void)lily_http_reply_error(req, 404, "there is no such page", &e);
}
