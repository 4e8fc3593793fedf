/* loop.c - the interactive part of lily chat: a line editor, slash commands, one question after another.
 * The lines typed are remembered while the program runs and never written to disk: chats are private. */
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "base/buf.h"
#include "cli/chat.h"

typedef struct loop {
    lily_talk *talk;
    bool done;
    bool cancelled;         /* Ctrl-C while typing */
} loop;

typedef struct slash {
    const char *name, *argument, *what;
    int (*run)(loop *l, const char *argument, lily_err *e);
} slash;

static char *prompt_text(EditLine *el)
{
    (void)el;
    return (char *)"> ";
}

static char *more_text(EditLine *el)
{
    (void)el;
    return (char *)". ";
}

static int ask(loop *l, const char *question, size_t n, lily_err *e)
{
    bool interrupted;
    TRY(lily_talk_ask(l->talk, question, n, &interrupted, e));
    if (interrupted) fputs("(stopped)\n", stderr);
    return LILY_OK;
}

/* ---- slash commands ---- */

static int set_switch(const char *argument, bool *value, lily_err *e)
{
    if (strcmp(argument, "on") == 0)
        *value = true;
    else if (strcmp(argument, "off") == 0)
        *value = false;
    else
        return lily_fail(e, LILY_ARGUMENT, "say on or off");
    return LILY_OK;
}

static int slash_new(loop *l, const char *argument, lily_err *e)
{
    (void)argument;
    (void)e;
    while (lily_talk_undo(l->talk, NULL)) continue;
    return LILY_OK;
}

static int slash_system(loop *l, const char *argument, lily_err *e)
{
    lily_talk_set_system(l->talk, argument[0] ? argument : NULL);
    return slash_new(l, "", e);
}

static int slash_thinking(loop *l, const char *argument, lily_err *e)
{
    bool on;
    TRY(set_switch(argument, &on, e));
    json_object_set_new(l->talk->kwargs, "enable_thinking", json_boolean(on));
    return LILY_OK;
}

static int slash_stats(loop *l, const char *argument, lily_err *e)
{
    return set_switch(argument, &l->talk->stats, e);
}

static int slash_undo(loop *l, const char *argument, lily_err *e)
{
    (void)argument;
    return lily_talk_undo(l->talk, NULL) ? LILY_OK : lily_fail(e, LILY_ARGUMENT, "there is nothing to take back");
}

static int slash_retry(loop *l, const char *argument, lily_err *e)
{
    (void)argument;
    json_t *question;
    if (!lily_talk_undo(l->talk, &question)) return lily_fail(e, LILY_ARGUMENT, "nothing was asked yet");
    int rc = ask(l, json_string_value(question), json_string_length(question), e);
    json_decref(question);
    return rc;
}

static int slash_exit(loop *l, const char *argument, lily_err *e)
{
    (void)argument;
    (void)e;
    l->done = true;
    return LILY_OK;
}

static int slash_help(loop *l, const char *argument, lily_err *e);

static const slash slashes[] = {
    {"help", "", "this list", slash_help},
    {"new", "", "forget the conversation, keep the system message", slash_new},
    {"system", "TEXT", "set the system message (nothing: none) and begin anew", slash_system},
    {"thinking", "on|off", "whether the model thinks first", slash_thinking},
    {"stats", "on|off", "tokens, reuse and speed after each answer", slash_stats},
    {"undo", "", "take the last question and answer back", slash_undo},
    {"retry", "", "answer the last question again", slash_retry},
    {"exit", "", "leave (Ctrl-D too)", slash_exit},
};

enum { N_SLASHES = sizeof slashes / sizeof slashes[0] };

static int slash_help(loop *l, const char *argument, lily_err *e)
{
    (void)l;
    (void)argument;
    (void)e;
    for (int i = 0; i < N_SLASHES; i++)
        printf("/%s %-*s %s\n", slashes[i].name, 15 - (int)strlen(slashes[i].name), slashes[i].argument, slashes[i].what);
    puts("A line that ends in \\ goes on in the next. Ctrl-C stops an answer.");
    return LILY_OK;
}

static int run_slash(loop *l, const char *line, lily_err *e)
{
    size_t n = strcspn(line + 1, " ");
    const char *argument = line + 1 + n + strspn(line + 1 + n, " ");
    for (int i = 0; i < N_SLASHES; i++)
        if (strlen(slashes[i].name) == n && memcmp(slashes[i].name, line + 1, n) == 0)
            return slashes[i].run(l, argument, e);
    return lily_fail(e, LILY_ARGUMENT, "there is no /%.*s; /help lists the commands", (int)n, line + 1);
}

/* ---- lines ---- */

/* Ctrl-C while typing: the line is forgotten.  The editor reads it as a character (see open_editor), because a signal
 * would leave its terminal in an unknown mode. */
static unsigned char cancel_line(EditLine *el, wint_t key)
{
    (void)key;
    loop *l;
    if (el_get(el, EL_CLIENTDATA, &l) == 0) l->cancelled = true;
    const LineInfo *line = el_line(el);
    el_cursor(el, (int)(line->lastchar - line->cursor));
    el_deletestr(el, (int)(line->lastchar - line->buffer));
    return CC_NEWLINE;
}

/* The editor reads characters by the locale, and in that of C it drops all beyond ASCII; what is read here is UTF-8
 * wherever the program runs.  LC_CTYPE alone, so that numbers keep their point. */
static void use_utf8(void)
{
    static const char *const names[] = {"", "C.UTF-8", "en_US.UTF-8", "UTF-8"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (setlocale(LC_CTYPE, names[i]) && strcmp(nl_langinfo(CODESET), "UTF-8") == 0) return;
}

static EditLine *open_editor(loop *l, History *lines)
{
    EditLine *el = el_init("lily", stdin, stdout, stderr);
    if (!el) return NULL;
    el_set(el, EL_HIST, history, lines);
    el_set(el, EL_EDITOR, "emacs");
    el_set(el, EL_CLIENTDATA, l);
    el_set(el, EL_SETTY, "-d", "-isig", NULL);
    /* The wide form keeps the two names; the other one copies them and never frees the copies. */
    el_wset(el, EL_ADDFN, L"lily-cancel", L"forget the line", cancel_line);
    el_set(el, EL_BIND, "^C", "lily-cancel", NULL);
    return el;
}

/* One input, several lines joined where a line ends in a backslash.  False at the end of input. */
static bool read_input(loop *l, EditLine *el, lily_buf *input)
{
    lily_buf_clear(input);
    el_set(el, EL_PROMPT, prompt_text);
    for (;;) {
        int n = 0;
        l->cancelled = false;
        /* Before the prompt, not after it as el_gets does: who sees the prompt may press Ctrl-C. */
        el_set(el, EL_PREP_TERM, 1);
        const char *line = el_gets(el, &n);
        if (l->cancelled) {
            putchar('\n');
            lily_buf_clear(input);
            return true;
        }
        if (!line || n <= 0) {
            putchar('\n');
            return false;
        }
        size_t len = strcspn(line, "\r\n");
        bool more = len > 0 && line[len - 1] == '\\';
        lily_buf_add(input, line, more ? len - 1 : len);
        if (!more) return true;
        lily_buf_putc(input, '\n');
        el_set(el, EL_PROMPT, more_text);
    }
}

static void one_input(loop *l, const char *text)
{
    lily_err e;
    if (!text[strspn(text, " \t\n")]) return;
    int rc = text[0] == '/' ? run_slash(l, text, &e) : ask(l, text, strlen(text), &e);
    if (rc != LILY_OK) fprintf(stderr, "lily: %s\n", e.text);
}

int lily_talk_loop(lily_talk *t, lily_err *e)
{
    enum { REMEMBERED_LINES = 1000 };
    loop l = {.talk = t};
    lily_buf input = {0};
    HistEvent event;
    use_utf8();
    History *lines = history_init();
    EditLine *el = lines ? open_editor(&l, lines) : NULL;
    if (!el) {
        if (lines) history_end(lines);
        return lily_fail(e, LILY_IO, "the line editor does not start on this terminal");
    }
    history(lines, &event, H_SETSIZE, REMEMBERED_LINES);
    history(lines, &event, H_SETUNIQUE, 1);
    puts("/help lists the commands, Ctrl-D leaves");
    while (!l.done && read_input(&l, el, &input)) {
        if (input.failed) break;
        if (input.len) history(lines, &event, H_ENTER, input.data);
        one_input(&l, lily_buf_str(&input));
    }
    int rc = lily_buf_ok(&input, "a line", e);
    lily_buf_free(&input);
    el_end(el);
    history_end(lines);
    return rc;
}
