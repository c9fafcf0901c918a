#include "command.h"

#include <stdlib.h>
#include <string.h>

bool add_field(struct command *command, char *word)
{
	char *equals = strchr(word, '=');

	if (!equals || command->count == MAX_FIELDS)
		return false;
	*equals = '\0';
	command->fields[command->count++] = (struct field){ .name = word, .value = equals + 1 };
	return true;
}

bool parse_command(char *line, struct command *command)
{
	static const char spaces[] = " \t\r\n";
	char *save = NULL;
	char *word = strtok_r(line, spaces, &save);

	*command = (struct command){ .verb = word ? word : "" };
	while (word && (word = strtok_r(NULL, spaces, &save)))
		if (!add_field(command, word))
			return false;
	return true;
}

const char *text_field(const struct command *command, const char *name, const char *otherwise)
{
	for (int i = 0; i < command->count; i++)
		if (strcmp(command->fields[i].name, name) == 0)
			return command->fields[i].value;
	return otherwise;
}

bool has_field(const struct command *command, const char *name)
{
	return text_field(command, name, NULL) != NULL;
}

uint64_t number_field(const struct command *command, const char *name, uint64_t otherwise)
{
	const char *value = text_field(command, name, NULL);

	return value ? strtoull(value, NULL, 0) : otherwise;
}
