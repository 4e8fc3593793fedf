/* page.h - the chat page at /: a few files inside the program.  Private to src/api. */
#ifndef LILY_API_PAGE_H
#define LILY_API_PAGE_H

#include "api/http.h"

/* GET /, /index.html, /app.js … They hold no secret, so they need no key; what the page asks for does. */
void lily_handle_page(lily_http_req *req, void *api);
bool lily_is_page(const char *path);

#endif
