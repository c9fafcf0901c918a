// SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause)
//go:build ignore

/*
 * The receivers' NIC: an RC responder that looks at QPN and PSN, counts the packets that arrive in
 * order, once each, and drops them. What has to be answered goes up to user space, which sends the
 * answer: a packet that asks for an acknowledgement, and the first packet behind a gap. It is the
 * same program for every contestant.
 */
#include "../frame.h"

enum { QUEUES = 64 };

enum {
	MODE_ALL_UP = 1, /* every frame goes up to be verified */
	MODE_STAMP = 2,  /* the time of arrival is noted */
};

/* One queue pair of this receiver. */
struct flow {
	__u32 expected; /* PSN */
	__u32 refused;  /* a packet behind a gap went up and the gap is still there */
};

/* What one queue has seen. One CPU at a time runs a queue's program, so no counter is atomic. */
struct seen {
	__u64 taken;    /* packets that were the next of their flow */
	__u64 repeated; /* packets that had been taken before */
	__u64 beyond;   /* packets behind a gap */
	__u64 strange;  /* RoCE frames of no flow */
	__u64 arrived;  /* when the last packet was taken, CLOCK_MONOTONIC in nanoseconds */
};

volatile const __u32 first_qpn, flow_count;
volatile __u32 mode;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set when it is loaded */
	__type(key, __u32);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, QUEUES);
	__type(key, __u32);
	__type(value, struct seen);
} queues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

static inline __attribute__((always_inline)) const struct frame *roce(struct xdp_md *ctx)
{
	const struct frame *f = (void *)(long)ctx->data;

	return (void *)(f + 1) <= (void *)(long)ctx->data_end && is_roce(f) ? f : (void *)0;
}

static inline __attribute__((always_inline)) int up(struct xdp_md *ctx)
{
	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);
}

SEC("xdp.frags")
int respond(struct xdp_md *ctx)
{
	const struct frame *f = roce(ctx);
	__u32 queue = ctx->rx_queue_index, index, ahead;
	struct flow *flow;
	struct seen *s;

	if (!f)
		return XDP_PASS;
	s = bpf_map_lookup_elem(&queues, &queue);
	if (!s)
		return XDP_DROP;
	index = (bpf_ntohl(f->qpn) & BITS24) - first_qpn;
	flow = index < flow_count ? bpf_map_lookup_elem(&flows, &index) : (void *)0;
	if (!flow) {
		s->strange++;
		return mode & MODE_ALL_UP ? up(ctx) : XDP_DROP;
	}
	ahead = (bpf_ntohl(f->psn) - flow->expected) & BITS24;
	if (ahead == 0) {
		flow->expected = (flow->expected + 1) & BITS24;
		flow->refused = 0;
		if (mode & MODE_STAMP)
			s->arrived = bpf_ktime_get_ns();
		s->taken++;
	} else if (ahead < 1 << 23) {
		s->beyond++;
		if (flow->refused && !(mode & MODE_ALL_UP))
			return XDP_DROP;
		flow->refused = 1;
		return up(ctx);
	} else {
		s->repeated++;
	}
	return f->psn & bpf_htonl(1u << 31) || mode & MODE_ALL_UP ? up(ctx) : XDP_DROP;
}

/* The source's NIC: what it is told goes up to user space. */
SEC("xdp.frags")
int listen(struct xdp_md *ctx)
{
	return roce(ctx) ? up(ctx) : XDP_PASS;
}
