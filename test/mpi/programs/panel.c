/*
 * A factorization A = LU as High Performance Linpack does it, with one row of processes: the
 * columns of A lie in blocks with the ranks in turn. In each step the rank that has the next block
 * factorizes it and broadcasts it, and all ranks update their columns with it. There is no
 * pivoting, because the diagonal is dominant.
 *
 *	panel N NB             by MPI_Bcast, and then again by PMPI_Bcast
 *
 * It prints how long both took and what of that was spent in broadcasts, and stops with an error
 * if LU is not A or the two results differ in a bit.
 */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, n, width; /* width of a block of columns */

typedef int broadcast(void *, int, MPI_Datatype, int, MPI_Comm);

static void stop(const char *what)
{
	fprintf(stderr, "panel: rank %d: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static double *allocate(size_t numbers)
{
	double *memory = calloc(numbers, sizeof(double));

	if (!memory)
		stop("no memory");
	return memory;
}

static double element(int row, int column)
{
	uint32_t x = (uint32_t)row * 2654435761u + (uint32_t)column * 40503u;

	x = (x ^ x >> 15) * 2246822519u;
	return (double)(x >> 8) / (1 << 24) - 0.5 + (row == column ? n : 0);
}

static int blocks(void)
{
	return n / width;
}

/* The columns of block k begin here, in the memory of the rank that has them. */
static double *block(double *columns, int k)
{
	return columns + (size_t)(k / size) * (size_t)width * (size_t)n;
}

static void factorize(double *panel, int first)
{
	for (int j = 0; j < width; j++) {
		double *column = panel + (size_t)j * (size_t)n;

		for (int i = first + j + 1; i < n; i++)
			column[i] /= column[first + j];
		for (int k = j + 1; k < width; k++) {
			double *other = panel + (size_t)k * (size_t)n;

			for (int i = first + j + 1; i < n; i++)
				other[i] -= column[i] * other[first + j];
		}
	}
}

static void update(double *columns, const double *panel, int first)
{
	for (int c = 0; c < width; c++) {
		double *column = columns + (size_t)c * (size_t)n;

		for (int j = 0; j < width; j++) {
			const double *left = panel + (size_t)j * (size_t)n;

			for (int i = first + j + 1; i < n; i++)
				column[i] -= left[i] * column[first + j];
		}
	}
}

/*
 * step broadcasts the part of the panel that is below the blocks that are done: rows from first on
 * of each column. So the datatype is another one in each step.
 */
static double step(broadcast *by, double *columns, double *panel, int k)
{
	int owner = k % size, first = k * width;
	double began, took;
	MPI_Datatype below;

	if (rank == owner) {
		factorize(block(columns, k), first);
		memcpy(panel, block(columns, k), (size_t)width * (size_t)n * sizeof(double));
	}
	MPI_Type_vector(width, n - first, n, MPI_DOUBLE, &below);
	MPI_Type_commit(&below);
	began = MPI_Wtime();
	by(panel + first, 1, below, owner, MPI_COMM_WORLD);
	took = MPI_Wtime() - began;
	MPI_Type_free(&below);
	for (int other = k + 1; other < blocks(); other++)
		if (other % size == rank)
			update(block(columns, other), panel, first);
	return took;
}

/* check_product compares some elements of LU with A. The columns of L come from all ranks. */
static void check_product(double *columns)
{
	double worst = 0, all = 0;

	for (int row = 0; row < n; row += n / 7) {
		double *left = allocate((size_t)n), *sum = allocate((size_t)n);

		for (int j = 0; j <= row; j++)
			if (j / width % size == rank)
				left[j] = j == row ? 1 : block(columns, j / width)[(size_t)(j % width) * (size_t)n + (size_t)row];
		MPI_Allreduce(left, sum, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		for (int column = 0; column < n; column++) {
			double product = 0;

			if (column / width % size != rank)
				continue;
			for (int j = 0; j <= row && j <= column; j++)
				product += sum[j] * block(columns, column / width)[(size_t)(column % width) * (size_t)n + (size_t)j];
			worst = fmax(worst, fabs(product - element(row, column)));
		}
		free(left);
		free(sum);
	}
	MPI_Allreduce(&worst, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	if (!(all < 1e-9 * n))
		stop("LU is not A");
}

static double *run(broadcast *by, const char *name)
{
	size_t numbers = (size_t)(blocks() / size + 1) * (size_t)width * (size_t)n;
	double *columns = allocate(numbers), *panel = allocate((size_t)width * (size_t)n), spent[2] = { 0, 0 }, most[2];

	for (int k = 0; k < blocks(); k++)
		for (int c = 0; k % size == rank && c < width; c++)
			for (int row = 0; row < n; row++)
				block(columns, k)[(size_t)c * (size_t)n + (size_t)row] = element(row, k * width + c);
	MPI_Barrier(MPI_COMM_WORLD);
	spent[0] = MPI_Wtime();
	for (int k = 0; k < blocks(); k++)
		spent[1] += step(by, columns, panel, k);
	spent[0] = MPI_Wtime() - spent[0];
	check_product(columns);
	MPI_Allreduce(spent, most, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	if (rank == 0)
		printf("panel %s ms %.1f broadcasts %.1f\n", name, most[0] * 1e3, most[1] * 1e3);
	free(panel);
	return columns;
}

int main(int argc, char **argv)
{
	double *one, *other;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	n = argc > 1 ? atoi(argv[1]) : 0;
	width = argc > 2 ? atoi(argv[2]) : 0;
	if (n <= 0 || width <= 0 || n % width)
		stop("panel N NB: N is a multiple of NB");
	one = run(MPI_Bcast, "group");
	other = run(PMPI_Bcast, "own");
	if (memcmp(one, other, (size_t)(blocks() / size + 1) * (size_t)width * (size_t)n * sizeof(double)))
		stop("the results differ");
	free(one);
	free(other);
	if (rank == 0)
		printf("panel done\n");
	fflush(stdout);
	MPI_Finalize();
	return 0;
}
