// SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause)
//go:build ignore

/*
 * The limit: what replication in the kernel costs at least. The ingress program broadcasts to all
 * receivers' ports; the program of each port rewrites the copy from constants, as forward.c does,
 * but leaves the ICRC as it came. It decides nothing, so it is no switch: no receiver's NIC would
 * take its copies. Answers go to the source's port as they are.
 */
#include "../frame.h"

enum { PORTS_MAX = 1024 };

/* workload.Edit, of the one group. */
struct edit {
	__u8 l2[14];
	__u16 checksum;
	__u32 src, dst, qpn, rkey;
	__u32 psn, icrc;
	__u64 va;
};

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 64);
	__uint(key_size, 4);
	__uint(value_size, 8); /* ifindex and program */
} receivers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32); /* ifindex */
} source SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS_MAX);
	__type(key, __u32); /* the port's ifindex */
	__type(value, struct edit);
} edits SEC(".maps");

static inline __attribute__((always_inline)) int roce(struct xdp_md *ctx)
{
	const struct frame *f = (void *)(long)ctx->data;

	return (void *)(f + 1) <= (void *)(long)ctx->data_end && is_roce(f);
}

/* At the source's port. */
SEC("xdp")
int ingress(struct xdp_md *ctx)
{
	return roce(ctx) ? bpf_redirect_map(&receivers, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS) : XDP_PASS;
}

/* At each receiver's port. */
SEC("xdp")
int answers(struct xdp_md *ctx)
{
	return roce(ctx) ? bpf_redirect_map(&source, 0, XDP_PASS) : XDP_PASS;
}

SEC("xdp/devmap")
int egress(struct xdp_md *ctx)
{
	struct frame *f = (void *)(long)ctx->data;
	struct reth *reth = (void *)(f + 1);
	__u32 port = ctx->egress_ifindex, sum;
	struct edit *e;

	if ((void *)(reth + 1) > (void *)(long)ctx->data_end || f->ttl <= 1)
		return XDP_DROP;
	e = bpf_map_lookup_elem(&edits, &port);
	if (!e)
		return XDP_DROP;
	__builtin_memcpy(f, e->l2, 14);
	sum = (__u16)~bpf_htons(f->check) + e->checksum;
	f->check = bpf_htons((__u16) ~(sum + (sum >> 16)));
	f->ttl--;
	f->saddr = e->src;
	f->daddr = e->dst;
	f->udp_check = 0;
	f->qpn = (f->qpn & bpf_htonl(~BITS24)) | e->qpn;
	f->psn = (f->psn & bpf_htonl(~BITS24)) | bpf_htonl((bpf_ntohl(f->psn) + e->psn) & BITS24);
	reth->va = bpf_be64(bpf_be64(reth->va) + e->va);
	reth->rkey = e->rkey;
	return XDP_PASS;
}
