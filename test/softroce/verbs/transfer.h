/* Work requests. Commands start them, and completions are reported. */
#ifndef ROCAST_TRANSFER_H
#define ROCAST_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "command.h"
#include "endpoint.h"

/*
 * A job is the messages of one command on the send queue. Message i uses slot i of the region here
 * and at the peer. A slot is as large as a message. After the last slot the first slot is used
 * again.
 */
struct job {
	bool active;
	const char *name;
	enum ibv_wr_opcode opcode;
	enum ibv_wr_opcode last_opcode; /* of the last message */
	uint32_t imm;
	uint32_t rkey;
	uint64_t remote_va;
	uint32_t bytes;
	uint64_t slots;
	uint64_t count;
	uint64_t depth;
	uint64_t posted;
	uint64_t completed;
	uint64_t succeeded;
	uint64_t started_us;
	enum ibv_wc_status first_failure; /* IBV_WC_SUCCESS: no failure yet */
};

struct transfers {
	struct job job;
	uint64_t recvs_posted;
	uint32_t recv_bytes; /* size of the receives posted last */
	uint64_t recv_slot;  /* slot of the next receive */
};

/* is_job says whether start_job knows a verb. */
bool is_job(const char *verb);
void start_job(struct endpoint *ep, struct transfers *t, const struct command *command);
void post_receives(struct endpoint *ep, struct transfers *t, const struct command *command);

/*
 * drain_completions reports what the completion queue has, asks for the next event, and posts the
 * next messages of the job.
 */
void drain_completions(struct endpoint *ep, struct transfers *t);

#endif
