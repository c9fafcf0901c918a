/*
 * A device that exists only in this process: queue pairs whose peer is a group reach all others
 * with the same peer, and one whose peer is a queue pair reaches that one. It carries SENDs.
 */
#ifndef DEVICE_H
#define DEVICE_H

#include "../../../host/internal.h"

/* A host with that address. The box is the one at $ROCAST_BOX. */
struct rocast *new_host(const char *address);

/* Whether what is sent to groups arrives. */
void let_groups_work(bool work);

/*
 * The next so many tries to connect a queue pair fail with an error. It is ETIMEDOUT where nobody
 * tells the peer's MAC.
 */
void lose_answers(unsigned tries, int error);

/* A queue pair that ends fails so many receives, as it does one that a message fills in part. */
void spoil_receives(unsigned count);

/* The next so many receives are taken, and those behind them refused. */
void take_receives(unsigned count);

/* Registrations fail with this error, or, with 0, as those of the kernel. */
void refuse_registrations(int error);

/* How many there are. */
unsigned registrations(void);

/* The kernel says that this program has so much pinned. 0: what is true. */
void pin_elsewhere(unsigned kib);

/* The program may lock more than its limit, as root may. */
void let_lock(bool let);

/*
 * The time of CLOCK_MONOTONIC, in ns, which stands still. Timers expire when they are to. 0: the
 * real time.
 */
void set_clock(int64_t ns);

/* When the timer that was set last expires, in ns. 0: never. */
int64_t timer_at(void);

/* The traffic class of the queue pair that was connected last. */
unsigned traffic_class(void);

#endif
