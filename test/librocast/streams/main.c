/*
 * streams has the members of groups that carry streams, with the device of ../groups/device.c. The
 * box at $ROCAST_BOX has the same hosts in each group. test/librocast/streams_test.go runs it under
 * the sanitizers.
 *
 *   streams sizes      sends streams of many sizes through two pieces of memory
 *   streams waits      sends to a receiver that does not read; prints what the source hears
 *   streams refused    prints what members hear that call what does not fit
 *   streams cut        ends a group in the middle of a stream; prints what the receiver reads
 *   streams late       has a receiver that comes in the middle of a stream; prints what it reads
 *   streams others     sends what is no stream, or comes twice; prints what the receiver reads
 *   streams both       has two members that send streams, one after the other
 *   streams mixed      has two members that send streams to a third one at the same time
 *   streams rooms      uses streams where the device takes no receive, or not enough
 *   streams fallback   sends by single connections
 *   streams spoilt     does so where the fallback comes in the middle of pieces
 */
#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../groups/device.h"

enum { PIECE = ROCAST_PIECE_BYTES, WINDOW = 2 * PIECE, HOSTS = 3, MOST = 7 * PIECE };

static struct rocast *hosts[HOSTS]; /* 127.0.0.1 and so on */
static unsigned char *message, *scratch;
static unsigned send_depth = 8, receive_depth = 8;

static struct rocast_group *enter(int host, const char *name, enum rocast_role role)
{
	struct rocast_membership wanted = { .name = name, .role = role, .members = 2, .give_up_ms = 30000, .send_depth = send_depth,
		.receive_depth = receive_depth };
	struct rocast_group *group;

	if (strcmp(name, "g6") == 0)
		wanted.give_up_ms = 50;
	else
		wanted.without_fallback = 1;
	if (rocast_join(hosts[host], &wanted, &group)) {
		printf("%s\n", rocast_message());
		exit(2);
	}
	return group;
}

static struct rocast_group *join(int host, const char *name, enum rocast_role role)
{
	struct rocast_group *group = enter(host, name, role);

	if (rocast_use_streams(group, WINDOW)) {
		printf("%s\n", rocast_message());
		exit(2);
	}
	return group;
}

static void say(const char *what, int64_t result)
{
	printf("%s: %lld%s%s\n", what, (long long)result, result < 0 ? " " : "", result < 0 ? rocast_message() : "");
}

/* Another message for each number. */
static void write_message(size_t bytes, unsigned number)
{
	for (size_t i = 0; i < bytes; i++)
		message[i] = (unsigned char)(i * 31 + i / PIECE + 7 * number);
}

/* Reads a piece, and says which one it is and whether it has the bytes of the message. */
static int read_piece(const char *who, struct rocast_group *group, unsigned timeout_ms)
{
	struct rocast_piece p;
	int n = rocast_stream_read(group, &p, timeout_ms);

	if (n != 1) {
		say(who, n);
		return n;
	}
	printf("%s: %zu at %llu%s%s\n", who, p.bytes, (unsigned long long)p.offset, p.last ? ", the last" : "",
	       p.offset + p.bytes > MOST || memcmp(p.at, message + p.offset, p.bytes) ? ", and wrong" : "");
	return n;
}

struct reader {
	struct rocast_group *group;
	pthread_t thread;
	size_t bytes, pieces;
	bool right;
};

/* Reads a stream, and compares it with the message. */
static void *read_stream(void *argument)
{
	struct reader *r = argument;
	struct rocast_piece p = { .last = 0 };

	for (r->bytes = r->pieces = 0, r->right = true; !p.last; r->pieces++) {
		if (rocast_stream_read(r->group, &p, 30000) != 1) {
			r->right = false;
			break;
		}
		r->right &= p.offset == r->bytes && p.bytes <= PIECE && (p.bytes > 0 || p.last) && r->bytes + p.bytes <= MOST &&
			    memcmp(p.at, message + p.offset, p.bytes) == 0;
		r->bytes += p.bytes;
	}
	return NULL;
}

/* Sends the message to two receivers, in buffers of so many bytes, which change at once. */
static void send_message(struct rocast_group *source, struct reader readers[2], size_t bytes, size_t buffer)
{
	for (int i = 0; i < 2; i++)
		if (pthread_create(&readers[i].thread, NULL, read_stream, &readers[i]))
			exit(2);
	for (size_t at = 0; at < bytes; at += buffer) {
		size_t n = bytes - at < buffer ? bytes - at : buffer;

		memcpy(scratch, message + at, n);
		if (rocast_stream_write(source, scratch, n, 30000) != (int64_t)n)
			exit(2);
		memset(scratch, 0, n);
	}
	if (rocast_stream_end(source, 30000))
		exit(2);
	for (int i = 0; i < 2; i++) {
		pthread_join(readers[i].thread, NULL);
		if (!readers[i].right || readers[i].bytes != bytes)
			printf("receiver %d has %zu of %zu bytes%s\n", i, readers[i].bytes, bytes, readers[i].right ? "" : ", and they are wrong");
	}
	printf("%zu in %zu and %zu pieces\n", bytes, readers[0].pieces, readers[1].pieces);
}

static void sizes(const char *name)
{
	static const size_t all[] = { 0, 1, PIECE - 1, PIECE, PIECE + 1, WINDOW, WINDOW + 1, MOST };
	struct rocast_group *source = join(0, name, ROCAST_SOURCE);
	struct reader readers[2] = { { .group = join(1, name, ROCAST_RECEIVER) }, { .group = join(2, name, ROCAST_RECEIVER) } };
	struct rocast_progress p, there;
	size_t sum = 0;

	for (unsigned i = 0; i < source->other_count && !source->without_fallback; i++)
		while (port_of(&source->others[i].address) == 0) /* where the others answer */
			(void)rocast_stream_write(source, NULL, 0, 10);
	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		write_message(all[i], i);
		sum += all[i];
		send_message(source, readers, all[i], i % 2 ? MOST : PIECE / 3);
	}
	(void)rocast_progress(source, &p);
	(void)rocast_progress(readers[1].group, &there);
	printf("of %zu bytes %llu were posted, %llu are complete and %llu have come\n", sum, (unsigned long long)p.posted_bytes,
	       (unsigned long long)p.completed_bytes, (unsigned long long)there.received_bytes);
	printf("pinned: %zu bytes\n", hosts[0]->pinned);
	say("leave", rocast_leave(source));
	printf("pinned: %zu bytes\n", hosts[0]->pinned);
}

static void waits(void)
{
	struct rocast_group *source = join(0, "g1", ROCAST_SOURCE), *receiver = join(1, "g1", ROCAST_RECEIVER);
	struct rocast_completion c;

	write_message(MOST, 1);
	read_piece("nothing has come", receiver, 0);
	say("nothing to write", rocast_stream_write(source, NULL, 0, 0));
	say("write", rocast_stream_write(source, message, MOST, 0));
	read_piece("read", receiver, 0);
	say("write", rocast_stream_write(source, message + 2 * PIECE, 3 * PIECE, 0));
	read_piece("read", receiver, 0);
	say("poll", rocast_poll(source, &c, 1));
	say("poll there", rocast_poll(receiver, &c, 1));
	for (int i = 0; i < 2; i++)
		read_piece("read", receiver, 0);
	say("write", rocast_stream_write(source, message + 4 * PIECE, 3 * PIECE, 0));
	say("write", rocast_stream_write(source, message + 6 * PIECE, PIECE, 10));
	say("end", rocast_stream_end(source, 0));
	say("write", rocast_stream_write(source, message, 1, 0));
	read_piece("read", receiver, 0);
	say("end", rocast_stream_end(source, 10));
	for (int i = 0; i < 2; i++)
		read_piece("read", receiver, 0);
	say("end", rocast_stream_end(source, 1000));
	read_piece("read", receiver, 0);
	write_message(MOST, 2);
	say("write", rocast_stream_write(source, message, 3, 0));
	say("end", rocast_stream_end(source, 1000));
	read_piece("read", receiver, 0);
}

static void refused(void)
{
	struct rocast_group *source, *receiver, *small = enter(2, "g2", ROCAST_BOTH);
	struct rocast_completion c;
	struct rocast_memory *memory;
	struct rocast_piece p;

	receive_depth = 6;
	source = enter(0, "g1", ROCAST_SOURCE);
	send_depth = 5;
	receiver = enter(1, "g1", ROCAST_RECEIVER);
	say("no streams", rocast_stream_write(source, message, 1, 0));
	say("no streams", rocast_stream_end(source, 0));
	say("no streams", rocast_stream_read(receiver, &p, 0));
	say("small", rocast_use_streams(source, PIECE - 1));
	if (rocast_register(hosts[0], message, 1, &memory))
		exit(2);
	(void)rocast_send(source, memory, message, 1, 1);
	say("an operation", rocast_use_streams(source, 0));
	if (rocast_register(hosts[1], scratch, 1, &memory) || rocast_receive(receiver, memory, scratch, 1, 1))
		exit(2);
	say("a receive", rocast_use_streams(receiver, 0));
	(void)rocast_poll(source, &c, 0);
	say("a completion", rocast_use_streams(source, 0));
	(void)rocast_wait(receiver, &c, 1, 1000);
	(void)rocast_wait(source, &c, 1, 1000);
	refuse_registrations(EINVAL);
	say("no memory", rocast_use_streams(source, 0));
	refuse_registrations(0);
	hosts[0]->process++;
	say("another process", rocast_use_streams(source, 0) == ROCAST_EFORKED);
	hosts[0]->process--;
	say("all", rocast_use_streams(source, UINT_MAX));
	printf("pinned: %zu pieces\n", hosts[0]->pinned / PIECE);
	say("a default", rocast_use_streams(receiver, 0));
	printf("pinned: %zu pieces\n", hosts[1]->pinned / PIECE);
	say("one piece of both kinds", rocast_use_streams(small, 2 * PIECE - 1));
	printf("pinned: %zu pieces\n", hosts[2]->pinned / PIECE);
	say("again", rocast_use_streams(source, 0));
	say("send", rocast_send(source, NULL, NULL, 0, 1));
	say("write", rocast_write(source, NULL, NULL, 0, 0, 0, 1));
	say("receive", rocast_receive(receiver, NULL, NULL, 0, 1));
	say("a receiver writes", rocast_stream_write(receiver, message, 1, 0));
	say("a receiver ends", rocast_stream_end(receiver, 0));
	say("a source reads", rocast_stream_read(source, &p, 0));
	hosts[1]->process++;
	say("another process", rocast_stream_read(receiver, &p, 0) == ROCAST_EFORKED);
	hosts[1]->process--;
}

static void cut(void)
{
	struct rocast_group *source = join(0, "g1", ROCAST_SOURCE), *receiver = join(1, "g1", ROCAST_RECEIVER);
	struct rocast_completion c;
	int64_t n;

	write_message(MOST, 1);
	say("write", rocast_stream_write(source, message, WINDOW + 9, 0));
	read_piece("read", receiver, 0);
	say("end of the group", rocast_end(source));
	while (read_piece("read", receiver, 10000) > 0)
		;
	(void)read_piece("read", receiver, 0);

	/* What has arrived is read also when it is known that the group has ended. */
	source = join(0, "g3", ROCAST_SOURCE);
	receiver = join(1, "g3", ROCAST_RECEIVER);
	say("write", rocast_stream_write(source, message, WINDOW, 0));
	if (rocast_end(source))
		exit(2);
	while (!receiver->ended)
		(void)rocast_poll(receiver, &c, 1);
	while (read_piece("read", receiver, 0) > 0)
		;

	/* A member hears so that writes. */
	source = join(0, "g2", ROCAST_BOTH);
	receiver = join(1, "g2", ROCAST_BOTH);
	if (rocast_end(source))
		exit(2);
	do
		n = rocast_stream_write(receiver, message, 1, 100);
	while (n == 1);
	say("write", n);
}

static void late(void)
{
	struct rocast_group *source = join(0, "g3", ROCAST_SOURCE), *receiver = join(1, "g3", ROCAST_RECEIVER), *other;

	write_message(MOST, 1);
	say("write", rocast_stream_write(source, message, PIECE + 1, 0));
	read_piece("read", receiver, 0);
	other = join(2, "g3", ROCAST_RECEIVER);
	for (int i = 1; i < 4; i++) {
		say("write", rocast_stream_write(source, message + i * PIECE + 1, PIECE, 0));
		read_piece("read", receiver, 0);
		read_piece("the late one", other, 0);
	}
	say("end", rocast_stream_end(source, 1000));
	read_piece("read", receiver, 0);
	read_piece("the late one", other, 0);
	write_message(MOST, 2);
	say("write", rocast_stream_write(source, message, PIECE + 5, 0));
	read_piece("read", receiver, 0);
	read_piece("the late one", other, 0);
	say("end", rocast_stream_end(source, 1000));
	read_piece("read", receiver, 0);
	read_piece("the late one", other, 0);
}

/* Sends a piece as a source of streams does. */
static void send_as(struct rocast_group *source, struct rocast_memory *memory, uint64_t stream, uint64_t offset, uint32_t bytes, bool last)
{
	struct rocast_completion done;
	struct {
		uint64_t magic, stream, offset;
		uint32_t last, unused;
	} head = { htobe64(UINT64_C(0x726f636173740001)), htobe64(stream), htobe64(offset), htobe32(last), 0 };

	memcpy(scratch, &head, sizeof(head));
	memcpy(scratch + sizeof(head), message + offset, bytes);
	if (rocast_send(source, memory, scratch, sizeof(head) + bytes, 1) || rocast_poll(source, &done, 1) != 1)
		exit(2);
}

/* The device carries no write_immediate, so this is what one leaves. */
static void receive_immediate(void)
{
	struct rocast_group *group = join(1, "g7", ROCAST_RECEIVER);

	group->ready[0] = (struct report){ .completion = { .kind = ROCAST_IMMEDIATE } };
	group->ready_count = group->ready_receives = 1;
	read_piece("an immediate", group, 0);
}

static void others(void)
{
	struct rocast_group *source = enter(0, "g1", ROCAST_SOURCE), *receiver = join(1, "g1", ROCAST_RECEIVER);
	struct rocast_memory *memory;

	if (rocast_register(hosts[0], scratch, 2 * PIECE, &memory))
		exit(2);
	write_message(MOST, 1);
	send_as(source, memory, 7, 0, 10, false);
	read_piece("begins", receiver, 0);
	send_as(source, memory, 7, 0, 10, false);
	read_piece("twice", receiver, 0);
	send_as(source, memory, 7, 10, 5, false);
	read_piece("goes on", receiver, 0);
	send_as(source, memory, 7, 10, 5, false);
	read_piece("twice", receiver, 0);
	send_as(source, memory, 7, 15, 0, true);
	read_piece("ends", receiver, 0);
	send_as(source, memory, 7, 15, 0, true);
	read_piece("twice", receiver, 0);
	send_as(source, memory, 8, 0, 0, true);
	read_piece("nothing", receiver, 0);
	send_as(source, memory, 8, 0, 0, true);
	read_piece("twice", receiver, 0);
	send_as(source, memory, 9, 0, 3, false);
	read_piece("is cut", receiver, 0);
	send_as(source, memory, 10, 0, 4, false);
	read_piece("another", receiver, 0);
	send_as(source, memory, 9, 0, 3, false);
	read_piece("the one before, again", receiver, 0);
	send_as(source, memory, 8, 0, 0, true);
	read_piece("one that had ended, again", receiver, 0);
	send_as(source, memory, 7, 0, 10, false);
	read_piece("an older one, again", receiver, 0);
	send_as(source, memory, 7, 15, 0, true);
	read_piece("the end of that one, again", receiver, 0);
	send_as(source, memory, 10, 4, 1, false);
	read_piece("the present one goes on", receiver, 0);
	send_as(source, memory, 9, 2, 1, false);
	read_piece("of the one before", receiver, 0);
	send_as(source, memory, 10, 6, 1, false);
	read_piece("a piece is lacking", receiver, 0);
	read_piece("and later", receiver, 0);
	for (uint32_t bytes = 31; bytes < 34; bytes += 2) {
		struct rocast_group *one = enter(0, bytes == 31 ? "g2" : "g3", ROCAST_SOURCE), *two = join(1, bytes == 31 ? "g2" : "g3", ROCAST_RECEIVER);

		send_as(one, memory, 11, 0, 1, true);
		read_piece("a stream", two, 0);
		send_as(one, memory, 12, 0, 1, true);
		read_piece("a stream", two, 0);
		scratch[bytes == 31 ? 0 : 7] ^= bytes != 31;
		if (rocast_send(one, memory, scratch, bytes, 1))
			exit(2);
		read_piece("no stream", two, 0);
	}
	receive_immediate();
}

static void both(void)
{
	struct rocast_group *one = join(0, "g1", ROCAST_BOTH), *two = join(1, "g1", ROCAST_BOTH);

	for (unsigned turn = 0; turn < 3; turn++) {
		struct rocast_group *from = turn % 2 ? two : one, *to = turn % 2 ? one : two;

		write_message(MOST, turn);
		say("write", rocast_stream_write(from, message, PIECE + 3, 0));
		read_piece("read", to, 0);
		say("end", rocast_stream_end(from, 1000));
		read_piece("read", to, 0);
	}
	/* A member keeps what comes while it writes. */
	write_message(MOST, 3);
	say("write", rocast_stream_write(one, message, WINDOW, 0));
	say("write", rocast_stream_write(two, message, PIECE, 0));
	say("end", rocast_stream_end(two, 0));
	for (int i = 0; i < 3; i++) {
		read_piece("one", one, 0);
		read_piece("two", two, 0);
	}
	say("end", rocast_stream_end(two, 1000));
	say("end", rocast_stream_end(one, 1000));
	read_piece("two", two, 0);
}

static void mixed(void)
{
	enum { STREAMS = 9 }; /* one more than are remembered that have not ended */
	struct rocast_group *one = join(0, "g3", ROCAST_BOTH), *two = join(1, "g3", ROCAST_BOTH), *three = join(2, "g3", ROCAST_BOTH);
	struct rocast_memory *memory;

	write_message(MOST, 1);
	say("one writes", rocast_stream_write(one, message, PIECE, 0));
	say("two writes", rocast_stream_write(two, message, PIECE, 0));
	read_piece("of one", three, 0);
	read_piece("of two", three, 0);
	say("two writes", rocast_stream_write(two, message + PIECE, PIECE, 0));
	read_piece("of two", three, 0);
	say("one writes", rocast_stream_write(one, message + PIECE, PIECE, 0));
	read_piece("of one", three, 0);
	read_piece("and later", three, 0);
	for (int i = 0; i < 2; i++) {
		read_piece("one", one, 0);
		read_piece("two", two, 0);
	}

	if (rocast_register(hosts[0], scratch, 2 * PIECE, &memory))
		exit(2);
	one = enter(0, "g1", ROCAST_SOURCE);
	two = join(1, "g1", ROCAST_RECEIVER);
	for (uint64_t stream = 1; stream <= STREAMS; stream++) {
		send_as(one, memory, stream, 0, 1, false);
		read_piece("begins", two, 0);
	}
	send_as(one, memory, 1, 1, 1, false);
	read_piece("the first goes on", two, 0);
}

static void rooms(void)
{
	struct rocast_group *group = enter(0, "g1", ROCAST_BOTH);
	struct rocast_piece p;

	take_receives(0);
	say("no receive", rocast_use_streams(group, WINDOW));
	printf("pinned: %zu pieces\n", hosts[0]->pinned / PIECE);
	say("a stream", rocast_stream_write(group, message, 1, 0));
	take_receives(UINT_MAX);
	say("again", rocast_use_streams(group, WINDOW));
	group = enter(0, "g2", ROCAST_BOTH);
	take_receives(1);
	say("one receive", rocast_use_streams(group, WINDOW));
	take_receives(UINT_MAX);
	say("write", rocast_stream_write(group, message, 1, 0));
	say("end", rocast_stream_end(group, 0));
	say("read", rocast_stream_read(group, &p, 0));
	printf("pinned: %zu pieces\n", hosts[0]->pinned / PIECE);
	say("leave", rocast_leave(group));
	printf("pinned: %zu pieces\n", hosts[0]->pinned / PIECE);
}

int main(int argc, char **argv)
{
	static const char *const addresses[HOSTS] = { "127.0.0.1", "127.0.0.2", "127.0.0.3" };
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = { { "waits", waits }, { "refused", refused }, { "cut", cut }, { "late", late }, { "others", others }, { "both", both },
		    { "mixed", mixed }, { "rooms", rooms } };

	message = malloc(MOST);
	scratch = malloc(MOST);
	if (argc != 2 || !message || !scratch)
		return 2;
	for (int i = 0; i < HOSTS; i++)
		hosts[i] = new_host(addresses[i]);
	if (strcmp(argv[1], "sizes") == 0) {
		sizes("g3");
	} else if (strcmp(argv[1], "fallback") == 0 || strcmp(argv[1], "spoilt") == 0) {
		let_groups_work(false);
		spoil_receives(argv[1][0] == 's' ? WINDOW / PIECE : 0);
		sizes("g6");
	}
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (strcmp(argv[1], all[i].name) == 0)
			all[i].run();
	for (int i = 0; i < HOSTS; i++)
		rocast_close(hosts[i]);
	free(message);
	free(scratch);
	return 0;
}
