/* log.h - lines for the person who runs the program, on standard error. */
#ifndef LILY_BASE_LOG_H
#define LILY_BASE_LOG_H

enum lily_log_level { LILY_LOG_ERROR, LILY_LOG_WARN, LILY_LOG_INFO, LILY_LOG_DEBUG };

void lily_log_set_level(enum lily_log_level level);    /* default LILY_LOG_INFO */
/* One line "lily: TEXT", written whole; safe from several threads. */
void lily_log(enum lily_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
