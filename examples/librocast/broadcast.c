/*
 * broadcast brings a megabyte from one host to three others: docs/host.md.
 *
 *   cc broadcast.c $(pkg-config --cflags --libs rocast) -o broadcast
 */
#include <err.h>
#include <rocast.h>
#include <stdbool.h>
#include <string.h>

static char buffer[1 << 20];

int main(int argc, char **argv)
{
	struct rocast_completion done;
	struct rocast_group *group;
	struct rocast_memory *memory;
	struct rocast *host;
	int n;
	bool is_source = argc > 1 && strcmp(argv[1], "source") == 0;

	if (rocast_open(NULL, &host) || rocast_register(host, buffer, sizeof(buffer), &memory))
		errx(1, "%s", rocast_message());
	struct rocast_membership wanted = {
		.name = "g1", .members = 4, .role = is_source ? ROCAST_SOURCE : ROCAST_RECEIVER, .regions = &memory, .region_count = 1,
	};
	if (rocast_join(host, &wanted, &group))
		errx(1, "%s", rocast_message());
	if (is_source)
		rocast_write_immediate(group, memory, buffer, sizeof(buffer), 0, 0, 1, 0);
	else
		rocast_receive(group, NULL, NULL, 0, 0);
	while ((n = rocast_wait(group, &done, 1, 1000)) == 0)
		;
	if (n < 0 || done.kind == ROCAST_FAILED)
		errx(1, "%s", rocast_message());
	rocast_close(host);
}
