/* One RC queue pair, set up by hand, and the memory that its peer may access. */
#ifndef ROCAST_ENDPOINT_H
#define ROCAST_ENDPOINT_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "command.h"

enum {
	SEND_DEPTH = 128,
	RECV_DEPTH = 1024,
};

struct endpoint {
	struct ibv_context *device;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *region;
	size_t region_bytes;
	union ibv_gid gid;
	uint8_t gid_index;
	uint32_t psn; /* the first that this side sends */
};

/*
 * open_endpoint makes the QP, which is then in INIT, and everything that the QP needs, from the
 * options of the program. On failure it reports the reason and returns false.
 */
bool open_endpoint(struct endpoint *ep, const struct command *options);
void report_local(const struct endpoint *ep);

/* connect_endpoint brings the QP to RTS with the parameters of the peer. */
void connect_endpoint(struct endpoint *ep, const struct command *peer);

/*
 * fence_endpoint takes the peer's access to the region away. When it has reported that, the peer
 * writes no more.
 */
void fence_endpoint(struct endpoint *ep, const struct command *command);
void report_state(const struct endpoint *ep);

#endif
