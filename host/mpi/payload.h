/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ROCAST_MPI_PAYLOAD_H
#define ROCAST_MPI_PAYLOAD_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

/* payload is the data of a broadcast as bytes in one piece. */
struct payload {
	char *bytes;
	size_t length;
	void *buffer; /* of the program */
	int count;
	MPI_Datatype type;
	MPI_Comm comm;
	bool packed; /* bytes is a copy */
};

/*
 * Packs the data if they do not lie in one piece, or makes room for them where they are to come.
 * bytes is NULL if that is not possible: there is no memory, or the MPI library finds fault with
 * the arguments. Errors of comm are returned.
 */
void open_payload(struct payload *payload, void *buffer, int count, MPI_Datatype type, size_t length, bool has_data,
		  MPI_Comm comm);

/* Unpacks the data if they have come, and frees the copy. Returns the error of the MPI library. */
int close_payload(struct payload *payload, bool have_come);

#endif
