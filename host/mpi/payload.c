/* SPDX-License-Identifier: Apache-2.0 */
#include "payload.h"

#include <stdlib.h>

static bool is_in_one_piece(MPI_Datatype type);

/*
 * free_type frees a datatype that MPI_Type_get_contents has returned. Those of the MPI library
 * itself must not be freed, which are the named ones and those that MPI_Type_create_f90_real and
 * its likes return.
 */
static void free_type(MPI_Datatype type)
{
	int integers, addresses, types, combiner;

	if (PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS)
		return;
	if (combiner != MPI_COMBINER_NAMED && combiner != MPI_COMBINER_F90_REAL && combiner != MPI_COMBINER_F90_COMPLEX &&
	    combiner != MPI_COMBINER_F90_INTEGER)
		PMPI_Type_free(&type);
}

static bool repeats_one_piece(MPI_Datatype type, int integers)
{
	MPI_Datatype inner;
	MPI_Aint none;
	int number;
	bool result;

	if (integers > 1 || PMPI_Type_get_contents(type, integers, 0, 1, &number, &none, &inner) != MPI_SUCCESS)
		return false;
	result = is_in_one_piece(inner);
	free_type(inner);
	return result;
}

/*
 * is_in_one_piece says whether elements of a type lie side by side, in the order in which they are
 * packed. It recognizes types of the MPI library and arrays of them. All others are packed.
 */
static bool is_in_one_piece(MPI_Datatype type)
{
	int integers, addresses, types, combiner, bytes;
	MPI_Aint lower, extent;

	if (PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS)
		return false;
	switch (combiner) {
	case MPI_COMBINER_NAMED:
		return PMPI_Type_get_extent(type, &lower, &extent) == MPI_SUCCESS &&
		       PMPI_Type_size(type, &bytes) == MPI_SUCCESS && lower == 0 && extent == bytes;
	case MPI_COMBINER_DUP:
	case MPI_COMBINER_CONTIGUOUS:
		return repeats_one_piece(type, integers);
	default:
		return false;
	}
}

/* give_up leaves a payload without bytes. */
static void give_up(struct payload *p)
{
	free(p->bytes);
	p->bytes = NULL;
	p->packed = false;
}

void open_payload(struct payload *p, void *buffer, int count, MPI_Datatype type, size_t length, bool has_data, MPI_Comm comm)
{
	int place = 0;

	*p = (struct payload){ .length = length, .buffer = buffer, .count = count, .type = type, .comm = comm };
	if (buffer == MPI_IN_PLACE)
		return;
	if (is_in_one_piece(type)) {
		p->bytes = buffer;
		return;
	}
	p->packed = true;
	p->bytes = malloc(length);
	if (!p->bytes || (has_data && PMPI_Pack(buffer, count, type, p->bytes, (int)length, &place, comm) != MPI_SUCCESS))
		give_up(p);
}

int close_payload(struct payload *p, bool have_come)
{
	int place = 0, error = MPI_SUCCESS;

	if (!p->packed)
		return MPI_SUCCESS;
	if (have_come)
		error = PMPI_Unpack(p->bytes, (int)p->length, &place, p->buffer, p->count, p->type, p->comm);
	give_up(p);
	return error;
}
