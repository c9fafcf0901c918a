/*
 * Prints the box that DNS names; with an argument, what is the best service in the answers of DNS
 * on standard input, of which each follows its length in two bytes.
 */
#include <stdio.h>
#include <stdlib.h>

#define LOOKUP_SECONDS 1 /* a test need not wait longer */
#include "../../../host/find.c"

static void read_answers(void)
{
	unsigned char length[2], *answer;
	struct service best;

	while (fread(length, sizeof(length), 1, stdin) == 1) {
		int n = (int)get16(length);

		/* Allocated with its length, so that the sanitizer notices what is read behind it. */
		answer = malloc((size_t)(n ? n : 1));
		if (!answer || fread(answer, 1, (size_t)n, stdin) != (size_t)n)
			abort();
		if (read_services(answer, n, &best))
			printf("%s:%u\n", best.host, best.port);
		else
			puts("none");
		free(answer);
	}
}

int main(int argc, char **argv)
{
	union address box;
	char text[ADDRESS_TEXT];

	(void)argv;
	if (argc > 1) {
		read_answers();
		return 0;
	}
	if (!find_box(&box)) {
		puts("none");
		return 0;
	}
	address_text(&box, text);
	printf("%s port %u\n", text, port_of(&box));
	return 0;
}
