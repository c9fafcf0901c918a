/* SPDX-License-Identifier: Apache-2.0 */
/*
 * librocast: reliable multicast for a program on a RoCEv2 host.
 *
 * A group has members on several hosts. What its source writes or sends goes to all other members;
 * an operation is complete when each of them has acknowledged it. The members find each other by
 * the name of the group, at the box (rocastd with hosts: in its config):
 *
 *	static char buffer[1 << 20];
 *	struct rocast *host;
 *	struct rocast_group *group;
 *	struct rocast_memory *memory;
 *	struct rocast_completion completion;
 *	struct rocast_settings settings = { .box = "10.77.0.254:7472" };
 *
 *	if (rocast_open(&settings, &host) != ROCAST_OK)
 *		errx(1, "%s", rocast_message());
 *	if (rocast_register(host, buffer, sizeof(buffer), &memory) != ROCAST_OK)
 *		errx(1, "%s", rocast_message());
 *
 *	struct rocast_membership wanted = {
 *		.name = "g1", .role = ROCAST_SOURCE, .members = 4, .regions = &memory, .region_count = 1,
 *	};
 *	if (rocast_join(host, &wanted, &group) != ROCAST_OK)
 *		errx(1, "%s", rocast_message());
 *	if (rocast_write(group, memory, buffer, sizeof(buffer), 0, 0, 1) != ROCAST_OK)
 *		errx(1, "%s", rocast_message());
 *	while (rocast_wait(group, &completion, 1, 1000) == 0)
 *		;
 *	if (completion.kind == ROCAST_FAILED)
 *		errx(1, "%s", rocast_message());
 *	rocast_leave(group);
 *	rocast_close(host);
 *
 * Rules for all functions:
 *
 * - A function returns ROCAST_OK, which is 0, or a negative enum rocast_error; functions that count
 *   return the number instead of 0. rocast_message() is a sentence about the last failure.
 * - What a pointer in settings and memberships points to is not needed after the call, except for
 *   memories. A field that is left 0 has the default that its comment names.
 * - The library starts no thread and installs no signal handler. Everything that has to happen
 *   later happens inside rocast_poll and rocast_wait, so each member calls one of them from time to
 *   time, receivers too: otherwise the others cannot fall back.
 * - One thread at a time uses a struct rocast and everything that was made from it. Different
 *   threads use different ones.
 * - After fork() the child cannot use what the parent has opened: functions return ROCAST_EFORKED,
 *   and the child's exit does no harm to the parent.
 * - Every function has a time bound. Without a parameter of its own that is
 *   rocast_settings.patience_ms. Where the box hangs, rocast_join takes up to 6 s longer, and
 *   rocast_leave up to 5 s whatever the bound is.
 */
#ifndef ROCAST_H
#define ROCAST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum rocast_error {
	ROCAST_OK = 0,
	ROCAST_EARGUMENT = -1, /* the arguments do not fit; nothing has happened */
	ROCAST_EMEMORY = -2,   /* malloc has failed */
	ROCAST_EDEVICE = -3,   /* no RDMA device for the address, or libibverbs has failed */
	ROCAST_EBOX = -4,      /* the box does not answer */
	ROCAST_EREFUSED = -5,  /* the box refuses; rocast_message has its sentence */
	ROCAST_ETIMEOUT = -6,  /* the time bound has passed; whom the group waits for is in rocast_message */
	ROCAST_EFULL = -7,     /* the queue is full: take completions first */
	ROCAST_EBROKEN = -8,   /* neither the group nor single connections work; only rocast_leave is left */
	ROCAST_EFORKED = -9,   /* the process is a child of the one that opened it */
};

/*
 * A sentence about the last failure in this thread. It is valid until the next failure in this
 * thread, and never NULL.
 */
const char *rocast_message(void);

/* "version commit" of the library. */
const char *rocast_version(void);

struct rocast;        /* a host's RDMA device, and its way to the box */
struct rocast_memory; /* registered memory */
struct rocast_group;  /* a membership in a group */

struct rocast_settings {
	const char *box;      /* ADDRESS:PORT of hosts: in the box's config; NULL: $ROCAST_BOX, or the one that DNS names by _rocast._tcp */
	const char *address;  /* of this host; NULL: $ROCAST_ADDRESS, or the one by which it reaches the box */
	const char *device;   /* the RDMA device; NULL: the first one that has the address */
	unsigned patience_ms; /* time bound; 0: 30000 */
};

/* Opens the RDMA device. It does not ask the box yet. */
int rocast_open(const struct rocast_settings *settings, struct rocast **host);

/*
 * The secret of the groups that are joined afterwards: the first member gives it, and the box
 * refuses all others that do not show it. At first it is $ROCAST_SECRET, or none. It has up to 64
 * letters, digits and characters of -_.+/=; NULL or "": none.
 */
int rocast_set_secret(struct rocast *host, const char *secret);

/*
 * The policy of the groups that are joined afterwards: KEY=VALUE,..., with the keys of a group
 * file's policy (docs/reference.md of rocast), such as "repair=off,nak=lower". At first it is
 * $ROCAST_POLICY, or none. The members of a group that say something of it say the same, and the
 * box refuses who says something else; NULL or "": whatever the others say. With ack=quorum N,
 * evict or on-fatal=evict members that send join with without_fallback.
 */
int rocast_set_policy(struct rocast *host, const char *policy);

/*
 * The traffic class of the packets of all connections that are made afterwards: four times the
 * DSCP, by which switches map packets to priorities. At first it is $ROCAST_TRAFFIC_CLASS, or 0.
 */
int rocast_set_traffic_class(struct rocast *host, unsigned traffic_class);

/*
 * Leaves all groups that are left, each within 5 s, and frees everything, memories too. NULL is
 * fine. A child of the process that opened the device frees nothing.
 */
void rocast_close(struct rocast *host);

/*
 * Registers memory: to send from, to receive into, or as a region of groups. The caller keeps the
 * memory until rocast_close or rocast_unregister. Registered memory is pinned, and counts against
 * RLIMIT_MEMLOCK. Where that is too small, rocast_message says what the program needs.
 */
int rocast_register(struct rocast *host, void *address, size_t bytes, struct rocast_memory **memory);

/*
 * As rocast_register, for memory that is only sent from, and may be read-only. The kernel may
 * refuse it: Linux before 6.2 does so for a file that is mapped shared and read-only.
 */
int rocast_register_to_send(struct rocast *host, const void *address, size_t bytes, struct rocast_memory **memory);

/*
 * Registers memory of another device, such as a GPU: `bytes` from `offset` on of what is behind the
 * descriptor of a dmabuf. It has no address: operations and receives name a byte by its offset in
 * the dmabuf, cast to a pointer. ROCAST_EDEVICE: the RDMA device takes no such memory.
 */
int rocast_register_dmabuf(struct rocast *host, int fd, uint64_t offset, size_t bytes, struct rocast_memory **memory);

/*
 * Memory that a group has as a region cannot be unregistered before the group is left
 * (ROCAST_EARGUMENT). Operations and receives that use the memory have to be complete.
 */
int rocast_unregister(struct rocast_memory *memory);

enum rocast_role {
	ROCAST_RECEIVER, /* receives */
	ROCAST_SOURCE,   /* sends; a group has one, or members with ROCAST_BOTH */
	ROCAST_BOTH,     /* receives, and sends when its turn comes: see rocast_become_source */
};

struct rocast_membership {
	const char *name;       /* of the group: a letter or digit first, then also - _ . , 63 bytes at most */
	enum rocast_role role;
	unsigned members;       /* the group begins when so many have come, this one included; the same at all */
	/*
	 * What a source may WRITE to. All members that receive have equally many regions, and region i
	 * of the group is as long as the shortest region i of a receiver. At most 4.
	 */
	struct rocast_memory *const *regions;
	unsigned region_count;
	unsigned mtu;           /* path MTU: 256 to 4096; 0: as large as the port of every member allows */
	unsigned send_depth;    /* operations that are not complete yet; 0: 128 */
	unsigned receive_depth; /* receives that are posted; 0: 128 */
	unsigned patience_ms;   /* rocast_join waits so long for the others; 0: as in rocast_settings */
	/*
	 * Without a completion for so long the group counts as broken. Operations get 1 ms more for
	 * each kilobyte that is on its way. 0: 3000
	 */
	unsigned give_up_ms;
	/* There is no other way: an operation that fails by the group is ROCAST_FAILED. */
	int without_fallback;
};

/*
 * Joins a group: tells the box, waits until all members have come, and until the group is clear to
 * send. It returns at all members at about the same time. A group that runs already is joined at
 * once with ROCAST_RECEIVER, and the new member receives from the next message on. With another
 * role only a host may join it then that has sent in it before.
 *
 * A process may be in many groups, and in a group once. Programs that share several groups join
 * them in the same order, because each join waits for the others. Another join of the same name
 * from the same host replaces the member that was there: its program has probably ended.
 */
int rocast_join(struct rocast *host, const struct rocast_membership *wanted, struct rocast_group **group);

/*
 * Leaves a group. What this member has posted and is not complete may or may not arrive. The others
 * go on without it, except that a group ends with its ROCAST_SOURCE. Its receivers hear so, unless
 * the box is away: receives that are left are ROCAST_FAILED, and calls return ROCAST_EBROKEN.
 * If a member with ROCAST_BOTH leaves that is the present source, or was the first one, the others
 * make the group anew when one of them sends next; with without_fallback they cannot.
 *
 * Completions that were not taken are gone, and receives are not completed. Afterwards nothing
 * writes into the memory by this group. The group is freed whatever is returned, except by
 * ROCAST_EFORKED. NULL is fine.
 */
int rocast_leave(struct rocast_group *group);

/*
 * Ends a group for all members, for one that sends. The others hear so, as when a ROCAST_SOURCE
 * leaves: what has arrived is there to be taken, receives that are left are ROCAST_FAILED, and then
 * calls return ROCAST_EBROKEN. Operations that are not complete may or may not arrive: take their
 * completions first. Otherwise it is as rocast_leave.
 *
 * ROCAST_EARGUMENT: this member only receives; nothing has happened, and the group is not freed.
 * ROCAST_EREFUSED: hosts have not made the group (hosts: in its group file), so this member has
 * only left it. ROCAST_EBOX: the box is away, so only members hear so that use single connections.
 */
int rocast_end(struct rocast_group *group);

/*
 * Each of these posts one operation. It is complete when rocast_poll returns its id. The bytes lie
 * in local, are not copied, and must not change before that.
 *
 * write:           writes into region `region` of each receiver, from its byte `offset` on. A
 *                  receiver's program does not notice.
 * write_immediate: does so, and completes a receive of each receiver with the number `immediate`.
 * send:            fills the oldest posted receive of each receiver.
 *
 * Operations arrive in the order in which they were posted. bytes may be 0, then local may be NULL,
 * and 2^30 at most. offset counts bytes. id is the program's own and need not be unique.
 *
 * ROCAST_EARGUMENT: the bytes are not in local or not in the region, or the member only receives.
 * ROCAST_EFULL: send_depth operations are not complete, or their completions were not taken.
 * ROCAST_EBROKEN: no way is left. After any error nothing was posted.
 */
int rocast_write(struct rocast_group *group, const struct rocast_memory *local, const void *from, size_t bytes,
		 unsigned region, uint64_t offset, uint64_t id);
int rocast_write_immediate(struct rocast_group *group, const struct rocast_memory *local, const void *from, size_t bytes,
			   unsigned region, uint64_t offset, uint32_t immediate, uint64_t id);
int rocast_send(struct rocast_group *group, const struct rocast_memory *local, const void *from, size_t bytes,
		uint64_t id);

/*
 * Posts a receive. Each send and each write_immediate that arrives uses up one; if none is there,
 * the source waits. For write_immediate bytes may be 0, and local NULL. Receives may be posted
 * before the source begins, because a member's queue exists when rocast_join returns; a source that
 * comes first waits. A send that is longer than the receive that it fills ends the group for all:
 * its operation is ROCAST_FAILED. ROCAST_EFULL: receive_depth receives are posted, or their
 * completions were not taken. ROCAST_EBROKEN: no way is left.
 */
int rocast_receive(struct rocast_group *group, const struct rocast_memory *local, void *into, size_t bytes, uint64_t id);

enum rocast_kind {
	/*
	 * An operation of this member: all receivers have it, or as many as rocast_acknowledged_by
	 * says.
	 */
	ROCAST_DONE,
	ROCAST_RECEIVED,  /* a send has filled a receive */
	ROCAST_IMMEDIATE, /* a write_immediate has arrived, and used up a receive */
	/*
	 * An operation that did not get through to all; some receivers may have it. The next operation
	 * returns ROCAST_EBROKEN. Or a receive that nothing will fill.
	 */
	ROCAST_FAILED,
};

struct rocast_completion {
	enum rocast_kind kind;
	uint64_t id;        /* of the operation, or of the receive */
	size_t bytes;       /* ROCAST_RECEIVED, ROCAST_IMMEDIATE */
	uint32_t immediate; /* ROCAST_IMMEDIATE */
};

/*
 * Takes up to max completions without waiting, and returns their number. Operations complete in the
 * order in which they were posted. It also does what is due: answers members that fall back, or
 * falls back and returns itself. Only then does it take longer: less than twice patience_ms, and up
 * to 8 s more where the box hangs. What does not get through is ROCAST_FAILED. ROCAST_EBROKEN: no
 * way is left, and all completions have been taken.
 */
int rocast_poll(struct rocast_group *group, struct rocast_completion *completions, unsigned max);

/*
 * As rocast_poll, but sleeps until there is one, at most timeout_ms. 0 completions: the time has
 * passed. A signal does not end it.
 */
int rocast_wait(struct rocast_group *group, struct rocast_completion *completions, unsigned max, unsigned timeout_ms);

/*
 * A descriptor for poll(2): when it is readable, call rocast_poll. It may be readable in vain.
 * Besides, rocast_poll wants to be called once a second.
 */
int rocast_descriptor(const struct rocast_group *group);

/*
 * With role both: sends nothing to all others and waits until they have it. Then everything of the
 * source before has arrived everywhere, and this member is the source. It is not needed before an
 * operation: whoever posts one becomes the source, as soon as all operations of the source before
 * are complete. The members agree by themselves whose turn it is; two that post at the same time
 * hold each other up until one of them gives up.
 */
int rocast_become_source(struct rocast_group *group, unsigned timeout_ms);

/*
 * How many bytes a second the operations of this member send. 0, as at first: no limit. An
 * operation begins when those before have had their time, and none is cut, so small ones go
 * smoothly; pieces of a stream are such. Over time the rate is that of the bytes on this host's
 * link, without the headers of packets: by single connections an operation counts once for each
 * receiver, and what goes anew counts again. A program that calls late makes up for 10 ms at most.
 *
 * Nothing sleeps: operations are held back, and rocast_poll and rocast_wait let them go.
 * rocast_descriptor becomes readable when it is time. An operation that is held back takes a place
 * of send_depth. A new rate holds for what is held back too.
 *
 * ROCAST_EARGUMENT: the member only receives. ROCAST_EDEVICE: there is no descriptor for a timer.
 */
int rocast_set_rate(struct rocast_group *group, uint64_t bytes_per_second);

/*
 * A stream is one message of any size, through memory of bounded size. Its source writes buffers,
 * and its receivers read pieces, in order:
 *
 *	source:    while ((n = read(file, buffer, sizeof(buffer))) > 0)
 *	                   rocast_stream_write(group, buffer, n, UINT_MAX);
 *	           rocast_stream_end(group, UINT_MAX);
 *	receivers: while (rocast_stream_read(group, &piece, UINT_MAX) == 1 && !piece.last)
 *	                   fwrite(piece.at, 1, piece.bytes, file);
 */
enum {
	ROCAST_PIECE_BYTES = 262144, /* a piece is as long, or shorter if it is the last */
};

/*
 * From now on the group carries streams, one after the other, and nothing else: operations and
 * receives are refused (ROCAST_EARGUMENT), and rocast_poll and rocast_wait return no completions.
 * All members call it, receivers before they read. The library registers memory for the pieces that
 * are on their way: window bytes rounded down to pieces, twice as much with ROCAST_BOTH, and never
 * for more pieces than send_depth or receive_depth. window 0: 16 pieces. The memory is given back
 * when the group is left.
 *
 * ROCAST_EARGUMENT: it has been called, window is less than a piece, or the group has operations,
 * receives or completions that were not taken. ROCAST_EMEMORY, ROCAST_EDEVICE: the memory cannot be
 * had or registered, or the device takes no receive, and nothing has happened. If the device takes
 * some receives and refuses others, the group is only good for leaving (ROCAST_EBROKEN).
 */
int rocast_use_streams(struct rocast_group *group, size_t window);

/*
 * Adds bytes to the present stream, or begins one, and returns how many it has taken. The bytes are
 * copied and need no registration. Fewer than `bytes`: so much did not find room within timeout_ms,
 * because a receiver has not read yet. A piece goes when it is full. 0 bytes are fine; the call
 * then does what is due, as rocast_poll.
 *
 * ROCAST_EARGUMENT: the member only receives, or a stream is ending. ROCAST_EBROKEN: no way is
 * left; the receivers have the beginning of the stream at most.
 */
int64_t rocast_stream_write(struct rocast_group *group, const void *from, size_t bytes, unsigned timeout_ms);

/*
 * Ends the present stream, which may have 0 bytes, and waits until all receivers have it in their
 * memory. ROCAST_ETIMEOUT: some have not, so call it again. Afterwards the next stream may begin.
 * A source that leaves before has not ended its stream.
 */
int rocast_stream_end(struct rocast_group *group, unsigned timeout_ms);

struct rocast_piece {
	const void *at;  /* valid until the next rocast_stream_read */
	size_t bytes;    /* 0 to ROCAST_PIECE_BYTES; 0 only in the last piece */
	uint64_t offset; /* of its first byte in the stream */
	int last;        /* the stream ends with this piece */
};

/*
 * Reads the next piece. Returns 1, or 0 if none has come within timeout_ms. Pieces come in order
 * and once; the offset of the first one of a stream is 0. A piece with offset 0 behind one that was
 * not the last begins another stream, and nothing more comes of the one before. A member that has
 * come in the middle of a stream reads the next stream first.
 *
 * The source waits for a receiver that does not read. A program that holds a piece for long calls
 * rocast_poll meanwhile. rocast_descriptor becomes readable for the next piece when this function
 * has returned 0.
 *
 * ROCAST_EBROKEN: the group has ended, or no way is left, and all pieces that have arrived were
 * read: a stream without its last piece was cut. Or a member has sent something else than a stream.
 * Or two members with ROCAST_BOTH have sent streams at the same time, and this one has the
 * beginning of both. The two do not hear so: each begins its stream when that of the other one has
 * ended.
 */
int rocast_stream_read(struct rocast_group *group, struct rocast_piece *piece, unsigned timeout_ms);

enum rocast_way {
	ROCAST_MULTICAST, /* by the group */
	ROCAST_UNICAST,   /* by a connection to each other member, because the group does not work */
};

/*
 * How operations go at the moment. When the box dies, when a link is cut or when the box says that
 * the group is degraded, the source goes on by one connection to each receiver, and tries the group
 * again after 1, 2, 4 and up to 60 s. No send and no write_immediate arrives twice or is lost,
 * except that a member that came to a running group may get the last ones twice at its first
 * fallback. A write may be carried out twice, but never after a later one of the same source.
 */
enum rocast_way rocast_way(const struct rocast_group *group);

/*
 * How many receivers have an operation that is ROCAST_DONE. 0: all. The policy of the group, of its
 * members or in an operator's group file, may say otherwise (ack: quorum N), and may let the group
 * go on without a receiver (evict, on-fatal): such a receiver is no longer counted. Single
 * connections wait for all receivers, so a member that sends joins such a group only with
 * without_fallback (else ROCAST_EREFUSED).
 */
unsigned rocast_acknowledged_by(const struct rocast_group *group);

/*
 * How far a group has come, for a bar: what the library has seen at the last call that posted an
 * operation or took completions. All numbers count bytes since rocast_join. What goes anew after a
 * fallback is counted once.
 */
struct rocast_progress {
	uint64_t posted_bytes;    /* of the operations and the pieces of streams that this member has posted */
	/*
	 * Of these operations, those that are complete, whether or not the program has taken the
	 * completions. An operation counts when it is complete as a whole, and never if it fails: the
	 * library does not see how much of it has gone. Post small operations for a bar that moves.
	 */
	uint64_t completed_bytes;
	uint64_t received_bytes;  /* of sends and write_immediates that have arrived here, and of pieces that were read; writes do not show */
	/*
	 * The IP of the receiver that holds the others up, and the bytes of the posted operations that
	 * it has not acknowledged. "" and 0: not known, or all receivers are as far. By the group it is
	 * not known: the box makes one acknowledgement of those of all receivers, and this member
	 * sees that one. It is known by single connections, so after a fallback.
	 */
	char slowest[64];
	uint64_t slowest_lacks;
};

/* ROCAST_EFORKED: this process has not joined the group; all numbers are 0. */
int rocast_progress(const struct rocast_group *group, struct rocast_progress *progress);

/*
 * Whether a host with this IP is another member of the group, as the box has said last: 1 or 0. So
 * a program that hears of an address by the group knows whether it is one of the group's.
 */
int rocast_has_member(const struct rocast_group *group, const char *ip);

/* About a group. Pointers are valid until rocast_leave. */
struct rocast_about {
	const char *group_ip;
	uint32_t group_qpn, qpn;    /* the group's, and this member's */
	unsigned members;           /* as this member knows them */
	unsigned mtu;
	uint64_t region_bytes[4];   /* the shortest of all receivers */
	unsigned fallbacks, returns; /* how often the way has changed */
};

void rocast_describe(const struct rocast_group *group, struct rocast_about *about);

#ifdef __cplusplus
}
#endif

#endif
