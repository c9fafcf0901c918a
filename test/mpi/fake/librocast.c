/*
 * A stand-in for librocast and for several nodes, for tests of the library on one machine: every
 * rank is a node of its own, and a group is a file in shared memory through which pieces go.
 *
 *	FAKE_OPEN=RANK       rocast_open fails at this rank
 *	FAKE_JOIN=RANK       rocast_join fails at this rank
 *	FAKE_WRITE=RANK,N    the N-th operation of this rank does not get through
 *	FAKE_POLL=RANK,N     the membership of this rank breaks when N pieces have arrived
 *	FAKE_KEEP=RANK       this rank cannot keep the first attribute of a communicator
 *	FAKE_DELETE=RANK     this rank can delete no attribute
 *	FAKE_RANKS=N         ranks of a node; 1 by default
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../../../host/rocast.h"

enum { MEMBERS = 8, ENTRIES = 32, ENTRY_BYTES = 256 << 10 };

struct entry {
	unsigned sender, immediate;
	size_t offset, bytes;
	unsigned char data[ENTRY_BYTES];
};

struct shared {
	atomic_uint members, written, taken[MEMBERS];
	struct entry entries[ENTRIES];
};

struct rocast_memory {
	unsigned char *address;
	size_t bytes;
};

struct rocast {
	struct rocast_memory memory;
	char secret[65];
};

struct rocast_group {
	struct shared *shared;
	struct rocast_memory *memory;
	unsigned self, members, receives, arrived, posted;
	unsigned last[ENTRIES], oldest, newest; /* own entries that are not complete */
	char name[112];
};

static _Thread_local char message[128];

const char *rocast_message(void)
{
	return message;
}

static int error(int code, const char *text)
{
	snprintf(message, sizeof(message), "%s", text);
	return code;
}

/* due says whether the fault of this name is due at this rank, at this number. */
static bool due(const char *name, unsigned number)
{
	const char *text = getenv(name);
	unsigned rank, at = 0;
	int self;

	PMPI_Comm_rank(MPI_COMM_WORLD, &self);
	return text && sscanf(text, "%u,%u", &rank, &at) >= 1 && (int)rank == self && number >= at;
}

int PMPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *node)
{
	const char *ranks = getenv("FAKE_RANKS");
	int rank;

	(void)type;
	(void)info;
	PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	return PMPI_Comm_split(comm, rank / (ranks ? atoi(ranks) : 1), key, node);
}

/* Two calls of the library, which test/mpi/mpi_test.go lets the linker lead here. */
int __real_PMPI_Comm_set_attr(MPI_Comm comm, int key, void *value);
int __wrap_PMPI_Comm_set_attr(MPI_Comm comm, int key, void *value);
int __wrap_PMPI_Comm_set_attr(MPI_Comm comm, int key, void *value)
{
	static bool failed;

	if (failed || !due("FAKE_KEEP", 0))
		return __real_PMPI_Comm_set_attr(comm, key, value);
	failed = true;
	return MPI_ERR_OTHER;
}

int __real_PMPI_Comm_delete_attr(MPI_Comm comm, int key);
int __wrap_PMPI_Comm_delete_attr(MPI_Comm comm, int key);
int __wrap_PMPI_Comm_delete_attr(MPI_Comm comm, int key)
{
	return due("FAKE_DELETE", 0) ? MPI_ERR_OTHER : __real_PMPI_Comm_delete_attr(comm, key);
}

int rocast_open(const struct rocast_settings *settings, struct rocast **host)
{
	(void)settings;
	if (due("FAKE_OPEN", 0))
		return error(ROCAST_EDEVICE, "no device");
	*host = calloc(1, sizeof(**host));
	return ROCAST_OK;
}

int rocast_set_secret(struct rocast *host, const char *secret)
{
	snprintf(host->secret, sizeof(host->secret), "%s", secret);
	return ROCAST_OK;
}

void rocast_close(struct rocast *host)
{
	free(host);
}

int rocast_register(struct rocast *host, void *address, size_t bytes, struct rocast_memory **memory)
{
	host->memory = (struct rocast_memory){ address, bytes };
	*memory = &host->memory;
	return ROCAST_OK;
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

int rocast_join(struct rocast *host, const struct rocast_membership *wanted, struct rocast_group **group)
{
	struct rocast_group *g = calloc(1, sizeof(*g));
	int file;

	if (due("FAKE_JOIN", 0) || strlen(host->secret) != 32) {
		free(g);
		return error(ROCAST_EREFUSED, "refused");
	}
	snprintf(g->name, sizeof(g->name), "/%s-%s", wanted->name, host->secret); /* who shows another secret finds nobody */
	file = shm_open(g->name, O_RDWR | O_CREAT, 0600);
	if (file < 0 || ftruncate(file, sizeof(*g->shared)))
		abort();
	g->shared = mmap(NULL, sizeof(*g->shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	g->memory = wanted->regions[0];
	g->members = wanted->members;
	g->self = atomic_fetch_add(&g->shared->members, 1);
	*group = g;
	for (int i = 0; i < 20000; i++, nap()) {
		if (atomic_load(&g->shared->members) == g->members) {
			shm_unlink(g->name);
			return ROCAST_OK;
		}
	}
	shm_unlink(g->name);
	rocast_leave(g);
	return error(ROCAST_ETIMEOUT, "others are missing");
}

int rocast_leave(struct rocast_group *g)
{
	if (g) {
		munmap(g->shared, sizeof(*g->shared));
		free(g);
	}
	return ROCAST_OK;
}

int rocast_receive(struct rocast_group *g, const struct rocast_memory *local, void *into, size_t bytes, uint64_t id)
{
	(void)local;
	(void)into;
	(void)bytes;
	(void)id;
	g->receives++;
	return ROCAST_OK;
}

int rocast_write_immediate(struct rocast_group *g, const struct rocast_memory *local, const void *from, size_t bytes,
			   unsigned region, uint64_t offset, uint32_t immediate, uint64_t id)
{
	unsigned place = atomic_load(&g->shared->written);
	struct entry *e = &g->shared->entries[place % ENTRIES];

	(void)id;
	if (local != g->memory || region != 0 || bytes > ENTRY_BYTES || offset + bytes > local->bytes)
		return error(ROCAST_EARGUMENT, "not in the memory");
	*e = (struct entry){ .sender = g->self, .immediate = immediate, .offset = offset, .bytes = bytes };
	memcpy(e->data, from, bytes);
	g->last[g->newest++ % ENTRIES] = place;
	g->posted++;
	if (!due("FAKE_WRITE", g->posted))
		atomic_store(&g->shared->written, place + 1);
	return ROCAST_OK;
}

/* arrive takes the next entry, unless it is an own one. */
static bool arrive(struct rocast_group *g, struct rocast_completion *done)
{
	unsigned place = atomic_load(&g->shared->taken[g->self]);
	struct entry *e = &g->shared->entries[place % ENTRIES];
	bool own = e->sender == g->self;

	if (place == atomic_load(&g->shared->written) || (!own && g->receives == 0))
		return false;
	if (!own) {
		g->receives--;
		g->arrived++;
		memcpy(g->memory->address + e->offset, e->data, e->bytes);
		*done = (struct rocast_completion){ .kind = ROCAST_IMMEDIATE, .bytes = e->bytes, .immediate = e->immediate };
	}
	atomic_store(&g->shared->taken[g->self], place + 1);
	return !own;
}

static bool complete(struct rocast_group *g, struct rocast_completion *done)
{
	unsigned place = g->last[g->oldest % ENTRIES];

	if (g->oldest == g->newest)
		return false;
	if (due("FAKE_WRITE", g->posted)) {
		*done = (struct rocast_completion){ .kind = ROCAST_FAILED };
		g->oldest++;
		return true;
	}
	for (unsigned i = 0; i < g->members; i++)
		if (i != g->self && atomic_load(&g->shared->taken[i]) <= place)
			return false;
	g->oldest++;
	*done = (struct rocast_completion){ .kind = ROCAST_DONE };
	return true;
}

int rocast_poll(struct rocast_group *g, struct rocast_completion *done, unsigned max)
{
	unsigned n = 0;

	if (due("FAKE_POLL", g->arrived) && getenv("FAKE_POLL"))
		return error(ROCAST_EBROKEN, "broken");
	while (n < max && (arrive(g, &done[n]) || complete(g, &done[n])))
		n++;
	return (int)n;
}

int rocast_wait(struct rocast_group *g, struct rocast_completion *done, unsigned max, unsigned timeout_ms)
{
	int n = rocast_poll(g, done, max);

	if (n == 0) {
		nanosleep(&(struct timespec){ .tv_nsec = 1000000L * timeout_ms }, NULL);
		n = rocast_poll(g, done, max);
	}
	return n;
}
