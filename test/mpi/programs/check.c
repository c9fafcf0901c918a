/*
 * Broadcasts by MPI_Bcast, and checks that every rank gets what the root has. It knows nothing of
 * groups. It compares with PMPI_Bcast, which nothing is loaded in front of.
 *
 *	check sizes [MOST]     1 byte to 16 MiB, every rank in turn is the root; prints times
 *	check types            derived datatypes at the root, at the others, and at both
 *	check communicators    two communicators with other ranks, in turn and by two threads
 *	check intercommunicator  a broadcast from one half of the ranks to the other
 *	check loop COUNT BYTES prints the number of each broadcast; COUNT 0: for ever
 *	check splits COUNT     communicators that are made, used and freed in a loop
 *	check live COUNT       communicators of which none is freed
 *	check exhausted        the MPI library can make no further communicator, if it has a bound
 *	check faults           wrong arguments, which the MPI library has to find fault with
 *	check nonblocking      MPI_Ibcast, and MPI_Bcast_c where there is one, beside MPI_Bcast
 *	check spawn            a communicator with ranks that were spawned
 */
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MOST_BYTES = 16 << 20,
	GUARD = 64, /* bytes behind the data, which must not change */
	ROUNDS = 8, /* of two communicators */
	LARGE = 1 << 20,
	MOST_COMMUNICATORS = 3000, /* more than MPICH can make */
};

typedef int broadcast(void *, int, MPI_Datatype, int, MPI_Comm);

static void stop(const char *what, size_t bytes, int root)
{
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	fprintf(stderr, "check: rank %d: %s (%zu bytes, root %d)\n", rank, what, bytes, root);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static void *allocate(size_t bytes)
{
	void *memory = malloc(bytes);

	if (!memory)
		stop("no memory", bytes, 0);
	return memory;
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static void fill(unsigned char *bytes, size_t length, uint64_t seed)
{
	uint64_t word = 0;

	for (size_t i = 0; i < length; i++) {
		if (i % sizeof(word) == 0)
			word = mix(seed + i);
		bytes[i] = (unsigned char)(word >> 8 * (i % sizeof(word)));
	}
}

static uint64_t hash(const unsigned char *bytes, size_t length)
{
	uint64_t sum = length, word;

	for (; length >= sizeof(word); bytes += sizeof(word), length -= sizeof(word)) {
		memcpy(&word, bytes, sizeof(word));
		sum = mix(sum + word);
	}
	for (; length > 0; bytes++, length--)
		sum = mix(sum + *bytes);
	return sum;
}

/* compare stops the job if a rank of comm has other bytes than another one. */
static void compare(const unsigned char *bytes, size_t length, int root, MPI_Comm comm)
{
	uint64_t mine = hash(bytes, length), least, most;

	MPI_Allreduce(&mine, &least, 1, MPI_UINT64_T, MPI_MIN, comm);
	MPI_Allreduce(&mine, &most, 1, MPI_UINT64_T, MPI_MAX, comm);
	if (least != most)
		stop("the hashes differ", length, root);
}

/* play broadcasts once, checks, and returns how long the slowest rank took. */
static double play(broadcast *by, unsigned char *bytes, size_t length, int root, uint64_t seed, MPI_Comm comm)
{
	int rank;
	double took, slowest;

	MPI_Comm_rank(comm, &rank);
	fill(bytes, length, rank == root ? seed : mix(seed + (uint64_t)rank + 1));
	memset(bytes + length, rank, GUARD);
	MPI_Barrier(comm);
	took = MPI_Wtime();
	if (by(bytes, (int)length, MPI_BYTE, root, comm) != MPI_SUCCESS)
		stop("an error", length, root);
	took = MPI_Wtime() - took;
	compare(bytes, length, root, comm);
	for (int i = 0; i < GUARD; i++)
		if (bytes[length + (size_t)i] != (unsigned char)rank)
			stop("bytes behind the data have changed", length, root);
	MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, comm);
	return slowest;
}

/* try_size prints the mean time by MPI_Bcast and by the MPI library's own broadcast. */
static void try_size(unsigned char *bytes, size_t length)
{
	double by_ours = 0, by_own = 0;
	int rank, size;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int root = 0; root < size; root++) {
		by_ours += play(MPI_Bcast, bytes, length, root, length + (size_t)root, MPI_COMM_WORLD);
		by_own += play(PMPI_Bcast, bytes, length, root, length + (size_t)root + 1000, MPI_COMM_WORLD);
	}
	if (rank == 0) {
		printf("bytes %zu ms %.3f own %.3f\n", length, by_ours / size * 1e3, by_own / size * 1e3);
		fflush(stdout);
	}
}

/* The sizes are powers of two, and at some of them also one byte more and less. */
static void sizes(size_t most)
{
	unsigned char *bytes = allocate(most + 1 + GUARD);

	for (size_t length = 1; length <= most; length *= 2) {
		bool border = length == 64 << 10 || length == 256 << 10 || length == 4 << 20;

		if (border)
			try_size(bytes, length - 1);
		try_size(bytes, length);
		if (border)
			try_size(bytes, length + 1);
	}
	free(bytes);
}

/* A matrix by rows, of which a rank broadcasts some columns. */
enum { ROWS = 512, COLUMNS = 512, WIDTH = 200, KINDS = 5 /* of datatypes */ };

static MPI_Datatype columns(void)
{
	MPI_Datatype type;

	MPI_Type_vector(ROWS, WIDTH, COLUMNS, MPI_DOUBLE, &type);
	MPI_Type_commit(&type);
	return type;
}

static MPI_Datatype in_one_piece(void)
{
	MPI_Datatype type;

	MPI_Type_contiguous(ROWS * WIDTH, MPI_DOUBLE, &type);
	MPI_Type_commit(&type);
	return type;
}

/* An array of a type that the MPI library keeps, although it has no name. */
static MPI_Datatype of_fortran(void)
{
	MPI_Datatype element, type;

	MPI_Type_create_f90_real(15, 300, &element);
	MPI_Type_contiguous(ROWS * WIDTH, element, &type);
	MPI_Type_commit(&type);
	return type;
}

/* Halves in the other order: as long as its extent, and yet not as it lies in memory. */
static MPI_Datatype swapped(void)
{
	int lengths[] = { ROWS * WIDTH / 2, ROWS * WIDTH / 2 }, places[] = { ROWS * WIDTH / 2, 0 };
	MPI_Datatype type;

	MPI_Type_indexed(2, lengths, places, MPI_DOUBLE, &type);
	MPI_Type_commit(&type);
	return type;
}

/* at returns where element i of a type lies. */
static size_t at(int kind, size_t i)
{
	switch (kind) {
	case 0:
		return i / WIDTH * COLUMNS + i % WIDTH;
	case 2:
		return (i + ROWS * WIDTH / 2) % (ROWS * WIDTH);
	default:
		return i;
	}
}

static void try_type(double *matrix, int at_root, int at_others, int root)
{
	MPI_Datatype type[KINDS] = { columns(), in_one_piece(), swapped(), of_fortran(), MPI_DOUBLE };
	int rank, kind;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	kind = rank == root ? at_root : at_others;
	for (size_t i = 0; i < ROWS * COLUMNS; i++)
		matrix[i] = -1;
	for (size_t i = 0; rank == root && i < ROWS * WIDTH; i++)
		matrix[at(kind, i)] = (double)i + 0.5;
	MPI_Bcast(matrix, kind == KINDS - 1 ? ROWS * WIDTH : 1, type[kind], root, MPI_COMM_WORLD);
	for (size_t i = 0; i < ROWS * WIDTH; i++) {
		if (matrix[at(kind, i)] != (double)i + 0.5)
			stop("an element is wrong", i, root);
		matrix[at(kind, i)] = -1;
	}
	for (size_t i = 0; i < ROWS * COLUMNS; i++)
		if (matrix[i] != -1)
			stop("an element between has changed", i, root);
	for (int i = 0; i < KINDS - 1; i++)
		MPI_Type_free(&type[i]);
}

static void types(void)
{
	double *matrix = allocate(ROWS * COLUMNS * sizeof(double));
	int size;

	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int at_root = 0; at_root < KINDS; at_root++)
		for (int at_others = 0; at_others < KINDS; at_others++)
			try_type(matrix, at_root, at_others, (KINDS * at_root + at_others) % size);
	free(matrix);
}

struct job {
	MPI_Comm comm;
	uint64_t seed;
	pthread_t thread;
};

static void *play_rounds(void *argument)
{
	struct job *job = argument;
	unsigned char *bytes = allocate(LARGE + GUARD);
	int size;

	MPI_Comm_size(job->comm, &size);
	for (int i = 0; i < ROUNDS; i++)
		play(MPI_Bcast, bytes, LARGE - (size_t)i, i % size, job->seed + (uint64_t)i, job->comm);
	free(bytes);
	return NULL;
}

/*
 * communicators uses one communicator that has all ranks, in another order, and one without the
 * last rank.
 */
static void communicators(int threads)
{
	struct job job[2] = { { .seed = 1000 }, { .seed = 2000 } };
	unsigned char *bytes = allocate(LARGE + GUARD);
	int rank, size;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &job[0].comm);
	MPI_Comm_split(MPI_COMM_WORLD, rank < size - 1 ? 0 : MPI_UNDEFINED, rank, &job[1].comm);
	for (int i = 0; i < ROUNDS; i++) {
		play(MPI_Bcast, bytes, LARGE, i % size, 100 + (uint64_t)i, job[0].comm);
		if (job[1].comm != MPI_COMM_NULL)
			play(MPI_Bcast, bytes, LARGE, i % (size - 1), 200 + (uint64_t)i, job[1].comm);
	}
	for (int i = 0; threads == MPI_THREAD_MULTIPLE && i < 2; i++)
		if (job[i].comm != MPI_COMM_NULL && pthread_create(&job[i].thread, NULL, play_rounds, &job[i]))
			stop("no thread", 0, 0);
	for (int i = 0; i < 2; i++) {
		if (threads == MPI_THREAD_MULTIPLE && job[i].comm != MPI_COMM_NULL)
			pthread_join(job[i].thread, NULL);
		if (job[i].comm != MPI_COMM_NULL)
			MPI_Comm_free(&job[i].comm);
	}
	free(bytes);
	if (rank == 0)
		printf("threads %s\n", threads == MPI_THREAD_MULTIPLE ? "two at once" : "not allowed by the MPI library");
}

static void intercommunicator(void)
{
	unsigned char *bytes = allocate(LARGE);
	MPI_Comm half, both;
	int rank, size, upper, root;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	upper = rank >= size / 2;
	MPI_Comm_split(MPI_COMM_WORLD, upper, rank, &half);
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, upper ? 0 : size / 2, 1, &both);
	root = upper ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
	fill(bytes, LARGE, rank == 0 || upper == 0 ? 7 : 8);
	MPI_Bcast(bytes, LARGE, MPI_BYTE, root, both);
	compare(bytes, LARGE, 0, MPI_COMM_WORLD);
	MPI_Comm_free(&both);
	MPI_Comm_free(&half);
	free(bytes);
}

static void loop(long count, size_t length)
{
	unsigned char *bytes = allocate(length + GUARD);
	int rank, size;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (long i = 0; count == 0 || i < count; i++) {
		double ms = 1e3 * play(MPI_Bcast, bytes, length, (int)(i % size), (uint64_t)i, MPI_COMM_WORLD);

		if (rank == 0) {
			printf("broadcast %ld ms %.3f\n", i, ms);
			fflush(stdout);
		}
	}
	free(bytes);
}

static void splits(long count)
{
	unsigned char *bytes = allocate(LARGE + GUARD);
	MPI_Errhandler handler;
	MPI_Comm comm;
	int rank, size;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (long i = 0; i < count; i++) {
		MPI_Comm_split(MPI_COMM_WORLD, 0, i % 2 ? rank : -rank, &comm);
		play(MPI_Bcast, bytes, LARGE, (int)(i % size), (uint64_t)i, comm);
		MPI_Comm_get_errhandler(comm, &handler);
		if (handler != MPI_ERRORS_ARE_FATAL)
			stop("the error handler has changed", LARGE, 0);
		MPI_Errhandler_free(&handler);
		MPI_Comm_free(&comm);
	}
	free(bytes);
}

static void live(long count)
{
	unsigned char *bytes = allocate(LARGE + GUARD);
	MPI_Comm comm;

	for (long i = 0; i < count; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		play(MPI_Bcast, bytes, LARGE / 16, 0, (uint64_t)i, comm);
	}
	free(bytes);
}

static void exhausted(void)
{
	unsigned char *bytes = allocate(LARGE + GUARD);
	MPI_Comm comm;

	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	for (int i = 0; i < MOST_COMMUNICATORS && MPI_Comm_dup(MPI_COMM_SELF, &comm) == MPI_SUCCESS; i++)
		;
	play(MPI_Bcast, bytes, LARGE, 0, 1, MPI_COMM_WORLD);
	free(bytes);
}

/* fault makes a wrong broadcast between two right ones. All ranks have to get an error. */
static void fault(const char *what, void *buffer, int count, MPI_Datatype type, int root)
{
	unsigned char *bytes = allocate(LARGE + GUARD);
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	play(MPI_Bcast, bytes, LARGE, 0, 1, comm);
	if (MPI_Bcast(buffer, count, type, root, comm) == MPI_SUCCESS)
		stop(what, (size_t)count, root);
	play(MPI_Bcast, bytes, LARGE, 1, 2, comm);
	MPI_Comm_free(&comm);
	free(bytes);
}

static void faults(void)
{
	double *matrix = allocate(ROWS * COLUMNS * sizeof(double));
	MPI_Datatype type;
	int size;

	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Type_vector(ROWS, WIDTH, COLUMNS, MPI_DOUBLE, &type);
	fault("a type that is not committed passes", matrix, 1, type, 0);
#ifdef OPEN_MPI /* MPICH writes there */
	fault("no buffer passes", MPI_IN_PLACE, ROWS * COLUMNS, MPI_DOUBLE, 0);
	fault("no buffer passes for columns", MPI_IN_PLACE, 1, swapped(), 0);
#endif
	fault("a root that is no rank passes", matrix, ROWS * COLUMNS, MPI_DOUBLE, size);
	fault("a negative count passes", matrix, -1, MPI_DOUBLE, 0);
	if (MPI_Bcast(NULL, 0, MPI_DOUBLE, 0, MPI_COMM_WORLD) != MPI_SUCCESS)
		stop("nothing at all is refused", 0, 0);
	MPI_Type_free(&type);
	free(matrix);
}

/* Broadcasts that no group carries, on a communicator that has one. */
static void nonblocking(void)
{
	unsigned char *bytes = allocate(LARGE), *others = allocate(LARGE + GUARD);
	MPI_Request request;
	int rank, size;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int root = 0; root < size; root++) {
		fill(bytes, LARGE, (uint64_t)(rank == root ? 5 : 6));
		MPI_Ibcast(bytes, LARGE, MPI_BYTE, root, MPI_COMM_WORLD, &request);
		play(MPI_Bcast, others, LARGE, (root + 1) % size, 7, MPI_COMM_WORLD);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		compare(bytes, LARGE, root, MPI_COMM_WORLD);
#if MPI_VERSION >= 4
		fill(bytes, LARGE, (uint64_t)(rank == root ? 8 : 9));
		MPI_Bcast_c(bytes, LARGE, MPI_BYTE, root, MPI_COMM_WORLD);
		compare(bytes, LARGE, root, MPI_COMM_WORLD);
#endif
	}
	free(bytes);
	free(others);
}

/* The ranks that are spawned want groups only for larger broadcasts. */
static void merge(MPI_Comm between, int spawned)
{
	unsigned char *bytes = allocate(LARGE + GUARD);
	MPI_Comm all;

	MPI_Intercomm_merge(between, spawned, &all);
	for (int root = 0; root < 2; root++)
		play(MPI_Bcast, bytes, LARGE, root, (uint64_t)root, all);
	MPI_Comm_free(&all);
	MPI_Comm_disconnect(&between);
	free(bytes);
}

static void spawn(char *program)
{
	char *args[] = { "spawned", NULL };
	MPI_Comm between;

	MPI_Comm_spawn(program, args, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between, MPI_ERRCODES_IGNORE);
	merge(between, 0);
}

static void spawned(void)
{
	MPI_Comm between;

	MPI_Comm_get_parent(&between);
	merge(between, 1);
}

int main(int argc, char **argv)
{
	int threads, rank;
	const char *what = argc > 1 ? argv[1] : "";

	if (strcmp(what, "spawned") == 0)
		setenv("ROCAST_MPI_BYTES", "2000000", 1);
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &threads);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (strcmp(what, "sizes") == 0)
		sizes(argc > 2 ? strtoul(argv[2], NULL, 10) : MOST_BYTES);
	else if (strcmp(what, "types") == 0)
		types();
	else if (strcmp(what, "communicators") == 0)
		communicators(threads);
	else if (strcmp(what, "intercommunicator") == 0)
		intercommunicator();
	else if (strcmp(what, "loop") == 0 && argc > 3)
		loop(strtol(argv[2], NULL, 10), strtoul(argv[3], NULL, 10));
	else if (strcmp(what, "splits") == 0 && argc > 2)
		splits(strtol(argv[2], NULL, 10));
	else if (strcmp(what, "live") == 0 && argc > 2)
		live(strtol(argv[2], NULL, 10));
	else if (strcmp(what, "exhausted") == 0)
		exhausted();
	else if (strcmp(what, "faults") == 0)
		faults();
	else if (strcmp(what, "nonblocking") == 0)
		nonblocking();
	else if (strcmp(what, "spawn") == 0)
		spawn(argv[0]);
	else if (strcmp(what, "spawned") == 0)
		spawned();
	else
		stop("check sizes | types | communicators | intercommunicator | loop COUNT BYTES | splits COUNT | live COUNT | exhausted | faults | nonblocking | spawn", 0, 0);
	if (rank == 0 && strcmp(what, "spawned"))
		printf("%s done\n", what);
	fflush(stdout);
	MPI_Finalize();
	return 0;
}
