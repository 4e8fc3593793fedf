/* log.h - lines for the person who runs the program, on standard error: as text, or as JSON for programs that collect
 * them. */
#ifndef LILY_BASE_LOG_H
#define LILY_BASE_LOG_H

#include <stdbool.h>

enum lily_log_level { LILY_LOG_ERROR, LILY_LOG_WARN, LILY_LOG_INFO, LILY_LOG_DEBUG };
enum lily_log_format { LILY_LOG_TEXT, LILY_LOG_JSON };

void lily_log_set_level(enum lily_log_level level);       /* default LILY_LOG_INFO */
void lily_log_set_format(enum lily_log_format format);    /* default LILY_LOG_TEXT */
bool lily_log_shows(enum lily_log_level level);
enum lily_log_format lily_log_format_now(void);

/* One line "lily: TEXT", or {"time": …, "level": …, "message": TEXT}; written whole, safe from several threads. */
void lily_log(enum lily_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same with further members for JSON: `members` is ",\"name\":value…" or "". */
void lily_log_event(enum lily_log_level level, const char *text, const char *members);

#endif
