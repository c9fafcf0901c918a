/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ROCAST_MPI_CHANNEL_H
#define ROCAST_MPI_CHANNEL_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * A channel is what this library keeps of a communicator: communicators of its own, and a group
 * with one member for each node. On each node the rank with the lowest number is the leader, which
 * holds the node's membership.
 *
 * Every decision about the way of a broadcast is the result of an MPI_Allreduce over all ranks, so
 * all ranks take the same way: when the group is made, and after each round of each broadcast. A
 * round is as much as fits into the ring, the registered memory of a member. So the agreement at
 * its end is also what lets the next root overwrite the ring, and become the source: every leader
 * has copied what was there, and everything is acknowledged to the root before.
 *
 * A leader whose membership fails tells the other leaders, so that none of them waits for data that
 * will not come. Then the agreement says that the round has failed, the channel is closed, and the
 * whole broadcast is done again by the MPI library, as are all later ones of the communicator.
 */
struct channel;

/* Makes a channel that is closed. NULL: there is no memory. */
struct channel *new_channel(void);

/*
 * Opens a channel. All ranks of comm call it at the same time, each with a new one, and all of them
 * get the same answer. false: there is no group.
 */
bool open_channel(struct channel *channel, MPI_Comm comm);

/* Frees a channel. The ranks may do so at different times. */
void close_channel(struct channel *channel);

/*
 * Gives the bytes of rank root to all ranks by the group. A rank that has no place for them passes
 * NULL. All ranks get the same answer; false: the bytes are undefined, and the channel is of no use
 * any more.
 */
bool broadcast(struct channel *channel, char *bytes, size_t length, int root);

/* The communicator of the channel that has the ranks of comm. Errors are returned. */
MPI_Comm ranks_of(const struct channel *channel);

#endif
