/* SPDX-License-Identifier: Apache-2.0 */
#include "channel.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "../rocast.h"

enum {
	PIECE_BYTES = 256 << 10, /* of each WRITE, so that nodes copy one piece while the next one arrives */
	PIECES = 16,             /* in the ring */
	ROUND_BYTES = PIECES * PIECE_BYTES,

	PATIENCE_MS = 10000, /* for the box, and for members that come later */
	FEWEST_NODES = 3,    /* with two, a connection does what a group does */

	/*
	 * Each channel pins the memory of its ring, and takes three of the communicators of the MPI
	 * library, which MPICH has about 2,000 of.
	 */
	MOST_CHANNELS = 64,

	/*
	 * So many groups in a row that were not made let a process make no more: a program that makes
	 * communicators in a loop would wait for PATIENCE_MS in each of them, if the box is away.
	 */
	MOST_FAILURES = 3,

	IDLE_POLLS = 64, /* in vain, before the leader sleeps */
	IDLE_MS = 1,     /* for so long; then the MPI library gets on with its own messages */

	NOTICE = 1, /* tag of the message of a leader whose membership has failed */
	NONE = INT_MAX, /* no rank */
};

struct channel {
	MPI_Comm ranks;   /* all */
	MPI_Comm node;    /* those of this node; rank 0 is the leader */
	MPI_Comm leaders; /* of all nodes; MPI_COMM_NULL if this rank is none */
	int rank, node_ranks, nodes;
	bool has_place; /* among MOST_CHANNELS */
	char *spare;    /* a piece of a broadcast whose data this rank has no place for */

	/* Only of a leader. */
	struct rocast *host;
	struct rocast_memory *memory;
	struct rocast_group *group;
	char *ring;
	uint32_t next;       /* number of the next piece to write or to read, since the group was made */
	uint32_t arrived;    /* number of the next piece to arrive */
	unsigned unfinished; /* own WRITEs that are not complete */
	MPI_Request notice;   /* of the other leaders */
	MPI_Request *notices; /* to the other leaders */
	bool failed, stopped; /* this leader has failed; another one has */
	char reason[256];
};

static const char mpi_failed[] = "the MPI library reports an error";

/* Of the process. */
static atomic_int channels, failures;

MPI_Comm ranks_of(const struct channel *channel)
{
	return channel->ranks;
}

static bool is_leader(const struct channel *c)
{
	return c->leaders != MPI_COMM_NULL;
}

static void set_reason(struct channel *c, const char *reason)
{
	snprintf(c->reason, sizeof(c->reason), "%s", reason);
}

/* say prints the one line that a program with ROCAST_VERBOSE gets about a communicator. */
static void say(const struct channel *c, const char *what, const char *detail)
{
	if (getenv("ROCAST_VERBOSE"))
		fprintf(stderr, "rocast: MPI_Bcast, rank %d of a communicator on %d nodes: %s%s\n", c->rank, c->nodes, what, detail);
}

/*
 * agree returns whether no rank of the channel has failed. The lowest one that has says why. All
 * ranks call it at the same time.
 */
static bool agree(struct channel *c, bool failed, const char *consequence)
{
	int mine = failed ? c->rank : NONE, lowest = NONE;

	if (PMPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, c->ranks) != MPI_SUCCESS)
		return false; /* the ranks cannot talk to each other: the broadcast of the MPI library says so */
	if (lowest == c->rank)
		say(c, consequence, c->reason);
	return lowest == NONE;
}

/* return_errors keeps the error handler of the program out of calls that it does not know of. */
static bool return_errors(MPI_Comm comm)
{
	return PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN) == MPI_SUCCESS;
}

/*
 * make_ranks uses MPI_Comm_create, which unlike MPI_Comm_dup copies no attributes: programs may
 * count how often theirs are copied. The error handler of the program is set aside: the MPI
 * library may have no communicator left, and the broadcast needs none.
 */
static bool make_ranks(struct channel *c, MPI_Comm comm)
{
	MPI_Errhandler handler;
	MPI_Group group;
	bool made;

	if (PMPI_Comm_group(comm, &group) != MPI_SUCCESS)
		return false;
	made = PMPI_Comm_get_errhandler(comm, &handler) == MPI_SUCCESS;
	if (made) {
		made = return_errors(comm) && PMPI_Comm_create(comm, group, &c->ranks) == MPI_SUCCESS;
		PMPI_Comm_set_errhandler(comm, handler);
		PMPI_Errhandler_free(&handler);
	}
	PMPI_Group_free(&group);
	return made;
}

static bool make_communicators(struct channel *c, MPI_Comm comm)
{
	int node_rank;

	if (!make_ranks(c, comm) || !return_errors(c->ranks) || PMPI_Comm_rank(c->ranks, &c->rank) != MPI_SUCCESS)
		return false;
	if (PMPI_Comm_split_type(c->ranks, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &c->node) != MPI_SUCCESS ||
	    !return_errors(c->node) || PMPI_Comm_rank(c->node, &node_rank) != MPI_SUCCESS ||
	    PMPI_Comm_size(c->node, &c->node_ranks) != MPI_SUCCESS)
		return false;
	if (PMPI_Comm_split(c->ranks, node_rank == 0 ? 0 : MPI_UNDEFINED, c->rank, &c->leaders) != MPI_SUCCESS)
		return false;
	if (is_leader(c) && (!return_errors(c->leaders) || PMPI_Comm_size(c->leaders, &c->nodes) != MPI_SUCCESS))
		return false;
	return PMPI_Bcast(&c->nodes, 1, MPI_INT, 0, c->node) == MPI_SUCCESS;
}

/*
 * packs_as_is says whether packed data is just its bytes. Then a rank that packs and one whose
 * data lies in one piece get along.
 */
static bool packs_as_is(struct channel *c)
{
	int value = 0x01020304, place = 0;
	char packed[64];

	return PMPI_Pack(&value, 1, MPI_INT, packed, sizeof(packed), &place, c->ranks) == MPI_SUCCESS &&
	       place == (int)sizeof(value) && memcmp(packed, &value, sizeof(value)) == 0;
}

/*
 * spares_ranks says whether the policy in the environment lets a group go on without some of its
 * members. Such a group is no broadcast: a rank would wait for ever.
 */
static bool spares_ranks(void)
{
	static const char *const keys[] = { "ack=quorum", "evict=", "on-fatal=evict" };
	const char *policy = getenv("ROCAST_POLICY");

	for (size_t i = 0; policy && i < sizeof(keys) / sizeof(keys[0]); i++)
		if (strstr(policy, keys[i]))
			return true;
	return false;
}

/*
 * prepare does what a leader can do without the others. The ring is shared memory because a child
 * of the program must not get a copy of it in place of the program: the RDMA device would go on
 * writing into the original.
 */
static bool prepare(struct channel *c)
{
	struct rocast_settings settings = { .patience_ms = PATIENCE_MS };

	c->notices = calloc((size_t)c->nodes, sizeof(*c->notices));
	c->ring = mmap(NULL, ROUND_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!c->notices || c->ring == MAP_FAILED) {
		set_reason(c, "no memory for the ring");
		return false;
	}
	for (int i = 0; i < c->nodes; i++)
		c->notices[i] = MPI_REQUEST_NULL;
	if (rocast_open(&settings, &c->host) != ROCAST_OK ||
	    rocast_register(c->host, c->ring, ROUND_BYTES, &c->memory) != ROCAST_OK) {
		set_reason(c, rocast_message());
		return false;
	}
	return true;
}

/*
 * name_group gives all leaders the same name, which no other communicator has, and a secret, which
 * the box asks of everybody who joins. Others may see the name.
 */
static bool name_group(struct channel *c, char *name, size_t bytes)
{
	unsigned long long number[4];
	char secret[33];
	bool random = getrandom(number, sizeof(number), 0) == sizeof(number);

	if (PMPI_Bcast(number, sizeof(number), MPI_BYTE, 0, c->leaders) != MPI_SUCCESS)
		return false;
	snprintf(name, bytes, "mpi-%016llx%016llx", number[0], number[1]);
	snprintf(secret, sizeof(secret), "%016llx%016llx", number[2], number[3]);
	return random && rocast_set_secret(c->host, secret) == ROCAST_OK;
}

/* post_receives posts receives that only say that a piece is in the ring. */
static int post_receives(struct channel *c, unsigned count)
{
	int posted = ROCAST_OK;

	for (; count > 0 && posted == ROCAST_OK; count--)
		posted = rocast_receive(c->group, NULL, NULL, 0, 0);
	return posted;
}

static bool join(struct channel *c)
{
	char name[64];
	struct rocast_membership wanted = {
		.name = name, .role = ROCAST_BOTH, .members = (unsigned)c->nodes, .regions = &c->memory, .region_count = 1,
		.send_depth = PIECES, .receive_depth = PIECES, .patience_ms = PATIENCE_MS, .without_fallback = 1,
	};

	if (!name_group(c, name, sizeof(name))) {
		set_reason(c, "the leaders have no name for their group");
		return false;
	}
	if (rocast_join(c->host, &wanted, &c->group) != ROCAST_OK) {
		set_reason(c, rocast_message());
		c->group = NULL;
		return false;
	}
	if (post_receives(c, PIECES) != ROCAST_OK) {
		set_reason(c, rocast_message());
		return false;
	}
	if (PMPI_Irecv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, NOTICE, c->leaders, &c->notice) != MPI_SUCCESS) {
		set_reason(c, mpi_failed);
		return false;
	}
	return true;
}

static void leave(struct channel *c)
{
	rocast_leave(c->group);
	rocast_close(c->host);
	if (c->ring && c->ring != MAP_FAILED)
		munmap(c->ring, ROUND_BYTES);
}

static bool take_place(struct channel *c)
{
	c->has_place = atomic_fetch_add(&channels, 1) < MOST_CHANNELS;
	if (!c->has_place)
		atomic_fetch_sub(&channels, 1);
	return c->has_place;
}

static bool may_try(struct channel *c)
{
	if (atomic_load(&failures) >= MOST_FAILURES)
		set_reason(c, "the groups before this one were not made either");
	else if (!packs_as_is(c))
		set_reason(c, "the MPI library packs data in a form of its own");
	else if (spares_ranks())
		set_reason(c, "ROCAST_POLICY lets a group go on without some ranks; leave ack, evict and on-fatal out of it");
	else if (!take_place(c))
		set_reason(c, "the program has 64 communicators with groups already");
	else if (!(c->spare = malloc(PIECE_BYTES)))
		set_reason(c, "no memory");
	else
		return true;
	return false;
}

/*
 * make_group has three steps, so that no leader waits for one that does not try, or that has no
 * RDMA device.
 */
static bool make_group(struct channel *c)
{
	if (!agree(c, !may_try(c), "no group: "))
		return false;
	if (!agree(c, is_leader(c) && !prepare(c), "no group: ") || !agree(c, is_leader(c) && !join(c), "no group: ")) {
		atomic_fetch_add(&failures, 1);
		return false;
	}
	atomic_store(&failures, 0);
	if (c->rank == 0)
		say(c, "by a group", "");
	return true;
}

struct channel *new_channel(void)
{
	struct channel *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->ranks = c->node = c->leaders = MPI_COMM_NULL;
	c->notice = MPI_REQUEST_NULL;
	return c;
}

bool open_channel(struct channel *c, MPI_Comm comm)
{
	int size;

	return PMPI_Comm_size(comm, &size) == MPI_SUCCESS && size >= FEWEST_NODES && make_communicators(c, comm) &&
	       c->nodes >= FEWEST_NODES && make_group(c);
}

static void free_communicator(MPI_Comm *comm)
{
	if (*comm != MPI_COMM_NULL)
		PMPI_Comm_free(comm);
}

void close_channel(struct channel *c)
{
	if (c->notice != MPI_REQUEST_NULL) {
		PMPI_Cancel(&c->notice);
		PMPI_Wait(&c->notice, MPI_STATUS_IGNORE);
	}
	leave(c);
	free_communicator(&c->leaders);
	free_communicator(&c->node);
	free_communicator(&c->ranks);
	if (c->has_place)
		atomic_fetch_sub(&channels, 1);
	free(c->spare);
	free(c->notices);
	free(c);
}

/* fail tells the other leaders, who may wait for data or for an acknowledgement, to stop. */
static void fail(struct channel *c, const char *reason)
{
	int self;

	if (c->failed)
		return;
	c->failed = true;
	set_reason(c, reason);
	if (!is_leader(c) || PMPI_Comm_rank(c->leaders, &self) != MPI_SUCCESS)
		return;
	for (int i = 0; i < c->nodes; i++)
		if (i != self)
			PMPI_Isend(NULL, 0, MPI_BYTE, i, NOTICE, c->leaders, &c->notices[i]);
}

static bool works(const struct channel *c)
{
	return !c->failed && !c->stopped;
}

static void complete(struct channel *c, const struct rocast_completion *done)
{
	switch (done->kind) {
	case ROCAST_DONE:
		c->unfinished--;
		break;
	case ROCAST_IMMEDIATE:
		if (done->immediate != c->arrived)
			fail(c, "a piece arrived that is not the next one");
		else if (post_receives(c, 1) != ROCAST_OK)
			fail(c, rocast_message());
		c->arrived++;
		break;
	default:
		fail(c, "the group does not get through to all hosts");
	}
}

/* take handles what the group and the other leaders say. It returns whether there was anything. */
static bool take(struct channel *c, unsigned wait_ms)
{
	struct rocast_completion done[PIECES];
	int told = 0, n = wait_ms ? rocast_wait(c->group, done, PIECES, wait_ms) : rocast_poll(c->group, done, PIECES);

	if (n < 0)
		fail(c, rocast_message());
	for (int i = 0; i < n; i++)
		complete(c, &done[i]);
	if (PMPI_Test(&c->notice, &told, MPI_STATUS_IGNORE) != MPI_SUCCESS)
		fail(c, mpi_failed);
	c->stopped = c->stopped || told;
	return n != 0 || told;
}

static bool next_has_arrived(const struct channel *c)
{
	return c->arrived != c->next;
}

static bool all_is_acknowledged(const struct channel *c)
{
	return c->unfinished == 0;
}

/*
 * await has no time bound: a root may come late to its broadcast, as with the MPI library. A root
 * that has come and cannot send hears so from its group within a bound, and tells the others.
 */
static void await(struct channel *c, bool (*ready)(const struct channel *))
{
	for (int idle = 0; works(c) && !ready(c);)
		idle = take(c, idle < IDLE_POLLS ? 0 : IDLE_MS) ? 0 : idle + 1;
}

static void write_piece(struct channel *c, const char *bytes, size_t length, size_t offset)
{
	if (!works(c))
		return;
	memcpy(c->ring + offset, bytes, length);
	if (rocast_write_immediate(c->group, c->memory, c->ring + offset, length, 0, offset, c->next, c->next) != ROCAST_OK) {
		fail(c, rocast_message());
		return;
	}
	c->unfinished++;
	c->next++;
	c->arrived = c->next; /* a root's own pieces do not arrive */
}

static void read_piece(struct channel *c, char *bytes, size_t length, size_t offset)
{
	await(c, next_has_arrived);
	if (!works(c))
		return;
	memcpy(bytes, c->ring + offset, length);
	c->next++;
}

/* share gives the ranks of this node what one of them has. */
static void share(struct channel *c, char *bytes, size_t length, int from)
{
	if (c->node_ranks > 1 && PMPI_Bcast(bytes, (int)length, MPI_BYTE, from, c->node) != MPI_SUCCESS)
		fail(c, mpi_failed);
}

/*
 * play_round moves up to ROUND_BYTES. from is the rank in this node that has them, or
 * MPI_UNDEFINED. After a failure a rank goes on sharing, because the others of its node do not know
 * of the failure before the agreement. So does a rank without bytes.
 */
static bool play_round(struct channel *c, char *bytes, size_t length, int from)
{
	for (size_t at = 0; at < length; at += PIECE_BYTES) {
		size_t length_here = length - at < PIECE_BYTES ? length - at : PIECE_BYTES;
		char *piece = bytes ? bytes + at : c->spare;

		if (from == MPI_UNDEFINED && is_leader(c))
			read_piece(c, piece, length_here, at);
		share(c, piece, length_here, from == MPI_UNDEFINED ? 0 : from);
		if (from != MPI_UNDEFINED && is_leader(c))
			write_piece(c, piece, length_here, at);
	}
	if (is_leader(c))
		await(c, all_is_acknowledged);
	return agree(c, c->failed, "goes by the MPI library from now on: ");
}

/* The rank in this node of a rank of the communicator, or MPI_UNDEFINED if it is on another one. */
static int rank_here(const struct channel *c, int rank)
{
	MPI_Group ranks, node;
	int here = MPI_UNDEFINED;

	if (PMPI_Comm_group(c->ranks, &ranks) != MPI_SUCCESS)
		return MPI_UNDEFINED;
	if (PMPI_Comm_group(c->node, &node) == MPI_SUCCESS) {
		PMPI_Group_translate_ranks(ranks, 1, &rank, node, &here);
		PMPI_Group_free(&node);
	}
	PMPI_Group_free(&ranks);
	return here;
}

/* receive_notices takes the notices of all leaders that have failed, so that none is left over. */
static void receive_notices(struct channel *c)
{
	int mine = c->failed, failed = 0;

	for (int i = 0; i < c->nodes; i++)
		PMPI_Wait(&c->notices[i], MPI_STATUS_IGNORE);
	if (PMPI_Allreduce(&mine, &failed, 1, MPI_INT, MPI_SUM, c->leaders) != MPI_SUCCESS)
		return;
	failed -= mine;
	if (failed > 0)
		PMPI_Wait(&c->notice, MPI_STATUS_IGNORE); /* returns at once if it has come before */
	for (; failed > 1; failed--)
		PMPI_Recv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, NOTICE, c->leaders, MPI_STATUS_IGNORE);
}

bool broadcast(struct channel *c, char *bytes, size_t length, int root)
{
	int from = rank_here(c, root);
	bool came = true;

	if (!bytes)
		fail(c, "a rank has no memory for the data, or they cannot be packed");
	for (size_t at = 0; at < length && came; at += ROUND_BYTES)
		came = play_round(c, bytes ? bytes + at : NULL, length - at < ROUND_BYTES ? length - at : ROUND_BYTES, from);
	if (!came && is_leader(c))
		receive_notices(c);
	return came;
}
