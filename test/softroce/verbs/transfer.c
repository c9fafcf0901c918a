#include "transfer.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "report.h"

/*
 * The opcode of a failed completion is undefined, so the work request ID says which queue it was
 * on.
 */
#define RECV_MARK (UINT64_C(1) << 63)

static const struct {
	const char *verb;
	enum ibv_wr_opcode opcode, with_imm;
} job_kinds[] = {
	{ "write", IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM },
	{ "send", IBV_WR_SEND, IBV_WR_SEND_WITH_IMM },
	{ "read", IBV_WR_RDMA_READ, IBV_WR_RDMA_READ },
	{ "fetch_add", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD },
};

enum { JOB_KINDS = sizeof(job_kinds) / sizeof(job_kinds[0]) };

static int job_kind(const char *verb)
{
	for (int i = 0; i < JOB_KINDS; i++)
		if (strcmp(verb, job_kinds[i].verb) == 0)
			return i;
	return -1;
}

bool is_job(const char *verb)
{
	return job_kind(verb) >= 0;
}

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* slots_in is how many messages fit into the region. */
static uint64_t slots_in(const struct endpoint *ep, uint64_t bytes)
{
	return bytes == 0 ? 1 : ep->region_bytes / bytes;
}

static struct ibv_sge slot(const struct endpoint *ep, uint64_t offset, uint32_t bytes)
{
	return (struct ibv_sge){ .addr = (uintptr_t)ep->region + offset, .length = bytes, .lkey = ep->mr->lkey };
}

static int post_send(struct endpoint *ep, const struct job *job)
{
	uint64_t at = job->posted % job->slots * job->bytes;
	struct ibv_sge sge = slot(ep, at, job->bytes);
	struct ibv_send_wr *bad, wr = {
		.wr_id = job->posted,
		.opcode = job->posted + 1 == job->count ? job->last_opcode : job->opcode,
		.sg_list = &sge,
		.num_sge = job->bytes > 0,
		.imm_data = htonl(job->imm),
	};

	if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = job->remote_va + at;
		wr.wr.atomic.rkey = job->rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = job->remote_va + at;
		wr.wr.rdma.rkey = job->rkey;
	}
	return ibv_post_send(ep->qp, &wr, &bad);
}

static void report_done(struct job *job)
{
	job->active = false;
	report("done", ",\"op\":\"%s\",\"count\":%" PRIu64 ",\"ok\":%" PRIu64 ",\"us\":%" PRIu64 ",\"status\":\"%s\"",
	       job->name, job->completed, job->succeeded, now_us() - job->started_us,
	       ibv_wc_status_str(job->first_failure));
}

/*
 * advance posts messages until as many as the depth are outstanding. It posts none after the first
 * failure, and ends the job when no message is outstanding.
 */
static void advance(struct endpoint *ep, struct job *job)
{
	while (job->active && job->first_failure == IBV_WC_SUCCESS && job->posted < job->count &&
	       job->posted - job->completed < job->depth) {
		int error = post_send(ep, job);

		if (error) {
			report_errno(job->name, error);
			job->count = job->posted;
			break;
		}
		job->posted++;
	}
	if (job->active && job->completed == job->posted)
		report_done(job);
}

void start_job(struct endpoint *ep, struct transfers *t, const struct command *command)
{
	int kind = job_kind(command->verb), last = job_kind(text_field(command, "last", command->verb));
	struct job job = {
		.active = true,
		.name = job_kinds[kind].verb,
		.opcode = has_field(command, "imm") ? job_kinds[kind].with_imm : job_kinds[kind].opcode,
		.imm = (uint32_t)number_field(command, "imm", 0),
		.rkey = (uint32_t)number_field(command, "rkey", 0),
		.remote_va = number_field(command, "va", 0),
		.bytes = (uint32_t)number_field(command, "bytes", sizeof(uint64_t)),
		.count = number_field(command, "count", 1),
		.depth = number_field(command, "depth", 1),
		.started_us = now_us(),
	};

	job.slots = slots_in(ep, job.bytes);
	job.last_opcode = last < 0 || last == kind ? job.opcode : job_kinds[last].opcode;
	if (t->job.active) {
		report_error("%s: the %s before has not ended", job.name, t->job.name);
	} else if (job.slots == 0 || job.depth == 0 || job.depth > SEND_DEPTH) {
		report_error("%s: region or send queue too small", job.name);
	} else {
		t->job = job;
		advance(ep, &t->job);
	}
}

void post_receives(struct endpoint *ep, struct transfers *t, const struct command *command)
{
	uint64_t count = number_field(command, "count", 1);
	uint32_t bytes = (uint32_t)number_field(command, "bytes", 0);
	uint64_t slots = slots_in(ep, bytes);

	if (slots == 0) {
		report_error("recv: region too small");
		return;
	}
	if (bytes != t->recv_bytes) {
		/* Slots of another size begin at the start of the region. */
		t->recv_bytes = bytes;
		t->recv_slot = 0;
	}
	for (; count > 0; count--) {
		struct ibv_sge sge = slot(ep, t->recv_slot % slots * bytes, bytes);
		struct ibv_recv_wr *bad, wr = {
			.wr_id = RECV_MARK | t->recvs_posted, .sg_list = &sge, .num_sge = bytes > 0,
		};
		int error = ibv_post_recv(ep->qp, &wr, &bad);

		if (error) {
			report_errno("recv", error);
			break;
		}
		t->recvs_posted++;
		t->recv_slot++;
	}
	report("posted", ",\"recvs\":%" PRIu64, t->recvs_posted);
}

/* report_received names the operation that used the receive: a SEND or a WRITE with immediate. */
static void report_received(const struct ibv_wc *wc)
{
	report("completion",
	       ",\"queue\":\"recv\",\"wr_id\":%" PRIu64 ",\"status\":\"%s\",\"opcode\":\"%s\",\"bytes\":%u,\"imm\":%u",
	       wc->wr_id & ~RECV_MARK, ibv_wc_status_str(wc->status),
	       wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM ? "write" : "send", wc->byte_len,
	       wc->wc_flags & IBV_WC_WITH_IMM ? ntohl(wc->imm_data) : 0);
}

/* report_failure reports all fields that are defined if the status is not success. */
static void report_failure(const struct ibv_wc *wc)
{
	report("completion", ",\"queue\":\"%s\",\"wr_id\":%" PRIu64 ",\"status\":\"%s\"",
	       wc->wr_id & RECV_MARK ? "recv" : "send", wc->wr_id & ~RECV_MARK, ibv_wc_status_str(wc->status));
}

static void complete_send(struct job *job, const struct ibv_wc *wc)
{
	job->completed++;
	if (wc->status == IBV_WC_SUCCESS)
		job->succeeded++;
	else if (job->first_failure == IBV_WC_SUCCESS)
		job->first_failure = wc->status;
}

static void complete(struct transfers *t, const struct ibv_wc *wc)
{
	bool recv = wc->wr_id & RECV_MARK;

	/* Messages that were sent with success are only counted, because a job has thousands. */
	if (wc->status != IBV_WC_SUCCESS)
		report_failure(wc);
	else if (recv)
		report_received(wc);
	if (!recv)
		complete_send(&t->job, wc);
}

static void poll_all(struct endpoint *ep, struct transfers *t)
{
	enum { BATCH = 32 };
	struct ibv_wc wc[BATCH];
	int n;

	while ((n = ibv_poll_cq(ep->cq, BATCH, wc)) > 0)
		for (int i = 0; i < n; i++)
			complete(t, &wc[i]);
}

void drain_completions(struct endpoint *ep, struct transfers *t)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(ep->channel, &cq, &context) == 0)
		ibv_ack_cq_events(cq, 1);
	/*
	 * Ask for the next event before emptying the queue, so that no completion in between is missed.
	 */
	ibv_req_notify_cq(ep->cq, 0);
	poll_all(ep, t);
	advance(ep, &t->job);
}
