/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the library share.
 *
 *	error.c    the sentence about the last failure
 *	json.c     JSON texts
 *	box.c      questions to the box
 *	find.c     the box that DNS names
 *	host.c     the RDMA device, registered memory, queue pairs
 *	member.c   joins a group, leaves it, hears how it is
 *	post.c     operations, and their completions
 *	stream.c   messages of any size
 *	single.c   connections to each other member, while the group does not work
 *
 * Operations have numbers. Those below group->oldest are complete, those from group->next on do not
 * exist yet. By the group, operations below group->posted are on their way; by single connections
 * each connection has a number of its own. Those from group->allowed on wait for the group's rate.
 *
 *	     oldest        posted       allowed                 next
 *	 done  |  on the way  |  held back |  held by the rate  |
 */
#ifndef ROCAST_INTERNAL_H
#define ROCAST_INTERNAL_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <sys/types.h>

#include "box.h"
#include "rocast.h"

enum {
	MAX_REGIONS = 4,
	NAME_BYTES = 64, /* of a group, with the 0 at its end */
	SECRET_BYTES = 65,
	POLICY_BYTES = 512,
	MAX_PSN = (1 << 24) - 1,
	DEFAULT_DEPTH = 128,
	MAX_DEPTH = 4096,
	DEFAULT_PATIENCE = 30000,
	DEFAULT_GIVE_UP = 3000,
	/* Operations get 1 ms more than give_up_ms for so many bytes on their way. */
	BYTES_PER_MS = 1000,
	HEAD_BYTES = 32, /* of a piece of a stream */
};

struct rocast {
	pid_t process;
	struct ibv_context *device;
	struct ibv_pd *pd;
	struct ibv_port_attr port;
	uint8_t port_number;
	int gid_index;
	unsigned max_cqe; /* the most completions that a queue of the device holds */
	union address box, local;
	unsigned patience_ms;
	char secret[SECRET_BYTES]; /* "": none */
	char policy[POLICY_BYTES]; /* "": what the others say */
	uint8_t traffic_class;
	struct rocast_memory *memories;
	size_t pinned; /* bytes, by memories */
	struct rocast_group *groups;
};

struct rocast_memory {
	struct rocast *host;
	struct ibv_mr *mr;
	bool read_only; /* it is only sent from */
	size_t pinned;
	unsigned users; /* groups with this region */
	struct rocast_memory *next;
};

/* A region to which a source writes. */
struct target {
	uint64_t va;
	uint32_t rkey;
};

enum verb { VERB_WRITE, VERB_WRITE_IMMEDIATE, VERB_SEND };

struct operation {
	enum verb verb;
	const void *from;
	uint32_t lkey;
	uint32_t bytes;
	uint32_t head; /* of them, bytes that are the library's own */
	unsigned region;
	uint64_t offset;
	uint32_t immediate;
	uint64_t id;
	/* Which message of the group it is, if it was posted there. See struct rocast_group. */
	uint64_t message;
	bool pushed;
};

struct receive {
	uint64_t id;
	bool posted;
};

/* A completion that the program has not taken, of an operation or of a receive. */
struct report {
	struct rocast_completion completion;
	bool of_operation;
};

/* Another member, as the box describes it. */
struct member {
	union address address; /* with the port at which its program answers; 0: unknown */
	bool receives;
};

/* What members tell each other over TCP. */
enum message_kind {
	MESSAGE_HELLO = 1, /* I go on by a single connection; here is its queue pair */
	MESSAGE_HERE,      /* mine is connected, and this is what I have */
	MESSAGE_RETURN,    /* join the group again */
	MESSAGE_END,       /* the group has ended for all */
};

enum { MESSAGE_BYTES = 160 };

/* A connection to one other member. */
struct link {
	struct rocast_group *group;
	union address peer;
	int fd; /* TCP */
	bool outgoing, connected, greeted, ready, lost;
	struct ibv_qp *qp;
	uint32_t psn;
	struct target targets[MAX_REGIONS];
	uint64_t posted, done; /* numbers of operations: outgoing only */
	unsigned char in[MESSAGE_BYTES];
	size_t have;
	struct link *next;
};

struct stream;

struct rocast_group {
	struct rocast *host;
	struct rocast_group *next_group;
	char name[NAME_BYTES];
	enum rocast_role role;
	unsigned members; /* that the group begins with */
	unsigned mtu;     /* wanted, then agreed */
	unsigned patience_ms, give_up_ms;
	bool without_fallback;
	char secret[SECRET_BYTES];
	char policy[POLICY_BYTES];

	struct rocast_memory *regions[MAX_REGIONS];
	unsigned region_count;
	uint64_t region_bytes[MAX_REGIONS]; /* of the group */
	struct target targets[MAX_REGIONS];

	/* As the box says. */
	char ip[ADDRESS_TEXT];
	uint32_t qpn; /* of the group: another one after each return, so it names what was sent between */
	struct member *others;
	unsigned other_count;
	char version[32];
	bool clear, degraded;
	unsigned quorum; /* how many receivers have what is complete; 0: all */
	bool evicts;     /* the group goes on without a receiver */
	char reason[256];

	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq; /* NULL: the member only sends */
	struct ibv_qp *qp;   /* of the group; NULL: the group is not used */
	uint32_t psn, send_psn;
	int sleeper; /* epoll */
	bool armed;

	struct operation *operations; /* number n is at n modulo send_depth */
	unsigned send_depth;
	uint64_t oldest, posted, allowed, next, done;
	uint64_t rate;       /* bytes a second; 0: as fast as it goes */
	int64_t paced_from;  /* when what was allowed last began, in ns; it takes its bytes at the rate */
	double paced_bytes;
	int timer;           /* -1, or what wakes for the next operation; in sleeper */
	int64_t timer_at;    /* 0: it does not run */
	uint64_t posted_bytes, completed_bytes, received_bytes; /* since the member has joined */
	struct receive *receives;
	unsigned receive_depth, receives_posted;
	struct stream *stream; /* NULL: the group carries operations of the program */
	struct report *ready; /* ring */
	unsigned ready_first, ready_count, ready_sends, ready_receives;

	/*
	 * The messages that a receiver notices are counted in the order in which the group carries
	 * them. message is the number of the next one, and has says how many of them this member
	 * certainly has.
	 */
	uint64_t message, has;

	enum rocast_way way;
	bool broken; /* no way is left */
	bool ended;  /* because the source has left, or a member has ended it; reason says so */
	bool dying;  /* the group's queue pair is being ended: its errors are no news */
	bool failed; /* an operation has failed, so the way is left */
	bool returning, rejoin;
	int64_t progress_at, looked_at, multicast_since, try_at;
	unsigned pause_ms, fallbacks, returns;

	int listener; /* for single connections; -1 */
	uint16_t listen_port;
	struct link *links;
	struct ibv_cq *link_cq;
	unsigned link_depth; /* operations on their way by one single connection: link_cq has room for so many of each */
	bool probing, probed, probe_failed;

	struct question watch; /* how the group is */
	int64_t watch_at, watch_until; /* when it is asked next; when an answer counts as lost */
};

/* error.c */
int fail(enum rocast_error error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* host.c */
struct ibv_qp *new_qp(struct rocast *host, struct ibv_cq *cq, struct ibv_srq *srq, unsigned sends);
int connect_qp(struct rocast *host, struct ibv_qp *qp, const union address *peer, uint32_t peer_qpn, uint32_t expects,
	       uint32_t sends, unsigned mtu, int64_t deadline);
uint32_t random_psn(void);
int check_process(const struct rocast *host);

/* member.c */
int join_group(struct rocast_group *group, int64_t deadline);
int tell_box(struct rocast_group *group, const char *method, const char *query, const char *body, int64_t deadline,
	     struct question *question);
void watch_group(struct rocast_group *group);

/* post.c */
void push(struct rocast_group *group);
void take_completions(struct rocast_group *group);
void end_multicast(struct rocast_group *group);
int post_operation(struct ibv_qp *qp, const struct operation *op, const struct target *target, uint64_t number);
int post_probe(struct rocast_group *group);
void fail_everything(struct rocast_group *group);
bool is_message(const struct operation *op);
void wait_a_moment(struct rocast_group *group, int ms);
int check_way(const struct rocast_group *group);
int post_piece(struct rocast_group *group, const struct rocast_memory *local, const void *from, size_t bytes);
int post_receive(struct rocast_group *group, const struct rocast_memory *local, void *into, size_t bytes, uint64_t id);
int poll_group(struct rocast_group *group, struct rocast_completion *completions, unsigned max);

/* stream.c */
void free_stream(struct stream *stream);

/* single.c */
int listen_for_members(struct rocast_group *group);
void serve_members(struct rocast_group *group);
int connect_members(struct rocast_group *group, int64_t deadline);
const struct member *member_at(const struct rocast_group *group, const union address *address);
struct link *link_of(struct rocast_group *group, uint32_t qpn);
unsigned outgoing_links(const struct rocast_group *group);
void send_away(struct rocast_group *group);
void tell_all(struct rocast_group *group, enum message_kind kind);
void close_links(struct rocast_group *group, bool outgoing_only);

#endif
