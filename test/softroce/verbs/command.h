/* One line of input: a verb and fields, such as "write va=0x1000 rkey=5 bytes=4096 count=10". */
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
 * parse_command splits line in place. command keeps pointers into line. The result is false if a
 * word is not a field, or if there are too many fields.
 */
bool parse_command(char *line, struct command *command);
bool add_field(struct command *command, char *word);

bool has_field(const struct command *command, const char *name);
const char *text_field(const struct command *command, const char *name, const char *otherwise);
uint64_t number_field(const struct command *command, const char *name, uint64_t otherwise);

#endif
