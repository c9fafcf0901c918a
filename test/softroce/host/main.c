/*
 * rocast-host is a member of a group by librocast (host/rocast.h). It reads commands from stdin,
 * one in each line, and writes JSON lines to stdout.
 *
 *   rocast-host box=10.77.0.254:7472 name=g1 role=source|receiver|both members=4 [bytes=4096] [count=256]
 *               [give_up=3000] [patience=30000]
 *
 *   send [count=] [seed=]       send messages, each into the next slot of all receivers: by turns a
 *                               WRITE with immediate, a SEND, and a WRITE before a WRITE with immediate
 *   expect count=               answer when so many messages were received since the start
 *   source                      become the source
 *   way
 *   leave
 *
 * bytes is the size of a slot, and count the number of slots. The first line is joined, without a
 * command. Each command is answered by its name in the past, or by error. Every answer has a hash
 * of all messages that the program has received, and of all that it has sent, in their order.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../../host/rocast.h"
#include "../verbs/command.h"
#include "../verbs/report.h"
#include "../verbs/sha256.h"

enum { DEPTH = 32, BATCH = 16 };

struct chain {
	char hash[SHA256_HEX_BYTES];
	uint64_t count;
};

static struct rocast_group *group;
static struct rocast_memory *region, *outgoing, *incoming;
static unsigned char *slots, *out, *in;
static size_t bytes, slot_count;
static struct chain received, sent;
static uint64_t done, failed, posted, receive_number;

static const char *way(void)
{
	return rocast_way(group) == ROCAST_MULTICAST ? "multicast" : "unicast";
}

static void answer(const char *event)
{
	struct rocast_about about;

	rocast_describe(group, &about);
	report(event, ",\"way\":\"%s\",\"fallbacks\":%u,\"returns\":%u,\"members\":%u,\"received\":%" PRIu64 ",\"receivedHash\":\"%s\","
	       "\"sent\":%" PRIu64 ",\"sentHash\":\"%s\",\"failed\":%" PRIu64, way(), about.fallbacks, about.returns, about.members,
	       received.count, received.hash, sent.count, sent.hash, failed);
}

/* Appends a message to a chain of hashes. */
static void append(struct chain *chain, uint32_t number, const unsigned char *message)
{
	static unsigned char text[SHA256_HEX_BYTES + sizeof(uint32_t) + (1 << 20)];

	memcpy(text, chain->hash, SHA256_HEX_BYTES);
	memcpy(text + SHA256_HEX_BYTES, &number, sizeof(number));
	memcpy(text + SHA256_HEX_BYTES + sizeof(number), message, bytes);
	sha256_hex(text, SHA256_HEX_BYTES + sizeof(number) + bytes, chain->hash);
	chain->count++;
}

static int post_receive(void)
{
	uint64_t id = receive_number++;

	return rocast_receive(group, incoming, in + (id % DEPTH) * bytes, bytes, id);
}

static void take(const struct rocast_completion *c)
{
	switch (c->kind) {
	case ROCAST_DONE:
		done++;
		break;
	case ROCAST_FAILED:
		failed++;
		break;
	case ROCAST_IMMEDIATE:
		append(&received, c->immediate, slots + (c->immediate % slot_count) * bytes);
		if (post_receive())
			report_error("%s", rocast_message());
		break;
	case ROCAST_RECEIVED:
		append(&received, UINT32_MAX, in + (c->id % DEPTH) * bytes);
		if (post_receive())
			report_error("%s", rocast_message());
		break;
	}
}

/* Takes completions, and waits for some at most so long. */
static bool work(unsigned ms)
{
	struct rocast_completion completions[BATCH];
	int n = rocast_wait(group, completions, BATCH, ms);

	if (n < 0)
		report_error("%s", rocast_message());
	for (int i = 0; i < n; i++)
		take(&completions[i]);
	return n >= 0;
}

static void fill(unsigned char *at, uint64_t seed)
{
	for (size_t i = 0; i < bytes; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		at[i] = (unsigned char)(seed >> 56);
	}
}

/*
 * Posts one message. The bytes of a WRITE go in two halves, of which the second one has the number.
 */
static int post(uint32_t number, unsigned char *from)
{
	uint64_t at = (number % slot_count) * bytes;
	size_t half = bytes / 2;
	int error;

	switch (number % 3) {
	case 0:
		return rocast_write_immediate(group, outgoing, from, bytes, 0, at, number, 0);
	case 1:
		return rocast_send(group, outgoing, from, bytes, 0);
	}
	if ((error = rocast_write(group, outgoing, from, half, 0, at, 0)))
		return error;
	posted++;
	while ((error = rocast_write_immediate(group, outgoing, from + half, bytes - half, 0, at + half, number, 0)) == ROCAST_EFULL)
		if (!work(1000))
			return ROCAST_EBROKEN;
	return error;
}

static void send_messages(const struct command *command)
{
	uint64_t count = number_field(command, "count", 1), seed = number_field(command, "seed", 1);

	for (uint64_t i = 0; i < count; i++) {
		uint32_t number = (uint32_t)sent.count;
		unsigned char *from = out + (number % DEPTH) * bytes;
		int error;

		while (posted - done - failed > DEPTH / 2) /* the bytes of a slot must not change before */
			if (!work(1000))
				return;
		fill(from, seed + number);
		while ((error = post(number, from)) == ROCAST_EFULL)
			if (!work(1000))
				return;
		if (error) {
			report_error("%s", rocast_message());
			return;
		}
		posted++;
		append(&sent, number % 3 == 1 ? UINT32_MAX : number, from);
		work(0);
	}
	while (posted > done + failed)
		if (!work(1000))
			return;
	answer("sent");
}

static void *allocate(size_t size, struct rocast *host, struct rocast_memory **memory)
{
	void *at = calloc(1, size);

	if (!at || rocast_register(host, at, size, memory)) {
		report_error("%s", rocast_message());
		exit(1);
	}
	return at;
}

static bool obey(char *line)
{
	struct command command;

	if (!parse_command(line, &command)) {
		report_error("%s is no command", line);
	} else if (strcmp(command.verb, "send") == 0) {
		send_messages(&command);
	} else if (strcmp(command.verb, "expect") == 0) {
		while (received.count < number_field(&command, "count", 1))
			if (!work(1000))
				return false;
		answer("expected");
	} else if (strcmp(command.verb, "source") == 0) {
		if (rocast_become_source(group, 10000))
			report_error("%s", rocast_message());
		else
			answer("is source");
	} else if (strcmp(command.verb, "way") == 0) {
		answer("goes");
	} else if (strcmp(command.verb, "leave") == 0) {
		return false;
	} else {
		report_error("%s is no command", command.verb);
	}
	return true;
}

/* Works until there is a command, and obeys it. */
static void serve(void)
{
	char line[256];
	size_t length = 0;

	for (;;) {
		struct pollfd wanted[] = { { .fd = STDIN_FILENO, .events = POLLIN }, { .fd = rocast_descriptor(group), .events = POLLIN } };
		char c;

		if (!work(0))
			return;
		(void)poll(wanted, 2, 100);
		if (!wanted[0].revents)
			continue;
		while (read(STDIN_FILENO, &c, 1) == 1) {
			if (c != '\n') {
				if (length + 1 < sizeof(line))
					line[length++] = c;
				continue;
			}
			line[length] = '\0';
			length = 0;
			if (!obey(line))
				return;
			break;
		}
		if (wanted[0].revents & POLLHUP)
			return;
	}
}

int main(int argc, char **argv)
{
	struct command options = { 0 };
	struct rocast *host;
	struct rocast_settings settings = { 0 };
	struct rocast_membership wanted = { 0 };
	const char *role;

	for (int i = 1; i < argc; i++)
		if (!add_field(&options, argv[i]))
			return 2;
	bytes = number_field(&options, "bytes", 4096);
	slot_count = number_field(&options, "count", 4 * DEPTH);
	settings.box = text_field(&options, "box", NULL);
	settings.patience_ms = (unsigned)number_field(&options, "patience", 30000);
	role = text_field(&options, "role", "receiver");
	if (rocast_open(&settings, &host)) {
		report_error("%s", rocast_message());
		return 1;
	}
	out = allocate(DEPTH * bytes, host, &outgoing);
	in = allocate(DEPTH * bytes, host, &incoming);
	slots = allocate(slot_count * bytes, host, &region);
	wanted = (struct rocast_membership){
		.name = text_field(&options, "name", "g1"), .members = (unsigned)number_field(&options, "members", 2),
		.role = strcmp(role, "source") == 0 ? ROCAST_SOURCE : strcmp(role, "both") == 0 ? ROCAST_BOTH : ROCAST_RECEIVER,
		.regions = &region, .region_count = 1, .send_depth = 2 * DEPTH, .receive_depth = DEPTH,
		.give_up_ms = (unsigned)number_field(&options, "give_up", 3000),
		.without_fallback = (int)number_field(&options, "alone", 0),
	};
	if (rocast_join(host, &wanted, &group)) {
		report_error("%s", rocast_message());
		rocast_close(host);
		return 1;
	}
	for (int i = 0; i < DEPTH && wanted.role != ROCAST_SOURCE; i++)
		if (post_receive())
			report_error("%s", rocast_message());
	answer("joined");
	serve();
	if (rocast_leave(group))
		report_error("%s", rocast_message());
	else
		report("left", "%s", "");
	rocast_close(host);
	free(out);
	free(in);
	free(slots);
	return 0;
}
