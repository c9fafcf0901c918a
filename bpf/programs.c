// SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause)
//go:build ignore

/*
 * All programs in the kernel, in one object. The classifier finds the frames of the groups
 * (classifier.h); it may send the plain packets of armed groups to all receivers (fanout.h), and
 * merge the plain ACKs that come back (answers.h); another program makes each copy what its
 * receiver expects (copies.h).
 *
 *	frame -> rocast_classify -- armed, next PSN, plain -> broadcast -> rocast_fan_out -> port
 *	                        \-- otherwise: disarm ------> AF_XDP socket
 *
 * A frame that is not a group's, or that cannot be redirected, goes to the kernel unchanged. The
 * only frames that are dropped are RoCEv2 frames, fragments and packets with IP options from an
 * address that only the box sends from, and ACKs that are merged.
 */
#include "copies.h"

/* The loader sets it to 0 where the verifier refuses answers.h. Then answers are user space's. */
const volatile __u32 merges_answers = 1;

/* Carries a packet or merges an answer, or returns FOUND: the frame goes to user space. */
static __always_inline int fan_out(struct xdp_md *ctx, const struct frame *f, const struct rocast_port *port)
{
	if (!port)
		return FOUND;
	if (f->meta.kind == KIND_FEEDBACK)
		return merges_answers ? take_answer(ctx, f, port->number) : FOUND;
	return f->meta.kind == KIND_DATA ? carry(ctx, f, port->number) : FOUND;
}

static __always_inline int decide(struct xdp_md *ctx, struct rocast_port *port, const int fans_out)
{
	struct frame f = {
		.cursor = (void *)(long)ctx->data,
		.end = (void *)(long)ctx->data_end,
		.meta.magic = MAGIC,
	};
	int step;

	if ((step = read_ethernet(&f)) != FOUND ||
	    (step = read_ip(&f)) != FOUND ||
	    (step = read_roce(&f)) != FOUND ||
	    (step = find_group(&f)) != FOUND ||
	    (fans_out && (step = fan_out(ctx, &f, port)) != FOUND) ||
	    (step = redirect(ctx, &f, port)) != FOUND)
		return could_be_forged(step) && look_up(&f, MATCH_SRC) ? DROP_OWN_SOURCE : step;
	return REDIRECT_DATA - KIND_DATA + f.meta.kind;
}

/* fans_out is a constant in every call. */
static __always_inline int classify(struct xdp_md *ctx, const int fans_out)
{
	struct rocast_port *port = port_of(ctx->ingress_ifindex);
	__u32 verdict;
	__u64 *frames;

	find_room(ctx, port);
	verdict = decide(ctx, port, fans_out);
	frames = bpf_map_lookup_elem(&counters, &verdict);
	if (frames)
		(*frames)++;
	if (verdict == DROP_OWN_SOURCE || verdict == DROP_MERGED)
		return XDP_DROP;
	return verdict >= REDIRECT_DATA ? XDP_REDIRECT : XDP_PASS;
}

SEC("xdp.frags")
int rocast_classify(struct xdp_md *ctx)
{
	return classify(ctx, 1);
}

/*
 * The classifier without fan-out: ports have it until the verifier has taken fan-out, and for good
 * where it does not. doc.go says why this is no constant that the loader sets.
 */
SEC("xdp.frags")
int rocast_classify_alone(struct xdp_md *ctx)
{
	return classify(ctx, 0);
}

SEC("xdp.frags/devmap")
int rocast_fan_out(struct xdp_md *ctx)
{
	return send(ctx, ctx->egress_ifindex);
}

/*
 * rocast_fan_out with the attach type of a receive path, which BPF_PROG_TEST_RUN can run. Such a
 * program knows no port by which the frame leaves.
 */
SEC("xdp.frags")
int rocast_fan_out_test(struct xdp_md *ctx)
{
	return send(ctx, ctx->ingress_ifindex);
}

char _license[] SEC("license") = "Dual BSD/GPL";
