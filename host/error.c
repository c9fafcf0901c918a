/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

#ifndef ROCAST_VERSION
#define ROCAST_VERSION "unknown"
#endif

static _Thread_local char message[512];

int fail(enum rocast_error error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	return error;
}

const char *rocast_message(void)
{
	return message;
}

const char *rocast_version(void)
{
	return ROCAST_VERSION;
}
