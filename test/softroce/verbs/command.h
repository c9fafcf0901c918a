/* One line of input: a verb and fields, "write va=0x1000 rkey=5 bytes=4096 count=10". */
#ifndef ROCAST_COMMAND_H
#define ROCAST_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

enum { MAX_FIELDS = 16 };

struct field {
	const char *name;
	const char *value;
};

struct command {
	const char *verb;
	struct field fields[MAX_FIELDS];
	int count;
};

/*
 * parse_command splits line in place and keeps pointers into it. False when a word is no field, or one too many.
 */
bool parse_command(char *line, struct command *command);
bool add_field(struct command *command, char *word);

bool has_field(const struct command *command, const char *name);
const char *text_field(const struct command *command, const char *name, const char *otherwise);
uint64_t number_field(const struct command *command, const char *name, uint64_t otherwise);

#endif
