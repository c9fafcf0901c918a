/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The copies of a packet that is fanned out. The kernel runs this part on each copy in front of the
 * copy's port. A merged ACK, which leaves by a port in the same way, is complete already.
 */
#ifndef ROCAST_COPIES_H
#define ROCAST_COPIES_H

#include "answers.h"

/*
 * All copies of one packet for one port pass rocast_fan_out in a row on one CPU. For each
 * port this is the newest packet; rank counts its copies from 0.
 */
struct rocast_rank {
	__u32 slot_and_epoch;
	__u32 psn;
	__u32 rank;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SLOT_PORTS);
	__type(key, __u32);
	__type(value, struct rocast_rank);
} ranks SEC(".maps");

static __always_inline __u32 apply(const struct rocast_operator *o, __u32 reg)
{
	return o->table[0][reg & 0xff] ^ o->table[1][reg >> 8 & 0xff] ^ o->table[2][reg >> 16 & 0xff] ^ o->table[3][reg >> 24];
}

/*
 * The change of the CRC register that a change of the PSN causes so many bytes behind the PSN.
 * behind is a constant in every call.
 */
static __always_inline __u32 crc_psn(const struct rocast_crc *c, __u32 change, const __u32 behind)
{
	return c->table[behind + 2][change >> 16 & 0xff] ^ c->table[behind + 1][change >> 8 & 0xff] ^
	       c->table[behind][change & 0xff];
}

/*
 * The change of the CRC register at the end of the RETH that a change of the VA causes. The change
 * is given in the byte order of the wire; the RETH ends eight bytes behind the VA.
 */
static __always_inline __u32 crc_va(const struct rocast_crc *c, __u64 change)
{
	return c->table[15][change & 0xff] ^ c->table[14][change >> 8 & 0xff] ^ c->table[13][change >> 16 & 0xff] ^
	       c->table[12][change >> 24 & 0xff] ^ c->table[11][change >> 32 & 0xff] ^ c->table[10][change >> 40 & 0xff] ^
	       c->table[9][change >> 48 & 0xff] ^ c->table[8][change >> 56];
}

/* Rewrites the headers behind the Ethernet header, and the ICRC. For l3_bytes see plain. */
static __always_inline int edit(struct xdp_md *ctx, const struct rocast_path *path, const struct fan_tag *tag, const __u32 l3_bytes)
{
	__u8 *data = (void *)(long)ctx->data, *tail;
	void *end = (void *)(long)ctx->data_end;
	struct udphdr *udp = (void *)(data + sizeof(struct ethhdr) + l3_bytes);
	struct bth *bth = (void *)(udp + 1);
	struct reth *reth = (void *)(bth + 1);
	const struct rocast_operator *behind;
	const struct rocast_crc *c;
	__u32 words = tag->words, psn = (tag->psn + path->delta_psn) & PSN_MASK, zero = 0, change, sum, off, icrc;

	c = bpf_map_lookup_elem(&crc, &zero);
	if (!c || (void *)(bth + 1) > end)
		return COPY_MALFORMED;
	if (l3_bytes == sizeof(struct iphdr)) {
		struct iphdr *ip = (void *)(data + sizeof(struct ethhdr));

		sum = (__u16)~__builtin_bswap16(ip->check) + path->checksum;
		sum = (sum >> 16) + (sum & 0xffff);
		ip->check = __builtin_bswap16(~sum);
		ip->ttl--;
		ip->saddr = path->addresses[0];
		ip->daddr = path->addresses[1];
	} else {
		struct ipv6hdr *ip = (void *)(data + sizeof(struct ethhdr));

		ip->hop_limit--;
		__builtin_memcpy(ip->saddr, path->addresses, 32);
	}
	udp->check = 0;
	bth->qpn = (bth->qpn & bpf_htonl(0xff000000)) | bpf_htonl(path->qpn);
	bth->psn = (bth->psn & bpf_htonl(0xff000000)) | bpf_htonl(psn);
	if (tag->region < SLOT_REGIONS) {
		const struct rocast_target *target;
		__u32 region = tag->region;
		__u64 was, is;

		/* The verifier of 6.1 loses the bound when the compiler spills the register. */
		asm volatile("" : "+r"(region));
		target = &path->targets[region & (SLOT_REGIONS - 1)];
		if ((void *)(reth + 1) > end)
			return COPY_MALFORMED;
		was = reth->va;
		is = __builtin_bswap64(__builtin_bswap64(was) + target->delta_va);
		reth->va = is;
		reth->rkey = bpf_htonl(target->rkey);
		change = target->crc ^ crc_psn(c, tag->psn ^ psn, sizeof(*reth)) ^ crc_va(c, was ^ is);
		words -= sizeof(*reth) / 4;
	} else {
		change = path->crc ^ crc_psn(c, tag->psn ^ psn, 0);
	}
	behind = bpf_map_lookup_elem(&lengths, &words);
	if (!behind)
		return COPY_MALFORMED;
	/*
	 * The compiler must not move the constant part of the offset into the bound check: the verifier
	 * has to see the bound check on the same pointer that is used afterwards.
	 */
	off = sizeof(struct ethhdr) + l3_bytes + sizeof(*udp) + sizeof(*bth) + (tag->words & WORDS_MASK) * 4;
	asm volatile("" : "+r"(off));
	off &= 0x1fff;
	tail = data + off;
	asm volatile("" : "+r"(tail));
	change = apply(behind, change);
	if (tail + 4 <= (__u8 *)end) {
		*(__u32 *)tail ^= change;
		return FOUND;
	}
	/* The ICRC may lie in another buffer, or in two of them. */
	if (bpf_xdp_load_bytes(ctx, off, &icrc, sizeof(icrc)))
		return COPY_MALFORMED;
	icrc ^= change;
	return bpf_xdp_store_bytes(ctx, off, &icrc, sizeof(icrc)) ? COPY_MALFORMED : FOUND;
}

/* Returns how many copies of the same packet went to the port before: see struct rocast_rank. */
static __always_inline __u32 rank_of(const struct fan_tag *tag, __u32 port)
{
	__u32 id = (__u32)tag->slot << 16 | tag->epoch;
	struct rocast_rank *last = bpf_map_lookup_elem(&ranks, &port);

	if (!last)
		return SLOT_PATHS;
	if (last->slot_and_epoch == id && last->psn == (tag->psn | 1u << 31))
		return ++last->rank;
	last->slot_and_epoch = id;
	last->psn = tag->psn | 1u << 31;
	return last->rank = 0;
}

/* The path of the slot that this copy is for; 0 where the slot has none for it. */
static __always_inline const struct rocast_path *path_of(const struct rocast_slot *slot, const struct fan_tag *tag, __u32 port)
{
	struct rocast_range range = *(volatile struct rocast_range *)&slot->copies[port];
	__u32 index = tag->slot * SLOT_PATHS + range.first;

	if (range.count != 1) {
		__u32 rank = rank_of(tag, port);

		if (rank >= range.count)
			return 0;
		index += rank;
	}
	return bpf_map_lookup_elem(&paths, &index);
}

static __always_inline int make_copy(struct xdp_md *ctx, __u32 ifindex)
{
	const struct rocast_port *egress = port_of(ifindex);
	__u8 *data = (void *)(long)ctx->data;
	const struct rocast_slot *slot;
	const struct rocast_path *path;
	struct rocast_traffic *count;
	struct fan_tag tag;
	__u32 index, port;
	int step;

	if (!egress)
		return COPY_STALE;
	port = egress->number & (SLOT_PORTS - 1);

	if (data + sizeof(struct ethhdr) > (__u8 *)(long)ctx->data_end)
		return COPY_MALFORMED;
	__builtin_memcpy(&tag, data, sizeof(tag));
	index = tag.slot;
	slot = bpf_map_lookup_elem(&slots, &index);
	if (!slot)
		return COPY_STALE;
	path = path_of(slot, &tag, port);
	if (!path)
		return COPY_STALE;
	if (tag.flags & IPV6)
		step = edit(ctx, path, &tag, sizeof(struct ipv6hdr));
	else
		step = edit(ctx, path, &tag, sizeof(struct iphdr));
	if (step == FOUND)
		step = put_l2(ctx, path->l2, path->l2_bytes, sizeof(struct ethhdr), path->keeps, tag.flags & PCP_MASK);
	/*
	 * User space may write another block meanwhile, and changes the epoch before it does. So what
	 * was read is all of one block, the tag's, if the epoch is the tag's now.
	 */
	in_order();
	if (*(volatile __u64 *)&slot->word >> WORD_EPOCH_SHIFT != tag.epoch)
		return COPY_STALE;
	if (step != FOUND)
		return step;
	count = bpf_map_lookup_elem(&traffic, &port);
	if (count) {
		count->tx_frames++;
		count->tx_bytes += path->l2_bytes + (tag.flags & IPV6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) +
				   sizeof(struct udphdr) + sizeof(struct bth) + 4 + tag.words * 4;
	}
	return FOUND;
}

/* Whether the frame is a merged ACK, which is complete. No copy has that opcode. */
static __always_inline int is_merged(struct xdp_md *ctx)
{
	struct frame f = {
		.cursor = (void *)(long)ctx->data,
		.end = (void *)(long)ctx->data_end,
	};
	const __u8 *opcode;

	if (read_ethernet(&f) != FOUND)
		return 0;
	opcode = l3_of(ctx, f.meta.l3_off) + sizeof(struct udphdr);
	opcode += f.proto == bpf_htons(ETH_P_IPV6) ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	return (void *)(opcode + 1) <= f.end && *opcode == OP_ACKNOWLEDGE;
}

static __always_inline int send(struct xdp_md *ctx, __u32 ifindex)
{
	int step = is_merged(ctx) ? FOUND : make_copy(ctx, ifindex);

	if (step == FOUND)
		return XDP_PASS;
	count_event(step);
	return XDP_DROP;
}

#endif
