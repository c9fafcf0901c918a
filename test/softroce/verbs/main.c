/*
 * rocast-verbs has one RC queue pair. It reads commands from stdin, one in each line, and writes
 * JSON lines to stdout.
 *
 *   rocast-verbs ip=10.77.0.1 [psn=0xfffff0] [bytes=2097152] [va=0x10000000] [spare=3]
 *
 *   connect ip= qpn= psn= [mtu=1024] [timeout=14] [retry=7] [rnr_retry=7] [rnr_timer=12]
 *   fill seed=                          fill the region with random bytes that depend on the seed only
 *   recv [count=] bytes=                post receive work requests
 *   write|read va= rkey= bytes= [count=] [depth=] [imm=]
 *   send bytes= [count=] [depth=] [imm=]
 *   fetch_add va= rkey= [count=]
 *                                       last=read makes the last message a READ; the same with other verbs
 *   hash [bytes=]                       SHA-256 of the region or of its first bytes
 *   fence by=key|qp                     let the peer write no more: the region gets another R_Key, or
 *                                       the QP loses its access
 *   load file=                          read a file into the region, as far as there is room
 *   save file= [bytes=]                 write the region or its first bytes to a file
 *   state
 *   quit
 *
 * The program reads commands while a transfer runs. It answers every command with state, filled,
 * posted, done, hash, fenced, loaded, saved or error. The first line is local, without a command. A
 * completion line reports each message that was received and each work request that failed.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "endpoint.h"
#include "report.h"
#include "sha256.h"
#include "transfer.h"

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static void fill(const struct endpoint *ep, const struct command *command)
{
	uint64_t state = number_field(command, "seed", 0);

	for (size_t done = 0; done < ep->region_bytes; done += sizeof(uint64_t)) {
		uint64_t random = next_random(&state);
		size_t rest = ep->region_bytes - done;

		memcpy(ep->region + done, &random, rest < sizeof(random) ? rest : sizeof(random));
	}
	report("filled", ",\"bytes\":%zu", ep->region_bytes);
}

static void hash(const struct endpoint *ep, const struct command *command)
{
	uint64_t bytes = number_field(command, "bytes", ep->region_bytes);
	char hex[SHA256_HEX_BYTES];

	if (bytes > ep->region_bytes) {
		report_error("hash: the region has %zu bytes", ep->region_bytes);
		return;
	}
	sha256_hex(ep->region, bytes, hex);
	report("hash", ",\"bytes\":%" PRIu64 ",\"sha256\":\"%s\"", bytes, hex);
}

static void load(const struct endpoint *ep, const struct command *command)
{
	const char *name = text_field(command, "file", "");
	FILE *file = fopen(name, "r");
	size_t bytes;

	if (!file) {
		report_errno(name, errno);
		return;
	}
	bytes = fread(ep->region, 1, ep->region_bytes, file);
	if (ferror(file))
		report_errno(name, errno);
	else
		report("loaded", ",\"bytes\":%zu", bytes);
	fclose(file);
}

static void save(const struct endpoint *ep, const struct command *command)
{
	const char *name = text_field(command, "file", "");
	uint64_t bytes = number_field(command, "bytes", ep->region_bytes);
	FILE *file;
	bool written;

	if (bytes > ep->region_bytes) {
		report_error("save: the region has %zu bytes", ep->region_bytes);
		return;
	}
	if (!(file = fopen(name, "w"))) {
		report_errno(name, errno);
		return;
	}
	written = fwrite(ep->region, 1, bytes, file) == bytes;
	if (fclose(file) || !written)
		report_errno(name, errno);
	else
		report("saved", ",\"bytes\":%" PRIu64, bytes);
}

/* run_command returns false if the program has to end. */
static bool run_command(struct endpoint *ep, struct transfers *t, char *line)
{
	struct command command;

	if (!parse_command(line, &command))
		report_error("%s: fields are name=value, at most %d", command.verb, MAX_FIELDS);
	else if (is_job(command.verb))
		start_job(ep, t, &command);
	else if (strcmp(command.verb, "recv") == 0)
		post_receives(ep, t, &command);
	else if (strcmp(command.verb, "connect") == 0)
		connect_endpoint(ep, &command);
	else if (strcmp(command.verb, "fill") == 0)
		fill(ep, &command);
	else if (strcmp(command.verb, "hash") == 0)
		hash(ep, &command);
	else if (strcmp(command.verb, "fence") == 0)
		fence_endpoint(ep, &command);
	else if (strcmp(command.verb, "load") == 0)
		load(ep, &command);
	else if (strcmp(command.verb, "save") == 0)
		save(ep, &command);
	else if (strcmp(command.verb, "state") == 0)
		report_state(ep);
	else if (strcmp(command.verb, "quit") == 0)
		return false;
	else if (*command.verb)
		report_error("unknown command %s", command.verb);
	return true;
}

struct input {
	char text[4096];
	size_t used;
};

/* read_commands runs all complete lines. It returns false if the program has to end. */
static bool read_commands(struct endpoint *ep, struct transfers *t, struct input *in)
{
	ssize_t n = read(STDIN_FILENO, in->text + in->used, sizeof(in->text) - in->used);
	char *newline;

	if (n <= 0)
		return n < 0 && errno == EINTR;
	in->used += (size_t)n;
	while ((newline = memchr(in->text, '\n', in->used))) {
		size_t line = (size_t)(newline - in->text) + 1;

		*newline = '\0';
		if (!run_command(ep, t, in->text))
			return false;
		memmove(in->text, in->text + line, in->used - line);
		in->used -= line;
	}
	if (in->used == sizeof(in->text))
		report_error("a command is at most %zu bytes", sizeof(in->text));
	return in->used < sizeof(in->text);
}

static void serve(struct endpoint *ep)
{
	struct transfers t = { 0 };
	struct input in = { .used = 0 };
	struct pollfd fds[] = {
		{ .fd = STDIN_FILENO, .events = POLLIN },
		{ .fd = ep->channel->fd, .events = POLLIN },
	};

	for (;;) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return;
		if (fds[1].revents)
			drain_completions(ep, &t);
		if (fds[0].revents && !read_commands(ep, &t, &in))
			return;
	}
}

int main(int argc, char **argv)
{
	struct command options = { .verb = "" };
	struct endpoint ep;

	for (int i = 1; i < argc; i++) {
		if (!add_field(&options, argv[i])) {
			fprintf(stderr, "usage: rocast-verbs ip=ADDRESS [name=value ...]; see the top of main.c\n");
			return 2;
		}
	}
	if (!open_endpoint(&ep, &options))
		return 1;
	fcntl(ep.channel->fd, F_SETFL, O_NONBLOCK);
	report_local(&ep);
	serve(&ep);
	/* The kernel releases everything. */
	return 0;
}
