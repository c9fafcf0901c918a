/* The output of the program: one JSON object in each line, with the member "event". */
#ifndef ROCAST_REPORT_H
#define ROCAST_REPORT_H

/*
 * report prints a line. format makes the members behind "event", such as ",\"x\":%d". It may be
 * empty.
 */
__attribute__((format(printf, 2, 3))) void report(const char *event, const char *format, ...);

/* report_error reports that a command failed. The program continues. */
__attribute__((format(printf, 1, 2))) void report_error(const char *format, ...);

/* report_errno is report_error for a call that failed with an error number. */
void report_errno(const char *what, int error);

#endif
