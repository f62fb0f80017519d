/* One line per message on stderr: "oriel[process]: level: text". */
#ifndef ORIEL_BASE_LOG_H
#define ORIEL_BASE_LOG_H

enum oriel_log_level { ORIEL_LOG_ERROR, ORIEL_LOG_WARN, ORIEL_LOG_INFO, ORIEL_LOG_DEBUG };

void oriel_log(enum oriel_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The process number that log lines carry; -1 (the default) carries the pid. */
void oriel_log_set_process(int process_id);
/* Messages above `level` are dropped; ORIEL_LOG_WARN until config has been read. */
void oriel_log_set_level(enum oriel_log_level level);
/* By level; NULL ends it. */
extern const char *const oriel_log_levels[];

#endif
