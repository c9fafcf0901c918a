/*
 * rocast-host is a member of a group by librocast (host/rocast.h). It reads commands from stdin,
 * one in each line, and writes JSON lines to stdout.
 *
 *   rocast-host box=10.77.0.254:7472 name=g1 role=source|receiver|both members=4 [bytes=4096] [count=256]
 *               [give_up=3000] [patience=30000] [second=g2 second_role=source|receiver|both]
 *               [window=1048576]
 *
 *   send [count=] [seed=]       send messages, each into the next slot of all receivers: by turns a
 *                               WRITE with immediate, a SEND, and a WRITE before a WRITE with immediate
 *   expect count=               answer when so many messages were received since the start
 *   stream bytes= [seed=]       send a stream; with window only
 *   read                        answer when a stream has come; with window only
 *   source                      become the source
 *   way
 *   leave                       leave all groups, and end
 *   end                         end the first group for all its members, leave the second, and end
 *
 * With window its groups carry streams and nothing else, and so many bytes are on their way at
 * most. A stream counts as messages of ROCAST_PIECE_BYTES, of which the last is shorter.
 *
 * With second the program is in a group of this name too, which it joins after the first. A command
 * with second=1 is for that one.
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

enum { DEPTH = 32, BATCH = 16, WRITTEN = 100003 };

struct chain {
	char hash[SHA256_HEX_BYTES];
	uint64_t count;
};

/* A membership, with what it has sent and received. */
struct member {
	struct rocast_group *group;
	struct rocast_memory *region, *outgoing, *incoming;
	unsigned char *slots, *out, *in;
	struct chain received, sent;
	uint64_t done, failed, posted, receive_number;
};

static struct member members[2], *self = members; /* self is the one whose command is obeyed */
static unsigned member_count = 1;
static bool ends_first;
static size_t bytes, slot_count, window;

static const char *way(void)
{
	return rocast_way(self->group) == ROCAST_MULTICAST ? "multicast" : "unicast";
}

static void answer(const char *event)
{
	struct rocast_about about;

	rocast_describe(self->group, &about);
	report(event, ",\"way\":\"%s\",\"fallbacks\":%u,\"returns\":%u,\"members\":%u,\"received\":%" PRIu64 ",\"receivedHash\":\"%s\","
	       "\"sent\":%" PRIu64 ",\"sentHash\":\"%s\",\"failed\":%" PRIu64, way(), about.fallbacks, about.returns, about.members,
	       self->received.count, self->received.hash, self->sent.count, self->sent.hash, self->failed);
}

/* Appends a message to a chain of hashes. */
static void append(struct chain *chain, uint32_t number, const unsigned char *message, size_t length)
{
	static unsigned char text[SHA256_HEX_BYTES + sizeof(uint32_t) + (1 << 20)];

	memcpy(text, chain->hash, SHA256_HEX_BYTES);
	memcpy(text + SHA256_HEX_BYTES, &number, sizeof(number));
	memcpy(text + SHA256_HEX_BYTES + sizeof(number), message, length);
	sha256_hex(text, SHA256_HEX_BYTES + sizeof(number) + length, chain->hash);
	chain->count++;
}

static int post_receive(void)
{
	uint64_t id = self->receive_number++;

	return rocast_receive(self->group, self->incoming, self->in + (id % DEPTH) * bytes, bytes, id);
}

static void take(const struct rocast_completion *c)
{
	switch (c->kind) {
	case ROCAST_DONE:
		self->done++;
		break;
	case ROCAST_FAILED:
		self->failed++;
		break;
	case ROCAST_IMMEDIATE:
		append(&self->received, c->immediate, self->slots + (c->immediate % slot_count) * bytes, bytes);
		if (post_receive())
			report_error("%s", rocast_message());
		break;
	case ROCAST_RECEIVED:
		append(&self->received, UINT32_MAX, self->in + (c->id % DEPTH) * bytes, bytes);
		if (post_receive())
			report_error("%s", rocast_message());
		break;
	}
}

/* Takes completions of self, and waits for some at most so long. */
static bool work_for_self(unsigned ms)
{
	struct rocast_completion completions[BATCH];
	int n = rocast_wait(self->group, completions, BATCH, ms);

	if (n < 0)
		report_error("%s", rocast_message());
	for (int i = 0; i < n; i++)
		take(&completions[i]);
	return n >= 0;
}

/* Takes completions of all groups, and waits for some of self at most so long. */
static bool work(unsigned ms)
{
	struct member *waits = self;
	bool works = true;

	for (self = members; works && self < members + member_count; self++)
		works = work_for_self(0);
	self = waits;
	return works && (ms == 0 || work_for_self(ms));
}

static void fill(unsigned char *at, size_t length, uint64_t seed)
{
	for (size_t i = 0; i < length; i++) {
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
		return rocast_write_immediate(self->group, self->outgoing, from, bytes, 0, at, number, 0);
	case 1:
		return rocast_send(self->group, self->outgoing, from, bytes, 0);
	}
	if ((error = rocast_write(self->group, self->outgoing, from, half, 0, at, 0)))
		return error;
	self->posted++;
	while ((error = rocast_write_immediate(self->group, self->outgoing, from + half, bytes - half, 0, at + half, number, 0)) == ROCAST_EFULL)
		if (!work(1000))
			return ROCAST_EBROKEN;
	return error;
}

static void send_messages(const struct command *command)
{
	uint64_t count = number_field(command, "count", 1), seed = number_field(command, "seed", 1);

	for (uint64_t i = 0; i < count; i++) {
		uint32_t number = (uint32_t)self->sent.count;
		unsigned char *from = self->out + (number % DEPTH) * bytes;
		int error;

		while (self->posted - self->done - self->failed > DEPTH / 2) /* the bytes of a slot must not change before */
			if (!work(1000))
				return;
		fill(from, bytes, seed + number);
		while ((error = post(number, from)) == ROCAST_EFULL)
			if (!work(1000))
				return;
		if (error) {
			report_error("%s", rocast_message());
			return;
		}
		self->posted++;
		append(&self->sent, number % 3 == 1 ? UINT32_MAX : number, from, bytes);
		work(0);
	}
	while (self->posted > self->done + self->failed)
		if (!work(1000))
			return;
	answer("sent");
}

/* Writes a stream in portions of another size than that of its pieces. */
static void send_stream(const struct command *command)
{
	size_t length = number_field(command, "bytes", 0), at = 0, piece;
	unsigned char *all = malloc(length + 1);
	int error;

	if (!all) {
		report_error("no memory");
		return;
	}
	fill(all, length, number_field(command, "seed", 1));
	do {
		piece = length - at < ROCAST_PIECE_BYTES ? length - at : ROCAST_PIECE_BYTES;
		append(&self->sent, (uint32_t)(at / ROCAST_PIECE_BYTES), all + at, piece);
		at += piece;
	} while (piece == ROCAST_PIECE_BYTES);
	for (at = 0; at < length;) {
		int64_t n = rocast_stream_write(self->group, all + at, length - at < WRITTEN ? length - at : WRITTEN, 1000);

		if (n < 0) {
			report_error("%s", rocast_message());
			free(all);
			return;
		}
		at += (size_t)n;
	}
	free(all); /* the library has copied it */
	while ((error = rocast_stream_end(self->group, 1000)) == ROCAST_ETIMEOUT)
		;
	if (error)
		report_error("%s", rocast_message());
	else
		answer("streamed");
}

static void read_stream(void)
{
	struct rocast_piece piece = { .last = 0 };

	while (!piece.last) {
		int n = rocast_stream_read(self->group, &piece, 1000);

		if (n < 0) {
			report_error("%s", rocast_message());
			return;
		}
		if (n > 0)
			append(&self->received, (uint32_t)(piece.offset / ROCAST_PIECE_BYTES), piece.at, piece.bytes);
	}
	answer("read");
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

	self = members;
	if (!parse_command(line, &command)) {
		report_error("%s is no command", line);
		return true;
	}
	self += number_field(&command, "second", 0) > 0 && member_count > 1;
	if (strcmp(command.verb, "send") == 0) {
		send_messages(&command);
	} else if (strcmp(command.verb, "expect") == 0) {
		while (self->received.count < number_field(&command, "count", 1))
			if (!work(1000))
				return false;
		answer("expected");
	} else if (strcmp(command.verb, "stream") == 0) {
		send_stream(&command);
	} else if (strcmp(command.verb, "read") == 0) {
		read_stream();
	} else if (strcmp(command.verb, "source") == 0) {
		if (rocast_become_source(self->group, 10000))
			report_error("%s", rocast_message());
		else
			answer("is source");
	} else if (strcmp(command.verb, "way") == 0) {
		answer("goes");
	} else if (strcmp(command.verb, "leave") == 0) {
		return false;
	} else if (strcmp(command.verb, "end") == 0) {
		ends_first = true;
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
		struct pollfd wanted[] = { { .fd = STDIN_FILENO, .events = POLLIN }, { .fd = rocast_descriptor(members[0].group), .events = POLLIN },
					   { .fd = rocast_descriptor(members[member_count - 1].group), .events = POLLIN } };
		char c;

		if (!work(0))
			return;
		(void)poll(wanted, 3, 100);
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

static enum rocast_role role_of(const char *text)
{
	return strcmp(text, "source") == 0 ? ROCAST_SOURCE : strcmp(text, "both") == 0 ? ROCAST_BOTH : ROCAST_RECEIVER;
}

/* Makes self a member of a group. */
static bool join(struct rocast *host, const struct command *options, const char *name, const char *role)
{
	struct rocast_membership wanted = {
		.name = name, .members = (unsigned)number_field(options, "members", 2), .role = role_of(role), .regions = &self->region, .region_count = 1,
		.send_depth = 2 * DEPTH, .receive_depth = DEPTH, .give_up_ms = (unsigned)number_field(options, "give_up", 3000),
		.without_fallback = (int)number_field(options, "alone", 0),
	};

	self->out = allocate(DEPTH * bytes, host, &self->outgoing);
	self->in = allocate(DEPTH * bytes, host, &self->incoming);
	self->slots = allocate(slot_count * bytes, host, &self->region);
	if (rocast_join(host, &wanted, &self->group)) {
		report_error("%s", rocast_message());
		return false;
	}
	if (window > 0) {
		if (rocast_use_streams(self->group, window))
			report_error("%s", rocast_message());
		return true;
	}
	for (int i = 0; i < DEPTH && wanted.role != ROCAST_SOURCE; i++)
		if (post_receive())
			report_error("%s", rocast_message());
	return true;
}

int main(int argc, char **argv)
{
	struct command options = { 0 };
	struct rocast *host;
	struct rocast_settings settings = { 0 };
	const char *second;
	bool left = true;

	for (int i = 1; i < argc; i++)
		if (!add_field(&options, argv[i]))
			return 2;
	bytes = number_field(&options, "bytes", 4096);
	slot_count = number_field(&options, "count", 4 * DEPTH);
	window = number_field(&options, "window", 0);
	settings.box = text_field(&options, "box", NULL);
	settings.patience_ms = (unsigned)number_field(&options, "patience", 30000);
	second = text_field(&options, "second", NULL);
	if (rocast_open(&settings, &host)) {
		report_error("%s", rocast_message());
		return 1;
	}
	if (!join(host, &options, text_field(&options, "name", "g1"), text_field(&options, "role", "receiver"))) {
		rocast_close(host);
		return 1;
	}
	if (second) {
		self = &members[member_count++];
		if (!join(host, &options, second, text_field(&options, "second_role", "receiver"))) {
			rocast_close(host);
			return 1;
		}
	}
	self = members;
	answer("joined");
	serve();
	for (self = members; self < members + member_count; self++) {
		if (ends_first && self == members ? rocast_end(self->group) : rocast_leave(self->group)) {
			report_error("%s", rocast_message());
			left = false;
		}
	}
	if (left)
		report("left", "%s", "");
	rocast_close(host);
	for (self = members; self < members + member_count; self++) {
		free(self->out);
		free(self->in);
		free(self->slots);
	}
	return 0;
}
