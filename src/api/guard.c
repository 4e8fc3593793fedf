#include "api/guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "api/page.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"

enum { KEY_FILE_BYTES = 64 * 1024, MAX_KEY_BYTES = 512 };

typedef struct key_hash {
    uint8_t bytes[LILY_SHA256_BYTES];
} key_hash;

struct lily_guard {
    key_hash *keys;
    size_t n_keys;
    char *origins, *hosts;          /* lists with commas, or NULL */
    enum lily_reach reach;
};

/* ---- keys ---- */

static int add_key(lily_guard *g, const char *key, size_t n, lily_err *e)
{
    if (n == 0 || n > MAX_KEY_BYTES)
        return lily_fail(e, LILY_ARGUMENT, "a key has 1 to %d characters, not %zu", MAX_KEY_BYTES, n);
    for (size_t i = 0; i < n; i++)
        if (key[i] <= ' ' || key[i] > '~')
            return lily_fail(e, LILY_ARGUMENT, "character %zu of a key is not printable ASCII", i + 1);
    key_hash *keys = lily_realloc(g->keys, g->n_keys + 1, sizeof *keys);
    if (!keys) return lily_no_memory(e, (g->n_keys + 1) * sizeof *keys, "keys");
    g->keys = keys;
    lily_sha256(key, n, keys[g->n_keys++].bytes);
    return LILY_OK;
}

static int check_mode(const char *path, lily_err *e)
{
    struct stat st;
    if (stat(path, &st) != 0) return lily_fail(e, LILY_IO, "%s: %s", path, strerror(errno));
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return lily_fail(e, LILY_ARGUMENT, "%s: others than its owner may write this file: chmod 600", path);
    if (st.st_mode & (S_IRGRP | S_IROTH))
        lily_log(LILY_LOG_WARN, "%s: others than its owner may read these keys: chmod 600", path);
    return LILY_OK;
}

static int add_lines(lily_guard *g, const char *text, lily_err *e)
{
    for (const char *line = text; *line;) {
        size_t whole = strcspn(line, "\n"), n = whole;
        while (n && strchr(" \t\r", line[n - 1])) n--;
        size_t skip = strspn(line, " \t");
        if (n > skip && line[skip] != '#') TRY(add_key(g, line + skip, n - skip, e));
        line += whole + (line[whole] == '\n');
    }
    return LILY_OK;
}

static int add_file(lily_guard *g, const char *path, lily_err *e)
{
    TRY(check_mode(path, e));
    lily_buf text = {0};
    size_t before = g->n_keys;
    int rc = lily_file_read(&text, path, KEY_FILE_BYTES, e);
    if (rc == LILY_OK) {
        /* Of a file in UTF-16 the first letter alone would become a key. */
        if (text.len && memchr(text.data, 0, text.len)) rc = lily_fail(e, LILY_ARGUMENT, "this is no text: it has a NUL");
        else rc = add_lines(g, lily_buf_str(&text), e);
        if (rc != LILY_OK) lily_err_prefix(e, "%s", path);
    }
    if (rc == LILY_OK && g->n_keys == before) rc = lily_fail(e, LILY_ARGUMENT, "%s: there is no key in it", path);
    if (text.data) memset(text.data, 0, text.len);
    lily_buf_free(&text);
    return rc;
}

/* All keys are compared to the last bit, whatever is found: how long it takes tells nothing. */
static bool known(const lily_guard *g, const char *key)
{
    uint8_t hash[LILY_SHA256_BYTES];
    unsigned any = 0;
    lily_sha256(key, strlen(key), hash);
    for (size_t k = 0; k < g->n_keys; k++) {
        unsigned differs = 0;
        for (int i = 0; i < LILY_SHA256_BYTES; i++) differs |= (unsigned)(hash[i] ^ g->keys[k].bytes[i]);
        any |= (differs - 1) >> 31;
    }
    return any;
}

static bool has_key(const lily_guard *g, const lily_http_req *req)
{
    static const char scheme[] = "bearer ";
    const char *bearer = lily_http_header(req, "authorization"), *key = lily_http_header(req, "x-api-key");
    if (key && known(g, key)) return true;
    if (!bearer || strncasecmp(bearer, scheme, sizeof scheme - 1) != 0) return false;
    bearer += sizeof scheme - 1;
    return known(g, bearer + strspn(bearer, " "));
}

/* ---- lists ---- */

static bool listed(const char *list, const char *what, size_t n)
{
    for (const char *p = list; p && *p;) {
        size_t len = strcspn(p, ",");
        if ((len == 1 && *p == '*') || (len == n && strncasecmp(p, what, n) == 0)) return true;
        p += len + (p[len] == ',');
    }
    return false;
}

/* ---- names of this host ---- */

static bool ends_with(const char *s, size_t n, const char *end)
{
    size_t m = strlen(end);
    return n > m && strncasecmp(s + n - m, end, m) == 0;
}

/* Rebinding needs a name that a stranger can register: addresses are none, nor are names of one label, which public
 * DNS does not answer for (localhost, a machine of the house), nor those under the two domains that are reserved for
 * machines themselves (RFC 6761, ICANN 2024). */
static bool is_own_name(const char *host, size_t n)
{
    char text[64];
    struct in_addr ip4;
    struct in6_addr ip6;
    if (n > 0 && !memchr(host, '.', n) && !memchr(host, ':', n)) return true;
    if (ends_with(host, n, ".localhost") || ends_with(host, n, ".internal")) return true;
    if (n >= sizeof text) return false;
    memcpy(text, host, n);
    text[n] = 0;
    return inet_pton(AF_INET, text, &ip4) == 1 || inet_pton(AF_INET6, text, &ip6) == 1;
}

/* The name in a Host header, without brackets and port. */
static const char *host_name(const char *host, size_t *n)
{
    if (*host == '[') {
        *n = strcspn(host + 1, "]");
        return host + 1;
    }
    *n = strcspn(host, ":");
    return host;
}

static bool refuse_host(const lily_guard *g, lily_http_req *req)
{
    const char *host = lily_http_header(req, "host");
    size_t n;
    if ((g->reach != LILY_REACH_MACHINE && !g->hosts) || g->n_keys || !host) return false;    /* browsers always send one */
    const char *name = host_name(host, &n);
    if (is_own_name(name, n) || listed(g->hosts, name, n)) return false;
    lily_err e;
    lily_fail(&e, LILY_ARGUMENT,
              "the host name '%.100s' is not one of this server: start it with --allowed-host %.*s if it is meant to be",
              host, (int)(n < 100 ? n : 100), name);
    lily_http_reply_error(req, 403, e.text, &e);
    return true;
}

/* ---- origins ---- */

static int check_origins(const char *list, lily_err *e)
{
    for (const char *p = list; p && *p;) {
        size_t n = strcspn(p, ","), scheme = strcspn(p, ":");
        bool any = n == 1 && *p == '*';
        if (!any && (scheme + 3 >= n || strncmp(p + scheme, "://", 3) != 0 || memchr(p + scheme + 3, '/', n - scheme - 3)))
            return lily_fail(e, LILY_ARGUMENT, "'%.*s' is no origin: write it as http://localhost:3000, or *", (int)n, p);
        p += n + (p[n] == ',');
    }
    return LILY_OK;
}

/* A page of this server's own. */
static bool same_origin(const char *origin, const char *host)
{
    const char *name = strstr(origin, "://");
    return name && host && strcasecmp(name + 3, host) == 0;
}

static void add_cors(const lily_guard *g, lily_http_req *req, const char *origin)
{
    lily_err e;
    /* The origin itself is named, so that caches must tell askers apart; credentials are never allowed. */
    lily_http_set_header(req, "Access-Control-Allow-Origin", strcmp(g->origins, "*") == 0 ? "*" : origin, &e);
    lily_http_set_header(req, "Vary", "Origin", &e);
    lily_http_set_header(req, "Access-Control-Expose-Headers", "Retry-After, X-Request-Id", &e);
}

/* Names that may stand in a header as they are. */
static bool plain(const char *s)
{
    for (; *s; s++)
        if (*s < ' ' || *s > '~') return false;
    return true;
}

static void answer_preflight(lily_http_req *req)
{
    const char *headers = lily_http_header(req, "access-control-request-headers");
    lily_err e;
    lily_http_set_header(req, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS", &e);
    lily_http_set_header(req, "Access-Control-Allow-Headers",
                         headers && plain(headers) ? headers : "authorization, content-type, x-api-key", &e);
    lily_http_set_header(req, "Access-Control-Max-Age", "600", &e);
    if (lily_http_header(req, "access-control-request-private-network"))
        lily_http_set_header(req, "Access-Control-Allow-Private-Network", "true", &e);
    lily_http_reply(req, 204, NULL, NULL, 0, &e);
}

static void refuse_origin(lily_http_req *req, const char *origin)
{
    lily_err e;
    if (strstr(origin, "://"))
        lily_fail(&e, LILY_ARGUMENT,
                  "pages of %.100s may not ask this server: start it with --cors-origin %.100s if they may", origin, origin);
    else    /* "null", of files and of frames in a sandbox: any stranger's page can have it */
        lily_fail(&e, LILY_ARGUMENT, "a page without an origin of its own may not ask this server: serve it over HTTP");
    lily_http_reply_error(req, 403, e.text, &e);
}

/* ---- all of it ---- */

static bool refuse_key(const lily_guard *g, lily_http_req *req)
{
    if (!g->n_keys || has_key(g, req)) return false;
    lily_err e;
    lily_http_set_header(req, "WWW-Authenticate", "Bearer realm=\"lily\"", &e);
    lily_http_reply_error(req, 401, "this server needs its key: Authorization: Bearer KEY, or x-api-key: KEY", &e);
    return true;
}

bool lily_guard_admit(const lily_guard *g, lily_http_req *req)
{
    const char *path = lily_http_path(req), *origin = lily_http_header(req, "origin");
    bool health = strcmp(path, "/health") == 0;
    bool preflight = strcmp(lily_http_method(req), "OPTIONS") == 0 && origin &&
                     lily_http_header(req, "access-control-request-method");
    if (refuse_host(g, req)) return false;
    bool allowed = origin && plain(origin) && listed(g->origins, origin, strlen(origin));
    if (allowed) add_cors(g, req, origin);
    if (preflight && allowed) {
        answer_preflight(req);
        return false;
    }
    bool foreign = origin && !allowed && !same_origin(origin, lily_http_header(req, "host"));
    if (foreign && !health && (preflight || !g->n_keys)) {
        refuse_origin(req, origin);
        return false;
    }
    return health || lily_is_page(path) || !refuse_key(g, req);
}

bool lily_guard_has_key(const lily_guard *g) { return g->n_keys > 0; }

static int copy_list(char **out, const char *list, lily_err *e)
{
    if (!list) return LILY_OK;
    *out = lily_strdup(list);
    return *out ? LILY_OK : lily_no_memory(e, strlen(list) + 1, "a list of names");
}

static int fill(lily_guard *g, const lily_guard_options *o, lily_err *e)
{
    if (o->key) TRY(add_key(g, o->key, strlen(o->key), e));
    if (o->key_file) TRY(add_file(g, o->key_file, e));
    TRY(check_origins(o->origins, e));
    TRY(copy_list(&g->origins, o->origins, e));
    return copy_list(&g->hosts, o->hosts, e);
}

int lily_guard_new(lily_guard **out, const lily_guard_options *o, lily_err *e)
{
    lily_guard *g = *out = lily_calloc(1, sizeof *g);
    if (!g) return lily_no_memory(e, sizeof *g, "the guard");
    g->reach = o->reach;
    int rc = fill(g, o, e);
    if (rc == LILY_OK) return LILY_OK;
    lily_guard_free(g);
    *out = NULL;
    return rc;
}

void lily_guard_free(lily_guard *g)
{
    if (!g) return;
    lily_free(g->keys);
    lily_free(g->origins);
    lily_free(g->hosts);
    lily_free(g);
}
