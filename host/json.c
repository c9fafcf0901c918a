/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 16 };

static const char *blanks(const char *at)
{
	return at + strspn(at, " \t\r\n");
}

/* The end of a string, or NULL. */
static const char *end_of_string(const char *at)
{
	for (at++; *at != '"'; at++) {
		if ((unsigned char)*at < ' ' || (*at == '\\' && *++at == '\0'))
			return NULL;
	}
	return at + 1;
}

static const char *end_of_word(const char *at)
{
	size_t length = strspn(at, "+-.0123456789abcdefghijklmnopqrstuvwxyzE");

	return length > 0 ? at + length : NULL;
}

static const char *end_of_value(const char *at, unsigned depth);

/* The end of the elements of an array, or of the members of an object. */
static const char *end_of_list(const char *at, unsigned depth)
{
	char close = *at == '{' ? '}' : ']';

	at = blanks(at + 1);
	if (*at == close)
		return at + 1;
	for (;;) {
		if (close == '}') {
			if (*at != '"' || !(at = end_of_string(at)) || *(at = blanks(at)) != ':')
				return NULL;
			at = blanks(at + 1);
		}
		if (!(at = end_of_value(at, depth)))
			return NULL;
		at = blanks(at);
		if (*at == close)
			return at + 1;
		if (*at != ',')
			return NULL;
		at = blanks(at + 1);
	}
}

static const char *end_of_value(const char *at, unsigned depth)
{
	switch (*at) {
	case '"':
		return end_of_string(at);
	case '{':
	case '[':
		return depth < MAX_DEPTH ? end_of_list(at, depth + 1) : NULL;
	default:
		return end_of_word(at);
	}
}

bool json_valid(const char *text)
{
	const char *end = end_of_value(blanks(text), 0);

	return end && *blanks(end) == '\0';
}

const char *json_member(const char *object, const char *key)
{
	size_t length = strlen(key);
	const char *at;

	if (!object || *(object = blanks(object)) != '{')
		return NULL;
	for (at = blanks(object + 1); *at == '"';) {
		bool found = strncmp(at + 1, key, length) == 0 && at[1 + length] == '"';

		at = blanks(end_of_string(at));
		at = blanks(at + 1);
		if (found)
			return at;
		at = blanks(end_of_value(at, 0));
		if (*at == ',')
			at = blanks(at + 1);
	}
	return NULL;
}

const char *json_first(const char *array)
{
	if (!array || *array != '[')
		return NULL;
	array = blanks(array + 1);
	return *array == ']' ? NULL : array;
}

const char *json_next(const char *element)
{
	element = blanks(end_of_value(element, 0));
	return *element == ',' ? blanks(element + 1) : NULL;
}

uint64_t json_number(const char *value)
{
	if (!value)
		return 0;
	return strtoull(*value == '"' ? value + 1 : value, NULL, 0);
}

bool json_true(const char *value)
{
	return value && strncmp(value, "true", 4) == 0;
}

void json_text(const char *value, char *buffer, size_t size)
{
	size_t n = 0;

	if (value && *value == '"') {
		for (value++; *value != '"' && n + 1 < size; value++) {
			if (*value == '\\') {
				value++;
				if (*value == 'u') {
					size_t digits = strspn(value + 1, "0123456789abcdefABCDEF");

					value += digits < 4 ? digits : 4;
					buffer[n++] = '?';
					continue;
				}
				buffer[n++] = *value == 'n' || *value == 't' || *value == 'r' ? ' ' : *value;
				continue;
			}
			buffer[n++] = *value;
		}
	}
	buffer[n] = '\0';
}
