/* talk.c - a question, its answer on the screen, and what joins the conversation. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/chat.h"
#include "base/buf.h"
#include "base/random.h"
#include "cli/chat.h"
#include "cli/commands.h"

/* ---- Ctrl-C ---- */

static volatile sig_atomic_t interrupts;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupts = 1;
}

void lily_catch_interrupts(void)
{
    /* No SA_RESTART: a read of the keyboard must come back. */
    struct sigaction action = {.sa_handler = on_interrupt};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

bool lily_interrupted(void)
{
    bool was = interrupts != 0;
    interrupts = 0;
    return was;
}

/* ---- the screen ---- */

static const char dim[] = "\033[2m", plain[] = "\033[0m";

typedef struct screen {
    bool terminal, dimmed, progress;
    lily_buf reasoning, text;   /* of this answer */
    lily_usage usage;
    lily_finish finish;
    lily_err err;
} screen;

/* A model may write any character; a terminal must not take its control sequences from one. */
static void show(const screen *s, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        bool control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
        bool c1 = c == 0xc2 && i + 1 < n && (unsigned char)text[i + 1] < 0xa0;     /* U+0080 … U+009F */
        if (!s->terminal || (!control && !c1)) {
            putchar(c);
            continue;
        }
        putchar('?');
        i += c1;
    }
    fflush(stdout);
}

static void set_dim(screen *s, bool on)
{
    if (s->dimmed == on) return;
    s->dimmed = on;
    if (s->terminal) fputs(on ? dim : plain, stdout);
}

static void show_progress(screen *s, const lily_usage *u)
{
    enum { WORTH_SHOWING = 1024 };
    if (u->n_prompt - u->n_reused < WORTH_SHOWING && !s->progress) return;
    s->progress = u->n_done < u->n_prompt;
    lily_show_progress(NULL, "reading the prompt", (double)u->n_done / u->n_prompt);
}

static int on_answer(void *user, const lily_answer_event *ev, lily_err *e)
{
    screen *s = user;
    s->usage = *ev->usage;
    switch (ev->kind) {
    case LILY_ANSWER_PROGRESS: show_progress(s, ev->usage); break;
    case LILY_ANSWER_REASONING:
        lily_buf_add(&s->reasoning, ev->text, ev->n);
        if (!s->terminal) break;
        set_dim(s, true);
        show(s, ev->text, ev->n);
        break;
    case LILY_ANSWER_TEXT:
        if (s->dimmed) fputs("\n\n", stdout);
        set_dim(s, false);
        lily_buf_add(&s->text, ev->text, ev->n);
        show(s, ev->text, ev->n);
        break;
    case LILY_ANSWER_FINISH:
        set_dim(s, false);
        s->finish = ev->finish;
        if (ev->err) s->err = *ev->err;
        break;
    case LILY_ANSWER_START:
    case LILY_ANSWER_CALL:          /* no tools are declared, so there are no calls */
    case LILY_ANSWER_ARGUMENTS:
    case LILY_ANSWER_CALL_END:
    case LILY_ANSWER_CALL_CUT: break;
    }
    return lily_buf_ok(&s->text, "the answer", e);
}

static double rate(uint32_t n, double seconds) { return seconds > 0 ? n / seconds : 0; }

static void show_stats(const screen *s)
{
    const lily_usage *u = &s->usage;
    uint32_t fresh = u->n_prompt - u->n_reused;
    fprintf(stderr, "prompt %u tokens, %u reused, %u read in %.2f s (%.1f tok/s); reply %u tokens in %.2f s (%.1f tok/s)%s\n",
            u->n_prompt, u->n_reused, fresh, u->prompt_seconds, rate(fresh, u->prompt_seconds), u->n_reply,
            u->reply_seconds, rate(u->n_reply ? u->n_reply - 1 : 0, u->reply_seconds),
            s->finish == LILY_FINISH_LENGTH ? "; cut at the limit" : "");
}

/* ---- the conversation ---- */

static int add_message(lily_talk *t, const char *role, const lily_buf *text, const lily_buf *reasoning, lily_err *e)
{
    json_t *m = json_pack("{s:s, s:s%}", "role", role, "content", lily_buf_str(text), text->len);
    if (m && reasoning && reasoning->len)
        json_object_set_new(m, "reasoning_content", json_stringn(reasoning->data, reasoning->len));
    if (!m || json_array_append_new(t->messages, m) != 0)
        return lily_fail(e, LILY_ARGUMENT, "the text is not valid UTF-8");
    return LILY_OK;
}

static int run_answer(lily_talk *t, screen *s, bool *interrupted, lily_err *e)
{
    lily_chat chat = {.messages = t->messages,
                      .kwargs = t->kwargs,
                      .sampling = t->sampling,
                      .max_tokens = t->max_tokens,
                      .script_reply = -1,
                      .sink = on_answer,
                      .user = s};
    if (!t->fixed_seed) chat.sampling.seed = lily_random_seed();
    lily_chat_run *run = NULL;
    int rc;
    TRY_TO(done, lily_chat_start(&run, t->engine, &chat, NULL, e));
    for (bool finished = false; !finished;) {
        TRY_TO(done, lily_chat_wait(run, 0.05, &finished, e));
        if (!lily_interrupted()) continue;
        *interrupted = true;
        lily_chat_cancel(run);
    }
    if (s->finish == LILY_FINISH_ERROR) rc = lily_fail(e, s->err.code, "%s", s->err.text);
done:
    set_dim(s, false);
    lily_chat_free(run);
    return rc;
}

int lily_talk_ask(lily_talk *t, const char *question, size_t n, bool *interrupted, lily_err *e)
{
    screen s = {.terminal = t->terminal};
    lily_buf asked = {0};
    size_t before = json_array_size(t->messages);
    int rc;
    *interrupted = false;
    (void)lily_interrupted();    /* one that came after the last answer does not mean this one */
    lily_buf_add(&asked, question, n);
    TRY_TO(done, lily_buf_ok(&asked, "the question", e));
    TRY_TO(done, add_message(t, "user", &asked, NULL, e));
    TRY_TO(done, run_answer(t, &s, interrupted, e));
    if (s.text.len || s.reasoning.len) putchar('\n');
    fflush(stdout);    /* before the figures, wherever both go */
    if (t->stats) show_stats(&s);
    if (s.text.len || !*interrupted) rc = add_message(t, "assistant", &s.text, &s.reasoning, e);
done:
    /* A question without an answer would make the next prompt a strange one. */
    if (rc != LILY_OK || json_array_size(t->messages) == before + 1)
        while (json_array_size(t->messages) > before) json_array_remove(t->messages, json_array_size(t->messages) - 1);
    lily_buf_free(&asked);
    lily_buf_free(&s.reasoning);
    lily_buf_free(&s.text);
    return rc;
}

static bool has_role(const json_t *message, const char *role)
{
    return strcmp(json_string_value(json_object_get(message, "role")), role) == 0;
}

bool lily_talk_undo(lily_talk *t, json_t **question)
{
    size_t n = json_array_size(t->messages);
    while (n > 0 && !has_role(json_array_get(t->messages, n - 1), "user")) n--;
    if (n == 0) return false;
    if (question) *question = json_incref(json_object_get(json_array_get(t->messages, n - 1), "content"));
    while (json_array_size(t->messages) >= n) json_array_remove(t->messages, json_array_size(t->messages) - 1);
    return true;
}

void lily_talk_set_system(lily_talk *t, const char *text)
{
    if (json_array_size(t->messages) && has_role(json_array_get(t->messages, 0), "system"))
        json_array_remove(t->messages, 0);
    if (text) json_array_insert_new(t->messages, 0, json_pack("{s:s, s:s}", "role", "system", "content", text));
}
