/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "internal.h"

enum {
	DEFAULT_PIECES = 16,
	SLEEP_MS = 100,
	PAGE = 4096,
	PAST = 8, /* how many of the streams before the present one a member remembers */
};

/* Why nothing more can be read. */
static const char FOREIGN[] = "is no stream, or lacks a piece; all members use streams, or none",
	MIXED[] = "is parts of two streams at the same time; a member begins its stream when the one before has ended";

static const uint64_t MAGIC = UINT64_C(0x726f636173740001);

/* What is in front of the bytes of a piece, all numbers in network byte order. */
struct head {
	uint64_t magic, stream, offset;
	uint32_t last, unused;
};

/* The room for a piece. Pieces are posted by the number of their slot. */
struct slot {
	struct head head;
	unsigned char bytes[ROCAST_PIECE_BYTES];
};

struct arrival {
	unsigned slot;
	size_t bytes;
};

struct stream {
	struct slot *slots; /* those of the pieces that go, then those of the ones that come */
	struct rocast_memory *memory;
	unsigned count; /* of each */

	/* What goes. Piece n lies in slot n modulo count. */
	uint64_t id, offset; /* of the present stream; of its next piece */
	uint64_t sent, done;
	size_t filled; /* bytes of the next piece */
	bool ending;   /* the stream has no more bytes */
	bool closed;   /* its last piece is on its way */

	/* What comes. */
	struct slot *rooms;
	struct arrival *arrivals; /* ring */
	unsigned first, arrived;
	struct slot *held;         /* what the program has in hand */
	uint64_t coming, expected; /* the stream that comes, and the offset of its next piece */
	bool inside;               /* the stream that comes has not ended */
	struct {
		uint64_t id, expected;
		bool ended;
	} past[PAST];              /* streams that another one has followed; the oldest goes */
	unsigned next_past;
	const char *torn;          /* NULL: nothing else has come */
};

_Static_assert(sizeof(struct head) == HEAD_BYTES, "a head has no holes");

static int post_room(struct rocast_group *group, struct slot *room)
{
	const struct stream *s = group->stream;
	int error = post_receive(group, s->memory, room, sizeof(*room), (uint64_t)(room - s->rooms));

	/* That the group has ended is told behind what has arrived. */
	return error == ROCAST_EBROKEN ? ROCAST_OK : error;
}

int rocast_use_streams(struct rocast_group *group, size_t window)
{
	bool sends = group->role != ROCAST_RECEIVER, receives = group->srq;
	size_t count = window ? window / ROCAST_PIECE_BYTES : DEFAULT_PIECES, bytes;
	struct stream *s;
	int error = check_process(group->host);

	if (error)
		return error;
	if (group->stream)
		return fail(ROCAST_EARGUMENT, "group %s carries streams already", group->name);
	if (count == 0)
		return fail(ROCAST_EARGUMENT, "%zu bytes are less than the %d of one piece of a stream", window, ROCAST_PIECE_BYTES);
	if (group->oldest < group->next || group->receives_posted > 0 || group->ready_count > 0)
		return fail(ROCAST_EARGUMENT, "group %s has operations or receives whose completions were not taken; use streams before they are posted",
			    group->name);
	if ((error = check_way(group)))
		return error;
	if (count > group->send_depth)
		count = group->send_depth;
	if (count > group->receive_depth)
		count = group->receive_depth;
	bytes = ((sends ? count : 0) + (receives ? count : 0)) * sizeof(struct slot);
	if (!(s = calloc(1, sizeof(*s))))
		return fail(ROCAST_EMEMORY, "no memory");
	s->count = (unsigned)count;
	s->slots = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
	s->arrivals = calloc(count, sizeof(*s->arrivals));
	error = s->slots && s->arrivals ? rocast_register(group->host, s->slots, bytes, &s->memory) : fail(ROCAST_EMEMORY, "no memory");
	if (error || getrandom(&s->id, sizeof(s->id), 0) < 0) {
		free_stream(s);
		return error ? error : fail(ROCAST_EDEVICE, "the kernel has no random number");
	}
	s->rooms = s->slots + (sends ? count : 0);
	group->stream = s;
	for (size_t i = 0; i < count && receives && !error; i++)
		error = post_room(group, &s->rooms[i]);
	if (error && group->receives_posted == 0) {
		group->stream = NULL;
		free_stream(s);
	} else if (error) {
		fail_everything(group); /* nobody takes a receive back */
	}
	return error;
}

/* Nothing uses its memory any more. */
void free_stream(struct stream *s)
{
	if (!s)
		return;
	(void)rocast_unregister(s->memory);
	free(s->slots);
	free(s->arrivals);
	free(s);
}

/*
 * Takes what has completed. In a group that goes on, what has failed is the receive of a piece that
 * had come in part when a queue pair ended. The piece comes again, and its room is posted again.
 */
static int take(struct rocast_group *group)
{
	struct stream *s = group->stream;
	struct rocast_completion c;
	int n, error;

	while ((n = poll_group(group, &c, 1)) > 0) {
		if (c.kind == ROCAST_DONE)
			s->done++;
		else if (c.kind == ROCAST_RECEIVED)
			s->arrivals[(s->first + s->arrived++) % s->count] = (struct arrival){ (unsigned)c.id, c.bytes };
		else if (c.kind == ROCAST_IMMEDIATE)
			s->torn = FOREIGN;
		else if (!group->broken && (error = post_room(group, &s->rooms[c.id])))
			return error;
	}
	return n;
}

/* Sleeps until something completes. False: the time has passed. */
static bool sleep_until(struct rocast_group *group, int64_t end)
{
	int64_t left = end - now_ms();

	if (left <= 0)
		return false;
	wait_a_moment(group, left < SLEEP_MS ? (int)left : SLEEP_MS);
	return true;
}

static int check_stream(const struct rocast_group *group, bool sends)
{
	int error = check_process(group->host);

	if (error)
		return error;
	if (!group->stream)
		return fail(ROCAST_EARGUMENT, "group %s carries no streams; call rocast_use_streams first", group->name);
	if (sends && group->role == ROCAST_RECEIVER)
		return fail(ROCAST_EARGUMENT, "a receiver of group %s cannot send; join with ROCAST_SOURCE or ROCAST_BOTH", group->name);
	if (!sends && !group->srq)
		return fail(ROCAST_EARGUMENT, "the source of group %s receives nothing; join with ROCAST_BOTH", group->name);
	return ROCAST_OK;
}

static bool has_room(const struct stream *s)
{
	return s->sent - s->done < s->count;
}

static int send_piece(struct rocast_group *group, bool last)
{
	struct stream *s = group->stream;
	struct slot *slot = &s->slots[s->sent % s->count];
	int error;

	slot->head = (struct head){ htobe64(MAGIC), htobe64(s->id), htobe64(s->offset), htobe32(last), 0 };
	if ((error = post_piece(group, s->memory, slot, sizeof(slot->head) + s->filled)))
		return error;
	s->sent++;
	s->offset += s->filled;
	s->filled = 0;
	return ROCAST_OK;
}

int64_t rocast_stream_write(struct rocast_group *group, const void *from, size_t bytes, unsigned timeout_ms)
{
	int64_t end = now_ms() + timeout_ms;
	struct stream *s = group->stream;
	size_t taken = 0;
	int error = check_stream(group, true);

	do {
		if (error || (error = take(group)))
			return error;
		if (s->ending)
			return fail(ROCAST_EARGUMENT, "a stream of group %s is ending; call rocast_stream_end until it returns 0", group->name);
		while (taken < bytes && has_room(s) && !error) {
			size_t n = bytes - taken < ROCAST_PIECE_BYTES - s->filled ? bytes - taken : ROCAST_PIECE_BYTES - s->filled;

			memcpy(s->slots[s->sent % s->count].bytes + s->filled, (const unsigned char *)from + taken, n);
			s->filled += n;
			taken += n;
			if (s->filled == ROCAST_PIECE_BYTES)
				error = send_piece(group, false);
		}
	} while (error || (taken < bytes && sleep_until(group, end)));
	return (int64_t)taken;
}

int rocast_stream_end(struct rocast_group *group, unsigned timeout_ms)
{
	int64_t end = now_ms() + timeout_ms;
	struct stream *s = group->stream;
	int error = check_stream(group, true);

	do {
		if (error || (error = take(group)))
			return error;
		s->ending = true;
		if (!s->closed && has_room(s)) {
			error = send_piece(group, true);
			s->closed = !error;
		}
		if (s->closed && s->done == s->sent) {
			s->ending = s->closed = false;
			s->id++;
			s->offset = 0;
			return ROCAST_OK;
		}
	} while (error || sleep_until(group, end));
	return fail(ROCAST_ETIMEOUT, "not all receivers of group %s have the whole stream within %u ms; call rocast_stream_end again", group->name,
		    timeout_ms);
}

/*
 * Whether a piece begins a stream. A piece of one that another stream has followed does not: either
 * it has come before, or two members send at the same time.
 */
static bool begins(struct stream *s, uint64_t id, uint64_t offset)
{
	for (unsigned i = 0; i < PAST; i++) {
		if (s->past[i].id != id)
			continue;
		if (!s->past[i].ended && offset >= s->past[i].expected)
			s->torn = MIXED;
		return false;
	}
	return offset == 0;
}

/*
 * Looks at a piece. True: the program gets it. A stream of which this member has not had the
 * beginning is left out, and so is a piece that has come before: after a fallback, a member that
 * came late may get the last ones twice. The streams before the present one have to be known for
 * that. A member that has all of one stream may begin the next one, while another member still
 * lacks some of the first and gets it again.
 */
static bool is_next(struct stream *s, const struct slot *slot, size_t bytes)
{
	uint64_t id = be64toh(slot->head.stream), offset = be64toh(slot->head.offset);

	if (bytes < sizeof(slot->head) || be64toh(slot->head.magic) != MAGIC) {
		s->torn = FOREIGN;
		return false;
	}
	if (id != s->coming) {
		if (!begins(s, id, offset))
			return false;
		s->past[s->next_past % PAST].id = s->coming;
		s->past[s->next_past % PAST].expected = s->expected;
		s->past[s->next_past++ % PAST].ended = !s->inside;
		s->coming = id;
		s->expected = 0;
		s->inside = true;
	}
	if (!s->inside || offset < s->expected)
		return false;
	if (offset > s->expected) {
		s->torn = FOREIGN;
		return false;
	}
	s->expected += bytes - sizeof(slot->head);
	s->inside = !slot->head.last;
	return true;
}

/* Hands out the next piece that has arrived. Returns 1, 0 if none has, or an error. */
static int hand_out(struct rocast_group *group, struct rocast_piece *piece)
{
	struct stream *s = group->stream;
	int error;

	while (s->arrived > 0 && !s->torn) {
		const struct arrival *a = &s->arrivals[s->first];
		struct slot *room = &s->rooms[a->slot];
		size_t bytes = a->bytes - sizeof(room->head);

		if (is_next(s, room, a->bytes)) {
			*piece = (struct rocast_piece){ room->bytes, bytes, be64toh(room->head.offset), room->head.last != 0 };
			group->received_bytes += bytes;
			s->held = room;
		} else if (!s->torn && (error = post_room(group, room))) {
			return error;
		}
		s->first = (s->first + 1) % s->count;
		s->arrived--;
		if (s->held)
			return 1;
	}
	return s->torn ? fail(ROCAST_EBROKEN, "what comes by group %s %s", group->name, s->torn) : 0;
}

int rocast_stream_read(struct rocast_group *group, struct rocast_piece *piece, unsigned timeout_ms)
{
	int64_t end = now_ms() + timeout_ms;
	struct stream *s = group->stream;
	int n, error = check_stream(group, false);

	if (error)
		return error;
	*piece = (struct rocast_piece){ 0 };
	if (s->held && (error = post_room(group, s->held)))
		return error;
	s->held = NULL;
	do {
		error = take(group);
		n = hand_out(group, piece);
		if (n != 0 || error)
			return n != 0 ? n : error;
	} while (sleep_until(group, end));
	return 0;
}
