/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>

#include "internal.h"

enum {
	BATCH = 16,
	MAX_BYTES = 1 << 30, /* of an operation: what every device can send as one message is 2^31 */
	/*
	 * Besides completions there are members and the box to look after: so often at most, and least.
	 */
	LOOK_MS = 5,
	SLEEP_MS = 100,
};

/* The identifier of a work request. Operations have their numbers. */
static const uint64_t RECEIVE = UINT64_C(1) << 63, PROBE = UINT64_C(1) << 62;

bool is_message(const struct operation *op)
{
	return op->verb != VERB_WRITE;
}

/* The bytes of the program. */
static uint64_t own_bytes(const struct operation *op)
{
	return op->bytes - op->head;
}

static struct operation *operation(struct rocast_group *group, uint64_t number)
{
	return &group->operations[number % group->send_depth];
}

static void add_completion(struct rocast_group *group, bool of_operation, struct rocast_completion completion)
{
	unsigned room = group->send_depth + group->receive_depth;

	*(of_operation ? &group->ready_sends : &group->ready_receives) += 1;
	group->ready[(group->ready_first + group->ready_count++) % room] = (struct report){ completion, of_operation };
}

/* Completes the operations that everyone has. */
static void retire(struct rocast_group *group)
{
	uint64_t through = group->way == ROCAST_MULTICAST ? group->done : group->next;

	if (group->way == ROCAST_UNICAST) {
		if (outgoing_links(group) == 0)
			return;
		for (struct link *l = group->links; l; l = l->next)
			if (l->outgoing && l->done < through)
				through = l->done;
	}
	for (; group->oldest < through; group->oldest++) {
		group->completed_bytes += own_bytes(operation(group, group->oldest));
		add_completion(group, true, (struct rocast_completion){ .kind = ROCAST_DONE, .id = operation(group, group->oldest)->id });
	}
}

void fail_everything(struct rocast_group *group)
{
	group->broken = true;
	for (; group->oldest < group->next; group->oldest++)
		add_completion(group, true, (struct rocast_completion){ .kind = ROCAST_FAILED, .id = operation(group, group->oldest)->id });
	group->posted = group->allowed = group->done = group->next;
}

/*
 * The source has left, or a member has ended the group, so nothing arrives any more. What has
 * arrived is among the completions, and nothing fills the receives that are left.
 */
static void end_group(struct rocast_group *group)
{
	(void)fail(ROCAST_EBROKEN, "%s", group->reason);
	end_multicast(group);
	tell_all(group, MESSAGE_END); /* members that receive from this one ask the box nothing */
	close_links(group, false);
	fail_everything(group);
	for (unsigned slot = 0; slot < group->receive_depth; slot++) {
		struct receive *r = &group->receives[slot];

		if (!r->posted)
			continue;
		r->posted = false;
		group->receives_posted--;
		add_completion(group, false, (struct rocast_completion){ .kind = ROCAST_FAILED, .id = r->id });
	}
}

static void received(struct rocast_group *group, const struct ibv_wc *wc)
{
	struct receive *slot = &group->receives[wc->wr_id & ~RECEIVE];
	struct rocast_completion completion = { .kind = ROCAST_FAILED, .id = slot->id };

	if (wc->status == IBV_WC_SUCCESS) {
		completion.bytes = wc->byte_len;
		if (!group->stream) /* else it is looked at first */
			group->received_bytes += wc->byte_len;
		completion.kind = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM ? ROCAST_IMMEDIATE : ROCAST_RECEIVED;
		if (completion.kind == ROCAST_IMMEDIATE)
			completion.immediate = be32toh(wc->imm_data);
		if (group->qp && wc->qp_num == group->qp->qp_num)
			group->has = ++group->message;
	} else if (!group->dying) {
		group->failed = true;
	}
	slot->posted = false;
	group->receives_posted--;
	add_completion(group, false, completion);
}

static void sent(struct rocast_group *group, const struct ibv_wc *wc)
{
	if (wc->wr_id & PROBE)
		group->probing = false;
	if (wc->status != IBV_WC_SUCCESS) {
		if (wc->wr_id & PROBE)
			group->probe_failed = true;
		if (!group->dying && !group->failed) {
			group->failed = true;
			(void)fail(ROCAST_EBROKEN, "group %s: %s", group->name, ibv_wc_status_str(wc->status));
		}
		return;
	}
	group->progress_at = now_ms();
	if (wc->wr_id & PROBE) {
		group->probed = true;
		return;
	}
	group->done = wc->wr_id + 1;
	if (is_message(operation(group, wc->wr_id)) && operation(group, wc->wr_id)->message >= group->has)
		group->has = operation(group, wc->wr_id)->message + 1;
}

static void sent_by_link(struct rocast_group *group, const struct ibv_wc *wc)
{
	struct link *l = link_of(group, wc->qp_num);

	if (!l)
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		l->lost = true;
		return;
	}
	group->progress_at = now_ms();
	l->done = wc->wr_id + 1;
}

/* Takes what the device has completed. */
void take_completions(struct rocast_group *group)
{
	struct ibv_wc wc[BATCH];
	int n;

	while ((n = ibv_poll_cq(group->cq, BATCH, wc)) > 0) {
		for (int i = 0; i < n; i++) {
			if (wc[i].wr_id & RECEIVE)
				received(group, &wc[i]);
			else
				sent(group, &wc[i]);
		}
	}
	while (group->link_cq && (n = ibv_poll_cq(group->link_cq, BATCH, wc)) > 0)
		for (int i = 0; i < n; i++)
			sent_by_link(group, &wc[i]);
	retire(group);
}

/*
 * Ends the group's queue pair. Afterwards nothing arrives by the group any more, and what has
 * arrived is among the completions.
 */
void end_multicast(struct rocast_group *group)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	forget(&group->watch); /* its answer would be about this membership, not about the next one */
	if (!group->qp)
		return;
	group->dying = true;
	(void)ibv_modify_qp(group->qp, &attr, IBV_QP_STATE); /* it may be in that state */
	take_completions(group);
	/*
	 * A device may forget completions with the queue pair, and another one may add some until then.
	 */
	struct ibv_qp *qp = group->qp;

	ibv_destroy_qp(qp);
	take_completions(group);
	group->qp = NULL;
	group->dying = group->failed = group->probing = false;
	group->way = ROCAST_UNICAST;
	group->posted = group->allowed = group->oldest; /* what goes again counts again */
}

int post_operation(struct ibv_qp *qp, const struct operation *op, const struct target *targets, uint64_t number)
{
	struct ibv_sge sge = { .addr = (uintptr_t)op->from, .length = op->bytes, .lkey = op->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = number, .sg_list = &sge, .num_sge = op->bytes > 0 };

	switch (op->verb) {
	case VERB_WRITE:
		wr.opcode = IBV_WR_RDMA_WRITE;
		break;
	case VERB_WRITE_IMMEDIATE:
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.imm_data = htobe32(op->immediate);
		break;
	case VERB_SEND:
		wr.opcode = IBV_WR_SEND;
		break;
	}
	if (op->verb != VERB_SEND && op->bytes > 0) { /* a write of nothing names no memory */
		wr.wr.rdma.remote_addr = targets[op->region].va + op->offset;
		wr.wr.rdma.rkey = targets[op->region].rkey;
	}
	return ibv_post_send(qp, &wr, &bad);
}

/* Posts a write of nothing to the group, which is no operation of the program. */
int post_probe(struct rocast_group *group)
{
	const struct operation nothing = { .verb = VERB_WRITE };

	group->probed = group->probe_failed = false;
	group->progress_at = now_ms();
	if (post_operation(group->qp, &nothing, group->targets, PROBE))
		return -1;
	group->probing = true;
	return 0;
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Wakes whoever waits for the group's descriptor at this time. 0: does not. */
static void set_timer(struct rocast_group *group, int64_t at)
{
	struct itimerspec when = { .it_value = { .tv_sec = at / 1000000000, .tv_nsec = at % 1000000000 } };

	if (group->timer < 0 || group->timer_at == at)
		return;
	group->timer_at = at;
	(void)timerfd_settime(group->timer, TFD_TIMER_ABSTIME, &when, NULL); /* it is not readable before */
}

/*
 * Lets operations go as the group's rate allows: each when those before have had their time. By
 * single connections each operation takes its bytes once for each of them.
 */
static void allow(struct rocast_group *group)
{
	/*
	 * A program that calls late by so much makes up for it, so that the rate is the one that was
	 * set. No operation takes longer than NEVER, which fits into the clock.
	 */
	static const int64_t LATE = 10000000, NEVER = INT64_C(1) << 60;
	unsigned copies = group->way == ROCAST_MULTICAST ? 1 : outgoing_links(group);
	int64_t now, free_at;

	if (group->rate == 0)
		group->allowed = group->next;
	if (group->allowed < group->oldest) /* the receivers had it before the way changed */
		group->allowed = group->oldest;
	for (; group->allowed < group->next && copies > 0; group->allowed++) {
		double lasts = group->paced_bytes * 1e9 / (double)group->rate;

		now = now_ns();
		free_at = group->paced_from + (lasts < (double)NEVER ? (int64_t)lasts : NEVER);
		if (now < free_at) {
			set_timer(group, free_at);
			return;
		}
		group->paced_from = free_at > now - LATE ? free_at : now - LATE;
		group->paced_bytes = (double)operation(group, group->allowed)->bytes * copies;
	}
	set_timer(group, 0);
}

/* Gives the device the operations that it does not have yet. */
void push(struct rocast_group *group)
{
	allow(group);
	if (group->way == ROCAST_UNICAST) {
		if (!group->returning && !group->rejoin)
			send_away(group);
		return;
	}
	for (; group->posted < group->allowed; group->posted++) {
		struct operation *op = operation(group, group->posted);

		if (group->posted == group->oldest)
			group->progress_at = now_ms();
		op->message = group->message;
		if (post_operation(group->qp, op, group->targets, group->posted))
			return; /* later, or the completions say why not */
		op->pushed = true;
		if (is_message(op))
			group->message++;
	}
}

static int check_local(const struct rocast_group *group, const struct rocast_memory *local, const void *at, size_t bytes)
{
	uintptr_t begin = (uintptr_t)at, memory;

	if (bytes == 0)
		return ROCAST_OK;
	if (!local || local->host != group->host)
		return fail(ROCAST_EARGUMENT, "the bytes are in no memory that was registered with the group's device");
	memory = (uintptr_t)local->mr->addr;
	if (begin < memory || bytes > local->mr->length || begin - memory > local->mr->length - bytes)
		return fail(ROCAST_EARGUMENT, "%zu bytes at %p are not in the registered memory, which has %zu bytes at %p", bytes, at,
			    local->mr->length, local->mr->addr);
	return ROCAST_OK;
}

int check_way(const struct rocast_group *group)
{
	if (group->ended)
		return fail(ROCAST_EBROKEN, "%s", group->reason);
	if (group->broken)
		return fail(ROCAST_EBROKEN, "group %s has no way to its members any more; leave it", group->name);
	return ROCAST_OK;
}

static int check_plain(const struct rocast_group *group)
{
	if (group->stream)
		return fail(ROCAST_EARGUMENT, "group %s carries streams; call rocast_stream_write and rocast_stream_read", group->name);
	return ROCAST_OK;
}

static int post(struct rocast_group *group, const struct rocast_memory *local, size_t bytes, struct operation op)
{
	int error = check_process(group->host);

	if (!error && op.head == 0)
		error = check_plain(group);
	if (!error)
		error = check_local(group, local, op.from, bytes);
	if (error)
		return error;
	if (group->role == ROCAST_RECEIVER)
		return fail(ROCAST_EARGUMENT, "a receiver of group %s cannot send; join with ROCAST_SOURCE or ROCAST_BOTH", group->name);
	if (bytes > MAX_BYTES)
		return fail(ROCAST_EARGUMENT, "%zu bytes are more than the %d of one operation", bytes, MAX_BYTES);
	if (op.verb != VERB_SEND && bytes > 0 &&
	    (op.region >= group->region_count || bytes > group->region_bytes[op.region] ||
	     op.offset > group->region_bytes[op.region] - bytes))
		return fail(ROCAST_EARGUMENT, "%zu bytes at offset %llu are not in region %u of group %s, which has %u regions%s", bytes,
			    (unsigned long long)op.offset, op.region, group->name, group->region_count,
			    op.region < group->region_count ? ", and that one is shorter" : "");
	if ((error = check_way(group)))
		return error;
	if (group->next - group->oldest + group->ready_sends >= group->send_depth)
		return fail(ROCAST_EFULL, "%u operations of group %s are not complete, or their completions were not taken; take them first",
			    group->send_depth, group->name);
	op.bytes = (uint32_t)bytes;
	op.lkey = bytes > 0 ? local->mr->lkey : 0;
	group->posted_bytes += own_bytes(&op);
	*operation(group, group->next++) = op;
	push(group);
	return ROCAST_OK;
}

int rocast_write(struct rocast_group *group, const struct rocast_memory *local, const void *from, size_t bytes,
		 unsigned region, uint64_t offset, uint64_t id)
{
	return post(group, local, bytes, (struct operation){ .verb = VERB_WRITE, .from = from, .region = region, .offset = offset, .id = id });
}

int rocast_write_immediate(struct rocast_group *group, const struct rocast_memory *local, const void *from, size_t bytes,
			   unsigned region, uint64_t offset, uint32_t immediate, uint64_t id)
{
	return post(group, local, bytes, (struct operation){ .verb = VERB_WRITE_IMMEDIATE, .from = from, .region = region,
		    .offset = offset, .immediate = immediate, .id = id });
}

int rocast_send(struct rocast_group *group, const struct rocast_memory *local, const void *from, size_t bytes, uint64_t id)
{
	return post(group, local, bytes, (struct operation){ .verb = VERB_SEND, .from = from, .id = id });
}

/* Sends a piece of a stream. */
int post_piece(struct rocast_group *group, const struct rocast_memory *local, const void *from, size_t bytes)
{
	return post(group, local, bytes, (struct operation){ .verb = VERB_SEND, .from = from, .head = HEAD_BYTES });
}

int post_receive(struct rocast_group *group, const struct rocast_memory *local, void *into, size_t bytes, uint64_t id)
{
	struct ibv_sge sge = { .addr = (uintptr_t)into, .length = (uint32_t)bytes };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = bytes > 0 };
	unsigned slot = 0;
	int error = check_local(group, local, into, bytes);

	if (error)
		return error;
	if (bytes > 0 && local->read_only)
		return fail(ROCAST_EARGUMENT, "this memory was registered only to send from; receive into other memory");
	if (!group->srq)
		return fail(ROCAST_EARGUMENT, "the source of group %s receives nothing; join with ROCAST_BOTH", group->name);
	if (bytes > MAX_BYTES)
		return fail(ROCAST_EARGUMENT, "%zu bytes are more than the %d of one operation", bytes, MAX_BYTES);
	if ((error = check_way(group)))
		return error;
	if (group->receives_posted + group->ready_receives >= group->receive_depth)
		return fail(ROCAST_EFULL, "%u receives of group %s are posted, or their completions were not taken; take them first",
			    group->receive_depth, group->name);
	while (group->receives[slot].posted)
		slot++;
	if (bytes > 0)
		sge.lkey = local->mr->lkey;
	wr.wr_id = RECEIVE | slot;
	if ((error = ibv_post_srq_recv(group->srq, &wr, &bad)))
		return fail(ROCAST_EDEVICE, "a receive cannot be posted (%s)", strerror(error));
	group->receives[slot] = (struct receive){ .id = id, .posted = true };
	group->receives_posted++;
	return ROCAST_OK;
}

int rocast_receive(struct rocast_group *group, const struct rocast_memory *local, void *into, size_t bytes, uint64_t id)
{
	int error = check_process(group->host);

	if (!error)
		error = check_plain(group);
	return error ? error : post_receive(group, local, into, bytes, id);
}

/* Whether what is on its way by the group takes too long. */
static bool is_stuck(const struct rocast_group *group, int64_t now)
{
	uint64_t bytes = 0;

	if (group->way != ROCAST_MULTICAST || (group->oldest == group->posted && !group->probing))
		return false;
	for (uint64_t n = group->oldest; n < group->posted; n++)
		bytes += group->operations[n % group->send_depth].bytes;
	return now - group->progress_at > group->give_up_ms + (int64_t)(bytes / BYTES_PER_MS);
}

static unsigned longer(unsigned pause_ms)
{
	enum { LONGEST = 60000 };

	return pause_ms < LONGEST / 2 ? 2 * pause_ms : LONGEST;
}

/* Nothing gets through by the group: goes on by single connections. */
static void fall_back(struct rocast_group *group, int64_t now)
{
	enum { FIRST = 1000, SETTLED = 30000 };

	end_multicast(group);
	if (group->without_fallback) {
		fail_everything(group);
		return;
	}
	group->fallbacks++;
	group->pause_ms = now - group->multicast_since > SETTLED || group->pause_ms == 0 ? FIRST : longer(group->pause_ms);
	group->try_at = now + group->pause_ms;
}

/* Joins the group again, after single connections. */
static void come_back(struct rocast_group *group)
{
	int64_t now = now_ms();
	/* The box may be there and the group not: then the program waits for this, so it is short. */
	int64_t deadline = now + (group->patience_ms < 30000 ? group->patience_ms / 3 : 10000);

	group->rejoin = false;
	set_timer(group, 0); /* nothing is posted before the group works */
	if (group->returning)
		group->members = group->other_count + 1;
	close_links(group, true);
	if (join_group(group, deadline) == ROCAST_OK && group->role != ROCAST_RECEIVER && group->returning && post_probe(group) == 0) {
		while (!group->probed && !group->probe_failed && now_ms() < deadline) {
			wait_a_moment(group, SLEEP_MS);
			take_completions(group);
		}
		if (!group->probed)
			end_multicast(group);
	}
	now = now_ms();
	if (group->way == ROCAST_MULTICAST) {
		group->multicast_since = now;
		group->returns++;
	} else {
		group->pause_ms = longer(group->pause_ms);
		group->try_at = now + group->pause_ms;
	}
	group->returning = false;
}

/*
 * The member that sends by single connections ends the group at the box, if the box answers, and
 * calls the others back. All of them join with new queue pairs, so nothing of the old one arrives.
 */
static void try_to_return(struct rocast_group *group)
{
	struct question question;
	int64_t deadline = now_ms() + 2000;
	int status = tell_box(group, "DELETE", "?whole=1", NULL, deadline, &question);

	forget(&question);
	if (status != 200 && status != 404) {
		group->returning = false;
		group->pause_ms = longer(group->pause_ms);
		group->try_at = now_ms() + group->pause_ms;
		return;
	}
	come_back(group);
}

/* Everything that has to happen besides completions. */
static void look_after(struct rocast_group *group, int64_t now)
{
	bool idle = true; /* nothing is on its way by single connections */

	group->looked_at = now;
	if (group->broken)
		return;
	watch_group(group);
	serve_members(group);
	if (group->ended) {
		end_group(group);
		return;
	}
	if (group->way == ROCAST_MULTICAST &&
	    (group->failed || is_stuck(group, now) || (group->degraded && group->oldest < group->next)))
		fall_back(group, now);
	if (group->way == ROCAST_MULTICAST || group->broken)
		return;
	for (struct link *l = group->links; l; l = l->next) {
		if (l->outgoing && l->lost) {
			group->returning = false;
			close_links(group, true); /* so that nothing is read any more of what has failed */
			fail_everything(group);
			return;
		}
		if (l->outgoing && l->done < l->posted)
			idle = false;
	}
	if (!group->rejoin && outgoing_links(group) > 0 && now >= group->try_at)
		group->returning = true;
	if (idle && group->rejoin)
		come_back(group);
	else if (idle && group->returning)
		try_to_return(group);
	if (group->way == ROCAST_UNICAST && !group->returning && !group->rejoin && group->oldest < group->next &&
	    connect_members(group, now_ms() + group->patience_ms) != ROCAST_OK)
		fail_everything(group);
	push(group);
}

static void acknowledge_wakeups(struct rocast_group *group)
{
	struct ibv_cq *cq;
	void *context;

	while (ibv_get_cq_event(group->channel, &cq, &context) == 0) {
		ibv_ack_cq_events(cq, 1);
		group->armed = false;
	}
}

/* Makes the descriptor readable when something completes. */
static void arm(struct rocast_group *group)
{
	if (group->armed)
		return;
	group->armed = true;
	(void)ibv_req_notify_cq(group->cq, 0);
	if (group->link_cq)
		(void)ibv_req_notify_cq(group->link_cq, 0);
	take_completions(group);
}

void wait_a_moment(struct rocast_group *group, int ms)
{
	struct epoll_event event;
	unsigned before = group->ready_count;
	bool probing = group->probing;

	arm(group);
	if (group->ready_count == before && group->probing == probing)
		(void)epoll_wait(group->sleeper, &event, 1, ms);
	acknowledge_wakeups(group);
}

int poll_group(struct rocast_group *group, struct rocast_completion *completions, unsigned max)
{
	unsigned room = group->send_depth + group->receive_depth, n = 0;
	int64_t now;
	int error = check_process(group->host);

	if (error)
		return error;
	take_completions(group);
	now = now_ms();
	if (now - group->looked_at >= LOOK_MS)
		look_after(group, now);
	push(group);
	if (group->ready_count == 0) {
		acknowledge_wakeups(group);
		arm(group);
	}
	for (; n < max && group->ready_count > 0; n++) {
		const struct report *first = &group->ready[group->ready_first];

		completions[n] = first->completion;
		*(first->of_operation ? &group->ready_sends : &group->ready_receives) -= 1;
		group->ready_first = (group->ready_first + 1) % room;
		group->ready_count--;
	}
	return n > 0 || group->ready_count > 0 ? (int)n : check_way(group);
}

int rocast_poll(struct rocast_group *group, struct rocast_completion *completions, unsigned max)
{
	return poll_group(group, completions, group->stream ? 0 : max); /* those of a stream are not the program's */
}

int rocast_wait(struct rocast_group *group, struct rocast_completion *completions, unsigned max, unsigned timeout_ms)
{
	int64_t end = now_ms() + timeout_ms;

	for (;;) {
		int n = rocast_poll(group, completions, max);
		int64_t left = end - now_ms();

		if (n != 0 || left <= 0)
			return n;
		wait_a_moment(group, left < SLEEP_MS ? (int)left : SLEEP_MS);
	}
}

int rocast_descriptor(const struct rocast_group *group)
{
	return group->sleeper;
}

enum rocast_way rocast_way(const struct rocast_group *group)
{
	return group->way;
}

int rocast_set_rate(struct rocast_group *group, uint64_t bytes_per_second)
{
	struct epoll_event event = { .events = EPOLLIN };
	int error = check_process(group->host);

	if (error)
		return error;
	if (group->role == ROCAST_RECEIVER)
		return fail(ROCAST_EARGUMENT, "a receiver of group %s sends nothing, so it has no rate", group->name);
	if (bytes_per_second > 0 && group->timer < 0) {
		group->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
		if (group->timer < 0)
			return fail(ROCAST_EDEVICE, "no timer can be made (%s)", strerror(errno));
		(void)epoll_ctl(group->sleeper, EPOLL_CTL_ADD, group->timer, &event);
	}
	group->rate = bytes_per_second;
	push(group);
	return ROCAST_OK;
}

/* The bytes of the operations that a member lacks, which has a single connection. */
static uint64_t lacks(const struct rocast_group *group, const struct link *l)
{
	uint64_t bytes = 0;

	for (uint64_t n = l->done > group->oldest ? l->done : group->oldest; n < group->next; n++)
		bytes += own_bytes(&group->operations[n % group->send_depth]);
	return bytes;
}

int rocast_progress(const struct rocast_group *group, struct rocast_progress *progress)
{
	const struct link *slowest = NULL;
	uint64_t least = UINT64_MAX, most = 0;
	int error = check_process(group->host);

	*progress = (struct rocast_progress){ 0 };
	if (error)
		return error;
	progress->posted_bytes = group->posted_bytes;
	progress->completed_bytes = group->completed_bytes;
	progress->received_bytes = group->received_bytes;
	for (const struct link *l = group->links; l; l = l->next) {
		uint64_t bytes = lacks(group, l);

		if (!l->outgoing || !l->ready)
			continue;
		if (bytes < least)
			least = bytes;
		if (bytes > most) {
			most = bytes;
			slowest = l;
		}
	}
	/* Where all lack as much, none of them holds the others up. */
	if (slowest && least < most) {
		address_text(&slowest->peer, progress->slowest);
		progress->slowest_lacks = most;
	}
	return ROCAST_OK;
}

int rocast_become_source(struct rocast_group *group, unsigned timeout_ms)
{
	int64_t end = now_ms() + timeout_ms;
	int error = check_process(group->host);

	if (error)
		return error;
	if (group->role == ROCAST_RECEIVER)
		return fail(ROCAST_EARGUMENT, "a receiver of group %s cannot become its source; join with ROCAST_BOTH", group->name);
	if (group->way == ROCAST_UNICAST) /* each source has connections of its own */
		return check_way(group);
	if (post_probe(group))
		return fail(ROCAST_EFULL, "the queue of group %s is full; take completions first", group->name);
	while (!group->probed && group->way == ROCAST_MULTICAST) {
		if (now_ms() >= end)
			return fail(ROCAST_ETIMEOUT, "not all members of group %s have answered within %u ms; has the source before it finished?",
				    group->name, timeout_ms);
		take_completions(group);
		if (now_ms() - group->looked_at >= LOOK_MS)
			look_after(group, now_ms());
		if (!group->probed)
			wait_a_moment(group, SLEEP_MS);
	}
	return check_way(group);
}
