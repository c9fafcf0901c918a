/* Work requests: posted from commands, kept at a depth, reported as they complete. */
#ifndef ROCAST_TRANSFER_H
#define ROCAST_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "command.h"
#include "endpoint.h"

/*
 * A job is one command's messages on the send queue. Message i uses slot i: slots of the message's size lie side by
 * side, here and at the peer, and start again when the region is used up.
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
	enum ibv_wc_status first_failure; /* success while none */
};

struct transfers {
	struct job job;
	uint64_t recvs_posted;
	uint32_t recv_bytes; /* of those posted last */
	uint64_t recv_slot;  /* of the next one */
};

/* is_job says whether a verb is one start_job knows. */
bool is_job(const char *verb);
void start_job(struct endpoint *ep, struct transfers *t, const struct command *command);
void post_receives(struct endpoint *ep, struct transfers *t, const struct command *command);

/* drain_completions reports what the completion queue holds, asks for the next event, and posts what may follow. */
void drain_completions(struct endpoint *ep, struct transfers *t);

#endif
