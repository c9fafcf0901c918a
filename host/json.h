/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads JSON texts of the box without copying them. A value is a pointer to its first byte in a
 * text that json_valid has accepted; NULL stands for a value that is absent, and has no members.
 */
#ifndef ROCAST_JSON_H
#define ROCAST_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether a text is one JSON value, nested at most as deep as an answer of the box is. */
bool json_valid(const char *text);

/* The value of a member of an object. */
const char *json_member(const char *object, const char *key);

/* The first element of an array, and the one behind an element. NULL: there is none. */
const char *json_first(const char *array);
const char *json_next(const char *element);

/* A number, or a string with a number such as "0x10"; 0 if it is neither. */
uint64_t json_number(const char *value);

bool json_true(const char *value);

/* Copies a string, cut to the size of the buffer. An escape becomes one character, at best '?'. */
void json_text(const char *value, char *buffer, size_t size);

#endif
