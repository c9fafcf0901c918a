/* SPDX-License-Identifier: Apache-2.0 */
/*
 * librocast-mpi: MPI_Bcast by a rocast group, for programs that are not built again. It is loaded
 * in front of the MPI library (LD_PRELOAD), takes MPI_Bcast, and calls everything else of the MPI
 * library by its profiling names (PMPI_). docs/uses.md#mpi says how it is used.
 *
 * All ranks have to come to the same decision. So it depends only on what is the same at all ranks:
 * the number of bytes, settings that all ranks of MPI_COMM_WORLD have agreed upon in MPI_Init, and
 * the channel of the communicator (channel.h).
 */
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "channel.h"
#include "payload.h"

/* Everything else is hidden, so that no name of this library is taken for one of the program. */
#define EXPORTED __attribute__((visibility("default")))

enum {
	LEAST_BYTES = 64 << 10, /* of a broadcast by a group, without ROCAST_MPI_BYTES */
	NEVER = INT_MAX,
};

static int least_bytes = NEVER; /* the same at all ranks */
static int key = MPI_KEYVAL_INVALID;

/* kept are the channels of all communicators, as attributes of these and in a list. */
struct kept {
	struct channel *channel; /* NULL: broadcasts of this communicator go by the MPI library */
	MPI_Comm comm;
	struct kept *next;
};

static struct kept *all_kept;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list: threads may free communicators */

static void unlist(const struct kept *k)
{
	pthread_mutex_lock(&lock);
	for (struct kept **at = &all_kept; *at; at = &(*at)->next) {
		if (*at == k) {
			*at = k->next;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
}

/* drop closes the channel. Later broadcasts of the communicator go by the MPI library. */
static void drop(struct kept *k)
{
	if (k->channel)
		close_channel(k->channel);
	k->channel = NULL;
}

/* forget is called when the communicator is freed. */
static int forget(MPI_Comm comm, int keyval, void *attribute, void *extra)
{
	struct kept *k = attribute;

	(void)comm;
	(void)keyval;
	(void)extra;
	unlist(k);
	drop(k);
	free(k);
	return MPI_SUCCESS;
}

/*
 * is_of_this_world says whether all ranks of comm are in MPI_COMM_WORLD. Programs that were spawned
 * or connected have agreed upon other settings, so ranks of several worlds could disagree about
 * the way of a broadcast. Each of these ranks finds that some others are not of its own world.
 */
static bool is_of_this_world(MPI_Comm comm)
{
	MPI_Group ranks, world, others;
	int number = -1;

	if (PMPI_Comm_group(comm, &ranks) != MPI_SUCCESS)
		return false;
	if (PMPI_Comm_group(MPI_COMM_WORLD, &world) == MPI_SUCCESS) {
		if (PMPI_Group_difference(ranks, world, &others) == MPI_SUCCESS) {
			PMPI_Group_size(others, &number);
			if (others != MPI_GROUP_EMPTY)
				PMPI_Group_free(&others);
		}
		PMPI_Group_free(&world);
	}
	PMPI_Group_free(&ranks);
	return number == 0;
}

static bool may_have_channel(MPI_Comm comm)
{
	int between_groups = 0;

	return PMPI_Comm_test_inter(comm, &between_groups) == MPI_SUCCESS && !between_groups && is_of_this_world(comm);
}

/*
 * all_keep says whether all ranks can keep a channel. One that cannot would not come to what the
 * others do together, in this broadcast or in a later one.
 */
static bool all_keep(MPI_Comm comm, bool keeps)
{
	int mine = keeps, all = false;

	return PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS && all;
}

/* keep returns NULL if this broadcast goes by the MPI library. The next one tries again then. */
static struct kept *keep(MPI_Comm comm)
{
	bool may = may_have_channel(comm), keeps;
	struct kept *k = calloc(1, sizeof(*k));

	if (k) {
		k->comm = comm;
		k->channel = may ? new_channel() : NULL;
	}
	keeps = k && (k->channel || !may) && PMPI_Comm_set_attr(comm, key, k) == MPI_SUCCESS;
	if (may && !all_keep(comm, keeps) && keeps) {
		drop(k); /* the attribute stays if it cannot be deleted, and then it must not seem to have a channel */
		PMPI_Comm_delete_attr(comm, key); /* which frees it */
		return NULL;
	}
	if (!keeps) {
		if (k)
			drop(k);
		free(k);
		return NULL;
	}
	if (may && !open_channel(k->channel, comm))
		drop(k);
	pthread_mutex_lock(&lock);
	k->next = all_kept;
	all_kept = k;
	pthread_mutex_unlock(&lock);
	return k;
}

/* kept_of opens the channel at the first large broadcast. NULL: the communicator has none. */
static struct kept *kept_of(MPI_Comm comm)
{
	struct kept *k = NULL;
	int found = 0;

	if (PMPI_Comm_get_attr(comm, key, &k, &found) != MPI_SUCCESS)
		return NULL;
	if (!found)
		k = keep(comm);
	return k && k->channel ? k : NULL;
}

/*
 * is_large leaves to the MPI library what it has to find fault with, and more than MPI_Pack can
 * handle.
 */
static bool is_large(int count, MPI_Datatype type, MPI_Comm comm, size_t *length)
{
	int bytes;

	if (least_bytes == NEVER || comm == MPI_COMM_NULL || type == MPI_DATATYPE_NULL || count <= 0)
		return false;
	if (PMPI_Type_size(type, &bytes) != MPI_SUCCESS || bytes == MPI_UNDEFINED)
		return false;
	*length = (size_t)count * (size_t)bytes;
	return *length >= (size_t)least_bytes && *length <= INT_MAX;
}

/* failed reports an error as the MPI library does: to the error handler of the communicator. */
static int failed(MPI_Comm comm, int error)
{
	PMPI_Comm_call_errhandler(comm, error);
	return error;
}

/*
 * by_group leaves a broadcast to the MPI library that no group carries to its end. So that library
 * also reports what it finds wrong with the arguments.
 */
static int by_group(struct kept *k, void *buffer, int count, MPI_Datatype type, size_t length, int root, MPI_Comm comm)
{
	struct payload payload;
	int self, error = PMPI_Comm_rank(comm, &self);
	bool came;

	if (error != MPI_SUCCESS)
		return failed(comm, error);
	open_payload(&payload, buffer, count, type, length, self == root, ranks_of(k->channel));
	came = broadcast(k->channel, payload.bytes, length, root);
	error = close_payload(&payload, came && self != root);
	if (error != MPI_SUCCESS)
		return failed(comm, error);
	if (came)
		return MPI_SUCCESS;
	drop(k);
	return PMPI_Bcast(buffer, count, type, root, comm);
}

static bool is_rank(MPI_Comm comm, int root)
{
	int size;

	return PMPI_Comm_size(comm, &size) == MPI_SUCCESS && root >= 0 && root < size;
}

EXPORTED int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
	struct kept *k = NULL;
	size_t length = 0;

	if (is_large(count, type, comm, &length))
		k = kept_of(comm);
	if (k && is_rank(comm, root))
		return by_group(k, buffer, count, type, length, root, comm);
	return PMPI_Bcast(buffer, count, type, root, comm);
}

/* wish returns from how many bytes on this rank wants a group. */
static int wish(void)
{
	const char *bytes = getenv("ROCAST_MPI_BYTES");
	char *end;
	long number;

	if (!getenv("ROCAST_BOX"))
		return NEVER;
	if (!bytes)
		return LEAST_BYTES;
	number = strtol(bytes, &end, 10);
	if (number > 0 && number < NEVER && !*end)
		return (int)number;
	fprintf(stderr, "rocast: ROCAST_MPI_BYTES is %s, so no broadcast goes by a group; it should be a number from 1 to %d\n", bytes, NEVER - 1);
	return NEVER;
}

/*
 * begin lets all ranks agree from how many bytes on a broadcast goes by a group: the most that one
 * of them wants, which is never if one of them has no box.
 */
static void begin(void)
{
	int mine = wish(), agreed = NEVER;

	if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &key, NULL) != MPI_SUCCESS)
		mine = NEVER;
	if (PMPI_Allreduce(&mine, &agreed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD) == MPI_SUCCESS)
		least_bytes = agreed;
}

EXPORTED int MPI_Init(int *argc, char ***argv)
{
	int error = PMPI_Init(argc, argv);

	if (error == MPI_SUCCESS)
		begin();
	return error;
}

EXPORTED int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	int error = PMPI_Init_thread(argc, argv, required, provided);

	if (error == MPI_SUCCESS)
		begin();
	return error;
}

/* MPI_Finalize closes the channels while calls of the MPI library are still allowed. */
EXPORTED int MPI_Finalize(void)
{
	least_bytes = NEVER;
	while (all_kept) {
		struct kept *k = all_kept;

		if (PMPI_Comm_delete_attr(k->comm, key) != MPI_SUCCESS) { /* the MPI library may still know it */
			unlist(k);
			drop(k);
		}
	}
	return PMPI_Finalize();
}
