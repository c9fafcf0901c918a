/*
 * groups has members of several groups in one process, with the device of device.c. The box at
 * $ROCAST_BOX has two hosts in each group, 127.0.0.1 and 127.0.0.2, and a third one, 127.0.0.3, in
 * g6; this program is all of them. test/librocast/groups_test.go runs it under the sanitizers.
 *
 *   groups several   is in three groups, uses them side by side, leaves one and hears that another
 *                    one has ended; prints what each of them does
 *   groups end       ends groups while their members use single connections: g4 by the source, g5 by
 *                    a member that the source sends to, and g6 by one of two; prints what the others
 *                    hear
 *   groups refused   is in a group that the box lets nobody end; prints what it hears
 *   groups policy    joins groups with policies of operators, and sets a traffic class
 *   groups secrets   shows secrets to a box that refuses it and says what it was shown
 *   groups policies  says policies to a box that refuses it and says what it was told
 *   groups memory    registers more than it may pin, read-only memory, and memory that stands for that
 *                    of a GPU; prints what it hears
 *   groups progress  sends by the group and by single connections to two receivers, of which one takes
 *                    nothing for a while; prints how far the library says that it has come
 *   groups threads   is in two groups, first with a thread for each and then with one for both; prints
 *                    what arrives, and whose sentences the threads hear
 *   groups rate      sends at several rates, while the clock stands still or jumps; prints what goes when
 *   groups held      sends an operation that the rate holds back over two fallbacks; prints what arrives
 *   groups outside   joins groups that the box refuses for several reasons; prints what it hears
 */
#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device.h"

enum { BYTES = 64, DEPTH = 4, HOSTS = 3 };

static unsigned char bytes[HOSTS][BYTES];
static struct rocast *hosts[HOSTS]; /* 127.0.0.1 and so on */
static struct rocast_memory *memories[HOSTS];

static struct rocast_group *join(int host, const char *name, enum rocast_role role)
{
	struct rocast_membership wanted = {
		.name = name, .role = role, .members = 2, .regions = &memories[host], .region_count = 1, .send_depth = DEPTH, .receive_depth = DEPTH,
		.give_up_ms = 50, .without_fallback = name[1] < '4',
	};
	struct rocast_group *group;

	if (rocast_join(hosts[host], &wanted, &group)) {
		printf("%s\n", rocast_message());
		exit(2);
	}
	return group;
}

static void be_refused(const char *name)
{
	struct rocast_membership wanted = {
		.name = name, .role = ROCAST_RECEIVER, .members = 2, .regions = &memories[0], .region_count = 1, .send_depth = DEPTH, .receive_depth = DEPTH,
	};
	struct rocast_group *group;

	printf("%s: %s\n", name, rocast_join(hosts[0], &wanted, &group) ? rocast_message() : "ok");
}

static void try_policy(const char *name, enum rocast_role role, bool without_fallback)
{
	struct rocast_membership wanted = {
		.name = name, .role = role, .members = 2, .regions = &memories[0], .region_count = 1, .without_fallback = without_fallback,
		.patience_ms = strcmp(name, "all") ? 0 : 500,
	};
	struct rocast_group *group;

	if (rocast_join(hosts[0], &wanted, &group)) {
		printf("%s: %s\n", name, rocast_message());
		return;
	}
	printf("%s: done at %u, class %u\n", name, rocast_acknowledged_by(group), traffic_class());
	(void)rocast_leave(group);
}

static void begin(void)
{
	static const char *const addresses[] = { "127.0.0.1", "127.0.0.2", "127.0.0.3" };

	for (int i = 0; i < HOSTS; i++) {
		hosts[i] = new_host(addresses[i]);
		if (rocast_register(hosts[i], bytes[i], BYTES, &memories[i]))
			exit(2);
	}
}

static void end(void)
{
	for (int i = 0; i < HOSTS; i++)
		rocast_close(hosts[i]);
}

/* Sends one byte, which is the first one of the host's memory. */
static int send_byte(struct rocast_group *group, int host, unsigned char byte, uint64_t id)
{
	bytes[host][0] = byte;
	return rocast_send(group, memories[host], bytes[host], 1, id);
}

/* Posts a receive into the byte of the host's memory that has the number of its id. */
static void receive(struct rocast_group *group, int host, uint64_t id)
{
	if (rocast_receive(group, memories[host], bytes[host] + id, 1, id))
		exit(2);
}

/* Takes completions until there are so many, or no way is left, and prints them. */
static void take(const char *name, struct rocast_group *group, int host, int count)
{
	struct rocast_completion c;
	int n = 1;

	printf("%s:", name);
	while (count > 0 && (n = rocast_wait(group, &c, 1, 10000)) > 0) {
		count--;
		if (c.kind == ROCAST_DONE)
			printf(" %d done", (int)c.id);
		else if (c.kind == ROCAST_RECEIVED)
			printf(" %d is %c", (int)c.id, bytes[host][c.id]);
		else
			printf(" %d failed", (int)c.id);
	}
	printf("%s%s\n", n < 0 ? "; " : "", n < 0 ? rocast_message() : n == 0 ? " nothing" : "");
}

static void say(const char *what, int error)
{
	printf("%s: %s\n", what, error ? rocast_message() : "ok");
}

static bool is_readable(const struct rocast_group *group)
{
	struct pollfd wanted = { .fd = rocast_descriptor(group), .events = POLLIN };

	return poll(&wanted, 1, 0) > 0;
}

static void several(void)
{
	struct rocast_group *one = join(0, "g1", ROCAST_SOURCE), *two = join(0, "g2", ROCAST_RECEIVER), *three = join(0, "g3", ROCAST_RECEIVER);
	struct rocast_group *one_there = join(1, "g1", ROCAST_RECEIVER), *two_there = join(1, "g2", ROCAST_SOURCE), *three_there = join(1, "g3", ROCAST_SOURCE);
	struct rocast_membership again = { .name = "g2", .role = ROCAST_RECEIVER, .members = 2 };
	static const char *const named[] = { "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.20", "::ffff:127.0.0.2", "" };
	struct rocast_group *none;
	struct rocast_completion c;

	say("joined twice", rocast_join(hosts[0], &again, &none));
	printf("members beside 127.0.0.1:");
	for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++)
		printf(" %d", rocast_has_member(one, named[i]));
	printf("\n");
	for (uint64_t i = 0; i < DEPTH; i++) {
		receive(one_there, 1, 10 + i);
		receive(two, 0, 20 + i);
		receive(three, 0, 30 + i);
	}
	/* Each group completes its own, whichever is asked first, and has a queue of its own. */
	for (uint64_t i = 0; i < DEPTH; i++)
		(void)send_byte(one, 0, (unsigned char)('a' + i), 1 + i);
	say("g1 is full", send_byte(one, 0, 'x', 9));
	(void)rocast_poll(two, &c, 0);
	(void)rocast_poll(three, &c, 0);
	(void)send_byte(two_there, 1, 'p', 5);
	printf("readable: %d %d\n", is_readable(two), is_readable(three));
	(void)send_byte(two_there, 1, 'q', 6);
	(void)send_byte(three_there, 1, 'z', 7);
	take("g3", three, 0, 1);
	take("g2", two, 0, 2);
	take("g1", one, 0, DEPTH);
	take("g1 there", one_there, 1, DEPTH);
	take("g2 there", two_there, 1, 2);
	take("g3 there", three_there, 1, 1);

	/* The one that is left takes nothing with it. */
	say("still a region", rocast_unregister(memories[0]));
	say("leave g2", rocast_leave(two));
	say("still a region", rocast_unregister(memories[0]));
	(void)send_byte(three_there, 1, 'y', 8);
	take("g3", three, 0, 1);

	/* Nor does the one that ends. */
	receive(one_there, 1, 14);
	receive(one_there, 1, 15);
	say("a receiver ends g1", rocast_end(one_there));
	(void)send_byte(one, 0, 'e', 10);
	take("g1", one, 0, 1);
	say("end g1", rocast_end(one));
	take("g1 there", one_there, 1, 3);
	say("receive", rocast_receive(one_there, NULL, NULL, 0, 0));
	(void)send_byte(three_there, 1, 'x', 9);
	take("g3", three, 0, 1);
}

/* A member that works in a thread of its own until its group has ended. */
struct follower {
	struct rocast_group *group;
	pthread_t thread;
	int received, failed;
	char heard[200];
};

static void *follow(void *argument)
{
	struct follower *f = argument;
	struct rocast_completion c;
	int n = 0;

	for (int patience = 20; patience > 0 && n >= 0; patience -= n == 0) {
		if ((n = rocast_wait(f->group, &c, 1, 1000)) > 0) {
			f->received += c.kind == ROCAST_RECEIVED;
			f->failed += c.kind == ROCAST_FAILED;
		}
	}
	snprintf(f->heard, sizeof(f->heard), "%s", n < 0 ? rocast_message() : "nothing");
	return NULL;
}

static void begin_following(struct follower *f)
{
	if (pthread_create(&f->thread, NULL, follow, f))
		exit(2);
}

static void end_following(struct follower *f)
{
	pthread_join(f->thread, NULL);
	printf("received %d, failed %d; %s\n", f->received, f->failed, f->heard);
}

/* Waits until a member has heard where all others answer. */
static void hear_of_all(struct rocast_group *group)
{
	struct rocast_completion c;

	for (unsigned i = 0; i < group->other_count; i++)
		while (port_of(&group->others[i].address) == 0)
			(void)rocast_wait(group, &c, 1, 10);
}

/* The source, which has fallen back, ends the group. The receiver is left with a receive. */
static void end_by_source(void)
{
	struct rocast_group *source = join(0, "g4", ROCAST_SOURCE);
	struct follower receiver = { .group = join(1, "g4", ROCAST_RECEIVER) };

	hear_of_all(source);
	receive(receiver.group, 1, 10);
	receive(receiver.group, 1, 11);
	begin_following(&receiver);
	(void)send_byte(source, 0, 'a', 1);
	take("g4", source, 0, 1);
	printf("by %s\n", rocast_way(source) == ROCAST_UNICAST ? "single connections" : "the group");
	say("end", rocast_end(source));
	end_following(&receiver);
}

/* A member to which another one sends by a single connection ends the group. */
static void end_by_receiver(const char *name, int others)
{
	struct follower sender = { .group = join(0, name, ROCAST_BOTH) }, third = { 0 };
	struct rocast_group *group = join(1, name, ROCAST_BOTH);

	if (others > 1) {
		third.group = join(2, name, ROCAST_BOTH);
		receive(third.group, 2, 10);
		receive(third.group, 2, 11);
		begin_following(&third);
	}
	hear_of_all(sender.group);
	receive(group, 1, 10);
	(void)send_byte(sender.group, 0, 'a', 1);
	begin_following(&sender);
	take(name, group, 1, 1);
	say("end", rocast_end(group));
	end_following(&sender);
	if (others > 1)
		end_following(&third);
}

static void say_progress(const char *what, const struct rocast_group *group)
{
	struct rocast_progress p;
	int error = rocast_progress(group, &p);

	printf("%s: %d, posted %d, completed %d, received %d, slowest \"%s\" lacks %d\n", what, error, (int)p.posted_bytes, (int)p.completed_bytes,
	       (int)p.received_bytes, p.slowest, (int)p.slowest_lacks);
}

/* A receiver that posts its receives when it is told. */
struct laggard {
	struct rocast_group *group;
	int host;
	atomic_bool may_receive;
	pthread_t thread;
};

static void *lag(void *argument)
{
	struct laggard *l = argument;
	struct rocast_completion c;
	unsigned received = 0, posted = 0;

	while (received < 2) {
		for (; posted < 2 && atomic_load(&l->may_receive); posted++)
			receive(l->group, l->host, 10 + posted);
		received += rocast_wait(l->group, &c, 1, 1) > 0;
	}
	return NULL;
}

static void progress(void)
{
	struct rocast_group *source = join(0, "g1", ROCAST_SOURCE), *receiver = join(1, "g1", ROCAST_RECEIVER);
	struct laggard others[] = { { .host = 1 }, { .host = 2 } };
	struct rocast_progress p = { 0 };
	struct rocast_completion none;
	struct link incoming;

	receive(receiver, 1, 10);
	receive(receiver, 1, 11);
	say_progress("joined", source);
	(void)send_byte(source, 0, 'a', 1);
	(void)send_byte(source, 0, 'b', 2);
	(void)rocast_send(source, memories[0], bytes[0], 30, 3);
	say_progress("posted", source);
	take("g1", source, 0, 2);
	say_progress("one waits", source);
	(void)rocast_send(source, memories[1], bytes[0], 5, 4);
	say_progress("one was refused", source);
	take("g1 there", receiver, 1, 2);
	say_progress("there", receiver);
	hosts[0]->process++;
	say_progress("another process", source);
	hosts[0]->process--;
	take("g1", source, 0, 1);
	say_progress("it has failed", source);

	let_groups_work(false);
	source = join(0, "g6", ROCAST_BOTH);
	for (int i = 0; i < 2; i++)
		others[i].group = join(others[i].host, "g6", ROCAST_BOTH);
	hear_of_all(source);
	for (int i = 0; i < 2; i++)
		if (pthread_create(&others[i].thread, NULL, lag, &others[i]))
			exit(2);
	(void)rocast_send(source, memories[0], bytes[0], 1, 1);
	(void)rocast_send(source, NULL, NULL, 0, 2);
	say_progress("by the group", source);
	while (outgoing_links(source) == 0)
		(void)rocast_wait(source, &none, 0, 1);
	say_progress("no receiver", source);
	atomic_store(&others[0].may_receive, true);
	while (p.slowest[0] == '\0') {
		(void)rocast_wait(source, &none, 0, 1);
		(void)rocast_progress(source, &p);
	}
	/* A connection by which another member sends says nothing of what this one has sent. */
	incoming = (struct link){ .group = source, .ready = true, .next = source->links };
	source->links = &incoming;
	say_progress("one receiver", source);
	source->links = incoming.next;
	atomic_store(&others[1].may_receive, true);
	take("g6", source, 0, 2);
	say_progress("both", source);
	source->allowed -= 2; /* as after a fallback, when the receivers have what was on its way */
	say("rate", rocast_set_rate(source, 1));
	(void)rocast_write(source, memories[0], bytes[0], 10, 0, 0, 3);
	(void)rocast_write(source, NULL, NULL, 0, 0, 0, 4);
	printf("%g bytes go\n", source->paced_bytes);
	take("g6", source, 0, 1);
	printf("%d go before their time\n", rocast_wait(source, &none, 1, 20));
	say("no rate", rocast_set_rate(source, 0));
	take("g6", source, 0, 1);
	for (int i = 0; i < 2; i++)
		pthread_join(others[i].thread, NULL);
}

/* A group whose members, and their hosts, belong to one thread. */
struct own {
	const char *name;
	pthread_t thread;
	unsigned arrived;
	char heard[200];
	struct rocast *hosts[2];
	unsigned char *bytes;
};

static void *use_alone(void *argument)
{
	enum { MESSAGES = 300 };
	struct own *own = argument;
	struct rocast *host[] = { new_host("127.0.0.1"), new_host("127.0.0.2") };
	unsigned char *byte = calloc(2, 1);
	struct rocast_memory *memory[2];
	struct rocast_group *group[2];
	struct rocast_completion c;

	for (int i = 0; i < 2; i++) {
		struct rocast_membership wanted = { .name = own->name, .role = i ? ROCAST_RECEIVER : ROCAST_SOURCE, .members = 2, .without_fallback = 1 };

		if (!byte || rocast_register(host[i], &byte[i], 1, &memory[i]) || rocast_join(host[i], &wanted, &group[i]))
			exit(2);
	}
	for (unsigned i = 0; i < MESSAGES; i++) {
		byte[0] = (unsigned char)(i + (unsigned)own->name[1]);
		if (rocast_receive(group[1], memory[1], &byte[1], 1, i) || rocast_send(group[0], memory[0], &byte[0], 1, i) ||
		    rocast_wait(group[1], &c, 1, 30000) != 1 || c.id != i)
			break;
		own->arrived += byte[1] == byte[0];
		if (rocast_wait(group[0], &c, 1, 30000) != 1 || c.kind != ROCAST_DONE || c.id != i)
			break;
	}
	if (rocast_send(group[1], NULL, NULL, 0, 0) == ROCAST_EARGUMENT)
		snprintf(own->heard, sizeof(own->heard), "%s", rocast_message());
	for (int i = 0; i < 2; i++)
		own->hosts[i] = host[i];
	own->bytes = byte;
	return NULL;
}

static void threads(void)
{
	static const unsigned char text[ROCAST_PIECE_BYTES + 1] = "a stream";
	struct own all[] = { { .name = "g7" }, { .name = "g8" } };
	struct rocast_group *source, *receiver, *plain, *plain_there;
	struct rocast_piece p = { .last = 0 };
	size_t bytes_read = 0;

	for (int i = 0; i < 2; i++)
		if (pthread_create(&all[i].thread, NULL, use_alone, &all[i]))
			exit(2);
	for (int i = 0; i < 2; i++) {
		pthread_join(all[i].thread, NULL);
		printf("%s: %u; %s\n", all[i].name, all[i].arrived, all[i].heard);
		rocast_close(all[i].hosts[0]);
		rocast_close(all[i].hosts[1]);
		free(all[i].bytes);
	}

	/* A host has a stream in one group, and messages in both directions in another. */
	source = join(0, "g1", ROCAST_SOURCE);
	receiver = join(1, "g1", ROCAST_RECEIVER);
	plain = join(0, "g2", ROCAST_BOTH);
	plain_there = join(1, "g2", ROCAST_BOTH);
	say("streams", rocast_use_streams(source, ROCAST_PIECE_BYTES));
	say("streams", rocast_use_streams(receiver, ROCAST_PIECE_BYTES));
	receive(plain, 0, 10);
	receive(plain_there, 1, 20);
	printf("write: %d\n", (int)rocast_stream_write(source, text, sizeof(text), 0));
	(void)send_byte(plain, 0, 'a', 1);
	(void)send_byte(plain_there, 1, 'b', 2);
	take("g2", plain, 0, 2);
	take("g2 there", plain_there, 1, 2);
	printf("write: %d\n", (int)rocast_stream_write(source, text + ROCAST_PIECE_BYTES, 1, 0));
	(void)rocast_stream_end(source, 0);
	while (!p.last && rocast_stream_read(receiver, &p, 1000) == 1)
		bytes_read += memcmp(p.at, text + p.offset, p.bytes) ? 0 : p.bytes;
	say("end", rocast_stream_end(source, 1000));
	printf("read: %zu\n", bytes_read);
	say("leave g1", rocast_leave(source));
	receive(plain, 0, 11);
	(void)send_byte(plain_there, 1, 'c', 3);
	take("g2", plain, 0, 1);
}

static int64_t began;

/* Sets the clock to so many microseconds after the beginning, and prints what goes then. */
static void at(struct rocast_group *group, int64_t us)
{
	struct rocast_completion c;
	bool due = timer_at() > 0 && timer_at() <= began + us * 1000;
	struct pollfd wanted = { .fd = rocast_descriptor(group), .events = POLLIN };

	set_clock(began + us * 1000);
	/* Whoever waits for the descriptor is woken. */
	printf("at %lld us%s:", (long long)us, due && poll(&wanted, 1, 10000) == 1 ? ", which the descriptor tells" : "");
	while (rocast_poll(group, &c, 1) > 0)
		printf(" %d", (int)c.id);
	if (timer_at() > 0)
		printf(", the next at %lld us", (long long)((timer_at() - began) / 1000));
	printf("\n");
}

static void rate(void)
{
	struct rocast_group *source = join(0, "g1", ROCAST_SOURCE), *receiver = join(1, "g1", ROCAST_RECEIVER);
	uint64_t id = 1;

	say("a receiver", rocast_set_rate(receiver, 1));
	hosts[0]->process++;
	printf("another process: %d\n", rocast_set_rate(source, 1));
	hosts[0]->process--;
	began = now_ms() * 1000000;
	set_clock(began);
	say("rate", rocast_set_rate(source, 1000));
	at(source, 0);
	for (; id <= 2; id++)
		(void)rocast_write(source, memories[0], bytes[0], 30, 0, 0, id);
	at(source, 0);
	at(source, 19999);
	at(source, 20000);
	for (; id <= 4; id++)
		(void)rocast_write(source, memories[0], bytes[0], 30, 0, 0, id);
	at(source, 49000);
	at(source, 57000);  /* 7 ms late, which does not count */
	at(source, 110000); /* 30 ms late, of which 10 do not count */
	for (; id <= 7; id++)
		(void)rocast_write(source, memories[0], bytes[0], id == 6 ? 0 : 30, 0, 0, id);
	at(source, 129000);
	at(source, 130000); /* what has no bytes takes no time */
	say("faster", rocast_set_rate(source, 10000));
	at(source, 130000);
	for (; id <= 9; id++)
		(void)rocast_write(source, memories[0], bytes[0], 30, 0, 0, id);
	say("a byte a second", rocast_set_rate(source, 1));
	at(source, 140000);
	say("the most", rocast_set_rate(source, UINT64_MAX));
	at(source, 140000);
	source->paced_bytes = 1e30; /* so many connections, so slow */
	say("never", rocast_set_rate(source, 1));
	(void)rocast_write(source, memories[0], bytes[0], 30, 0, 0, id);
	at(source, 1000000000);
	say("none", rocast_set_rate(source, 0));
	at(source, 1000000000);
	say("leave", rocast_leave(source));
	set_clock(0);
}

/* A member that sends when it is told, and counts what arrives. */
struct partner {
	struct rocast_group *group;
	atomic_bool may_send, stop;
	atomic_int way;
	unsigned arrived;
	pthread_t thread;
};

static void *take_part(void *argument)
{
	struct partner *p = argument;
	struct rocast_completion c;
	bool sent = false, stop = false;
	int n;

	while (!stop) {
		stop = atomic_load(&p->stop);
		if (!sent && atomic_load(&p->may_send))
			sent = send_byte(p->group, 1, 'm', 5) == 0;
		while ((n = rocast_wait(p->group, &c, 1, 1)) > 0)
			p->arrived += c.kind == ROCAST_RECEIVED;
		atomic_store(&p->way, rocast_way(p->group));
	}
	return NULL;
}

/*
 * The rate holds an operation back while the group breaks, works and breaks again. Meanwhile the
 * other member has had a message of the group, which has the number that the operation had first.
 */
static void held(void)
{
	struct rocast_group *one = join(0, "g9", ROCAST_BOTH);
	struct partner two = { .group = join(1, "g9", ROCAST_BOTH) };
	struct rocast_completion none;

	let_groups_work(false);
	hear_of_all(one);
	hear_of_all(two.group);
	receive(one, 0, 20);
	if (rocast_receive(two.group, memories[1], bytes[1], BYTES, 10) || pthread_create(&two.thread, NULL, take_part, &two))
		exit(2);
	say("rate", rocast_set_rate(one, 1));
	(void)rocast_send(one, memories[0], bytes[0], BYTES, 1);
	while (outgoing_links(one) == 0)
		(void)rocast_wait(one, &none, 0, 1);
	printf("by single connections: %u\n", one->fallbacks);
	let_groups_work(true);
	one->try_at = 0;
	while (rocast_way(one) == ROCAST_UNICAST || atomic_load(&two.way) == ROCAST_UNICAST)
		(void)rocast_wait(one, &none, 0, 1);
	printf("by the group: %u\n", one->returns);
	atomic_store(&two.may_send, true);
	take("one", one, 0, 1);
	let_groups_work(false);
	say("probe", rocast_become_source(one, 10000));
	one->try_at = INT64_MAX;
	printf("by single connections: %u\n", one->fallbacks);
	say("no rate", rocast_set_rate(one, 0));
	take("one", one, 0, 1);
	atomic_store(&two.stop, true);
	pthread_join(two.thread, NULL);
	printf("two: %u\n", two.arrived);
}

/* May pin so much, whoever starts it. */
static void pin_at_most(rlim_t bytes)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	struct rlimit limit;

	if (syscall(SYS_capget, &header, data) || getrlimit(RLIMIT_MEMLOCK, &limit))
		exit(2);
	data[0].effective &= ~(1u << CAP_IPC_LOCK);
	limit.rlim_cur = bytes;
	if (syscall(SYS_capset, &header, data) || setrlimit(RLIMIT_MEMLOCK, &limit))
		exit(2);
}

/* Registers memory beyond the limit, as the kernel counts it. */
static void pin_too_much(unsigned char *at, size_t page)
{
	struct rocast_memory *first, *second;

	pin_at_most(64 << 10);
	say("40 KiB", rocast_register(hosts[0], at + 1, 10 * page - 1, &first));
	refuse_registrations(ENOMEM);
	say("24 KiB more", rocast_register(hosts[0], at, 6 * page, &second));
	say("and a byte", rocast_register(hosts[0], at + page - 1, 6 * page, &second));
	say("to send", rocast_register_to_send(hosts[0], at, 7 * page, &second));
	pin_elsewhere(50);
	say("and elsewhere", rocast_register(hosts[0], at, 7 * page, &second));
	pin_elsewhere(0);
	say("less", rocast_unregister(first));
	say("40 KiB again", rocast_register(hosts[0], at, 10 * page, &second));
	say("17 pages", rocast_register(hosts[0], at, 17 * page, &second));
	let_lock(true);
	say("17 pages of root", rocast_register(hosts[0], at, 17 * page, &second));
	let_lock(false);
	refuse_registrations(EPERM);
	pin_at_most(0);
	say("nothing may be pinned", rocast_register(hosts[0], at, 1, &second));
	refuse_registrations(EINVAL);
	say("another error", rocast_register(hosts[0], at, 17 * page, &second));
	refuse_registrations(0);
}

static void try_memory(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char *at = mmap(NULL, 20 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = memfd_create("gpu", MFD_CLOEXEC);
	struct rocast_group *source, *receiver;
	struct rocast_memory *read_only, *gpu;

	if (at == MAP_FAILED || fd < 0 || ftruncate(fd, (off_t)(3 * page)) || pwrite(fd, "xyz", 3, (off_t)page + 7) != 3)
		exit(2);
	for (int i = 0; i < HOSTS; i++)
		if (rocast_unregister(memories[i]))
			exit(2);
	pin_too_much(at, page);

	memcpy(at, "abc", 3);
	if (mprotect(at, page, PROT_READ))
		exit(2);
	say("read-only", rocast_register(hosts[0], at, 3, &memories[0]));
	say("to send", rocast_register_to_send(hosts[0], at, 3, &read_only));
	memories[0] = read_only;
	be_refused("g1");
	if (rocast_register(hosts[0], bytes[0], BYTES, &memories[0]) || rocast_register(hosts[1], bytes[1], BYTES, &memories[1]))
		exit(2);
	source = join(0, "g1", ROCAST_BOTH);
	receiver = join(1, "g1", ROCAST_RECEIVER);
	say("receive", rocast_receive(source, read_only, at, 3, 1));
	for (uint64_t id = 10; id < 13; id++)
		receive(receiver, 1, id);
	for (uint64_t i = 0; i < 3; i++)
		(void)rocast_send(source, read_only, at + i, 1, 1 + i);
	take("g1", source, 0, 3);
	take("g1 there", receiver, 1, 3);
	if (munmap(at + page, page))
		exit(2);
	say("nothing there", rocast_register_to_send(hosts[0], at + page, 1, &gpu));

	say("of a GPU", rocast_register_dmabuf(hosts[0], fd, page + 7, 3, &gpu));
	for (uint64_t id = 20; id < 23; id++)
		receive(receiver, 1, id);
	for (uint64_t i = 0; i < 3; i++)
		(void)rocast_send(source, gpu, (void *)(uintptr_t)(page + 7 + i), 1, 4 + i);
	take("g1", source, 0, 3);
	take("g1 there", receiver, 1, 3);
	say("beside it", rocast_send(source, gpu, (void *)(uintptr_t)(page + 10), 1, 7));
	say("nothing", rocast_register_dmabuf(hosts[0], fd, 0, 0, &gpu));
	refuse_registrations(EOPNOTSUPP);
	say("no such device", rocast_register_dmabuf(hosts[0], fd, 0, page, &gpu));
	refuse_registrations(EBADF);
	say("another error", rocast_register_dmabuf(hosts[0], 99, 4096, 1, &gpu));
	refuse_registrations(0);
	printf("%u registrations\n", registrations());
	for (int i = 0; i < HOSTS; i++)
		rocast_close(hosts[i]);
	printf("%u registrations\n", registrations());
	for (int i = 0; i < HOSTS; i++)
		hosts[i] = NULL;
	close(fd);
}

static const char *long_policy(void)
{
	static char text[513];

	memset(text, 'a', sizeof(text) - 1);
	return text;
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	begin();
	if (strcmp(argv[1], "several") == 0) {
		several();
	} else if (strcmp(argv[1], "end") == 0) {
		let_groups_work(false);
		end_by_source();
		end_by_receiver("g5", 1);
		end_by_receiver("g6", 2);
	} else if (strcmp(argv[1], "progress") == 0) {
		progress();
	} else if (strcmp(argv[1], "threads") == 0) {
		threads();
	} else if (strcmp(argv[1], "rate") == 0) {
		rate();
	} else if (strcmp(argv[1], "held") == 0) {
		held();
	} else if (strcmp(argv[1], "outside") == 0) {
		be_refused("stale");
		be_refused("replaced");
		be_refused("full");
	} else if (strcmp(argv[1], "policy") == 0) {
		try_policy("quorum", ROCAST_BOTH, false);
		try_policy("quorum", ROCAST_BOTH, true);
		try_policy("quorum", ROCAST_RECEIVER, false);
		try_policy("evicts", ROCAST_BOTH, false);
		try_policy("evicts", ROCAST_BOTH, true);
		try_policy("plain", ROCAST_BOTH, false);
		say("class", rocast_set_traffic_class(hosts[0], 104));
		try_policy("plain", ROCAST_BOTH, false);
		say("class", rocast_set_traffic_class(hosts[0], 256));
	} else if (strcmp(argv[1], "memory") == 0) {
		try_memory();
	} else if (strcmp(argv[1], "lost") == 0) {
		lose_answers(3, ETIMEDOUT);
		try_policy("some", ROCAST_BOTH, false);
		lose_answers(1000000, ETIMEDOUT);
		try_policy("all", ROCAST_BOTH, false);
		lose_answers(1, EINVAL);
		try_policy("none", ROCAST_BOTH, false);
		try_policy("again", ROCAST_BOTH, false);
	} else if (strcmp(argv[1], "secrets") == 0) {
		be_refused("secret");
		say("set", rocast_set_secret(hosts[0], "s3cret-_.+/="));
		be_refused("secret");
		say("bad", rocast_set_secret(hosts[0], "a\"b"));
		say("long", rocast_set_secret(hosts[0], "12345678901234567890123456789012345678901234567890123456789012345"));
		say("none", rocast_set_secret(hosts[0], NULL));
		be_refused("secret");
	} else if (strcmp(argv[1], "policies") == 0) {
		be_refused("says");
		say("set", rocast_set_policy(hosts[0], "ack=quorum 2,repair=off"));
		be_refused("says");
		say("bad", rocast_set_policy(hosts[0], "a\"b"));
		say("long", rocast_set_policy(hosts[0], long_policy()));
		say("none", rocast_set_policy(hosts[0], NULL));
		be_refused("says");
		setenv("ROCAST_POLICY", "a\"b", 1);
		say("environment", rocast_open(NULL, &(struct rocast *){ NULL }));
	} else {
		say("end", rocast_end(join(0, "operators", ROCAST_SOURCE)));
	}
	end();
	return 0;
}
