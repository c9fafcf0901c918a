#include "report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void report(const char *event, const char *format, ...)
{
	va_list values;

	printf("{\"event\":\"%s\"", event);
	va_start(values, format);
	vprintf(format, values);
	va_end(values);
	puts("}");
	fflush(stdout);
}

void report_error(const char *format, ...)
{
	char text[256];
	va_list values;

	va_start(values, format);
	vsnprintf(text, sizeof(text), format, values);
	va_end(values);
	/* Only the text of a command can have a quote or a backslash. JSON does not allow them. */
	for (char *c = text; *c; c++)
		if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ')
			*c = '?';
	report("error", ",\"message\":\"%s\"", text);
}

void report_errno(const char *what, int error)
{
	report_error("%s: %s", what, strerror(error));
}
