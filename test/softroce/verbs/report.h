/* What the program says: one JSON object in a line, each with an "event". */
#ifndef ROCAST_REPORT_H
#define ROCAST_REPORT_H

/* report prints a line; format gives what follows the event's name, ", \"x\":%d" or "". */
__attribute__((format(printf, 2, 3))) void report(const char *event, const char *format, ...);

/* report_error says that a command failed; the program goes on. */
__attribute__((format(printf, 1, 2))) void report_error(const char *format, ...);

/* report_errno is report_error for a call that failed with an error number. */
void report_errno(const char *what, int error);

#endif
