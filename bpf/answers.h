/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The answers of a group that the kernel carries. User space lets this program merge the plain ACKs
 * of the receivers while the group is plain and all of its receivers count. This part moves the
 * receiver's entry of rocast_slot.acked. If the lowest entry has moved, the frame becomes the ACK
 * that tells the source. Every other answer goes to user space, which takes the merging back before
 * it handles the answer.
 *
 * An entry, and what the source was told, is a word of this form. Open says that the program may
 * move it. User space opens told last. To end the merging it first closes told, and then closes and
 * reads the entries: none of them is behind told, and user space tells the source what is new.
 *
 *	0       24      48  49     50      64
 *	| PSN   | MSN   |   | open | epoch |
 */
#ifndef ROCAST_ANSWERS_H
#define ROCAST_ANSWERS_H

#include "fanout.h"

#define WORD_OPEN WORD_ARMED

enum {
	OP_ACKNOWLEDGE = 0x11,
	MIG_REQ = 0x40, /* of the BTH's second byte */
	AETH_NOT_ACK = 0xe0, /* of the syndrome's byte */
	TOLD_TRIES = 8, /* attempts to move told, while other CPUs move it */
};

/* The CRC register behind eight bytes of ones, which stand for the LRH of an InfiniBand packet. */
#define ICRC_SEED 0xdebb20e3u

struct ack {
	struct bth bth;
	__be32 aeth; /* 8 bits syndrome, 24 bits MSN */
	__u32 icrc; /* little endian */
} __attribute__((packed));

/* The CRC register after eight bytes. w holds these bytes XORed with the register before them. */
static __always_inline __u32 crc_word(const struct rocast_crc *c, __u64 w)
{
	return c->table[7][w & 0xff] ^ c->table[6][w >> 8 & 0xff] ^ c->table[5][w >> 16 & 0xff] ^
	       c->table[4][w >> 24 & 0xff] ^ c->table[3][w >> 32 & 0xff] ^ c->table[2][w >> 40 & 0xff] ^
	       c->table[1][w >> 48 & 0xff] ^ c->table[0][w >> 56];
}

static __always_inline __u64 load(const void *at)
{
	__u64 w;

	__builtin_memcpy(&w, at, sizeof(w));
	return w;
}

/* Whether the ICRC of an ACK is right, and with IPv4 the checksum. ip is the IP header. */
static __always_inline int undamaged(const struct rocast_crc *c, const __u8 *ip, const struct ack *ack, const __u32 l3_bytes)
{
	__u32 reg = ICRC_SEED, tail = ack->aeth, sum = 0;

	if (l3_bytes == sizeof(struct iphdr)) {
		const __u16 *half = (const void *)ip;

#pragma unroll
		for (int i = 0; i < 10; i++)
			sum += half[i];
		sum = (sum & 0xffff) + (sum >> 16);
		if (sum != 0xffff)
			return 0;
		reg = crc_word(c, (load(ip) | 0xff00) ^ reg);
		reg = crc_word(c, (load(ip + 8) | 0xffff00ff) ^ reg);
		reg = crc_word(c, load(ip + 16) ^ reg);
		reg = crc_word(c, (load(ip + 24) | 0xffff0000) ^ reg);
		reg = crc_word(c, (load(ip + 32) | 0xff) ^ reg);
		tail ^= reg;
		reg = c->table[3][tail & 0xff] ^ c->table[2][tail >> 8 & 0xff] ^
		      c->table[1][tail >> 16 & 0xff] ^ c->table[0][tail >> 24];
	} else {
		reg = crc_word(c, (load(ip) | 0xff000000ffffff0full) ^ reg);
		reg = crc_word(c, load(ip + 8) ^ reg);
		reg = crc_word(c, load(ip + 16) ^ reg);
		reg = crc_word(c, load(ip + 24) ^ reg);
		reg = crc_word(c, load(ip + 32) ^ reg);
		reg = crc_word(c, (load(ip + 40) | 0xffff000000000000ull) ^ reg);
		reg = crc_word(c, (load(ip + 48) | 0xff00000000ull) ^ reg);
		reg = crc_word(c, load(ip + 56) ^ reg);
	}
	return ack->icrc == ~reg;
}

/* Whether this program may move a word, which must be of the block with this epoch. */
static __always_inline int is_open(__u64 word, __u64 epoch)
{
	return (word & WORD_OPEN) && word >> WORD_EPOCH_SHIFT == epoch;
}

/*
 * The lowest PSN that all paths have acknowledged, and the lowest MSN of the paths, in the form of
 * a word of this epoch. 0: user space is taking the merging back.
 */
static __always_inline __u64 lowest(const struct rocast_slot *slot, __u64 epoch)
{
	__u64 psn = 0, msn = 0;

	for (__u32 i = 0; i < SLOT_PATHS; i++) {
		__u64 acked;

		if (i >= slot->answers)
			break;
		acked = *(volatile __u64 *)&slot->acked[i];
		if (!is_open(acked, epoch))
			return 0;
		if (i == 0 || ahead(acked, psn) < 0)
			psn = acked;
		if (i == 0 || ahead(acked >> WORD_MESSAGES_SHIFT, msn) < 0)
			msn = acked >> WORD_MESSAGES_SHIFT;
	}
	return (psn & PSN_MASK) | (msn & PSN_MASK) << WORD_MESSAGES_SHIFT | WORD_OPEN | epoch << WORD_EPOCH_SHIFT;
}

/*
 * Raises told to the lowest entry and makes the frame the ACK that says so. The frame is written
 * before the swap: if the swap succeeds, the slot still has the block that was read. If a CPU gives
 * up, the source misses this ACK, as if the ACK had been lost on its way.
 *
 * If a word is closed, the frame goes to user space. User space may be opening the words again, and
 * would not look at the entry that was just moved before its next event: this one.
 */
static __always_inline int tell(struct xdp_md *ctx, const struct frame *f, const struct rocast_crc *c, struct rocast_slot *slot,
				__u64 epoch, const __u32 l3_bytes)
{
	const __u32 bth_off = l3_bytes + sizeof(struct udphdr); /* behind the Ethernet header */
	__u32 l2_bytes = *(volatile __u8 *)&slot->ack_l2_bytes;
	struct ack *ack;
	__u8 *l3;
	__u64 floor, told;
	__u32 port, fan;
	struct rocast_traffic *count;
	void *device;

	floor = lowest(slot, epoch);
	told = *(volatile __u64 *)&slot->told;
	if (!floor || !is_open(told, epoch))
		return FOUND;
	if (ahead(floor, told) <= 0)
		return DROP_MERGED;
	if (put_l2(ctx, slot->ack_l2, l2_bytes, f->meta.l3_off, slot->ack_keeps, f->meta.flags >> VLAN_SHIFT ? f->pcp : slot->pcp) != FOUND)
		return DROP_MERGED;
	l3 = l3_of(ctx, l2_bytes);
	ack = (void *)(l3 + bth_off);
	if ((void *)(ack + 1) > (void *)(long)ctx->data_end)
		return DROP_MERGED; /* cannot be: the headers were read */
	__builtin_memcpy(l3, slot->ack, bth_off + sizeof(*ack));
	ack->bth.psn = bpf_htonl(floor & PSN_MASK);
	ack->aeth |= bpf_htonl(floor >> WORD_MESSAGES_SHIFT & PSN_MASK);
	ack->icrc ^= crc_word(c, bpf_htonl(floor & PSN_MASK) |
			      (__u64)bpf_htonl(floor >> WORD_MESSAGES_SHIFT & PSN_MASK) << 32);
	port = slot->ack_port;
	fan = FANS + port;
	device = port < SLOT_PORTS ? bpf_map_lookup_elem(&fans, &fan) : 0;
	if (!device)
		return DROP_MERGED; /* cannot be: user space lets nothing be merged for such a port */
	for (int i = 0; i < TOLD_TRIES; i++) {
		__u64 was;

		if (!is_open(told, epoch) || ahead(floor, told) <= 0)
			return DROP_MERGED;
		was = __sync_val_compare_and_swap(&slot->told, told, floor);
		if (was == told) {
			if (bpf_redirect_map(device, 0, 0) != XDP_REDIRECT)
				return DROP_MERGED; /* the port has just gone, and the ACK with it */
			count = bpf_map_lookup_elem(&traffic, &port);
			if (count) {
				count->tx_frames++;
				count->tx_bytes += l2_bytes + bth_off + sizeof(*ack);
			}
			return REDIRECT_MERGED;
		}
		told = was;
	}
	return DROP_MERGED;
}

/*
 * Merges the answer if it is the plain ACK of a path. Otherwise it returns FOUND, and the frame is
 * unchanged. l3_bytes is a constant in every call, as in plain.
 */
static __always_inline int merge(struct xdp_md *ctx, const struct frame *f, struct rocast_slot *slot, __u32 place,
				 __u64 word, __u32 number, const __u32 l3_bytes)
{
	const __u32 bytes = f->meta.l3_off + l3_bytes + sizeof(struct udphdr) + sizeof(struct ack);
	__u8 *l3 = l3_of(ctx, f->meta.l3_off);
	struct udphdr *udp = (void *)(l3 + l3_bytes);
	struct ack *ack = (void *)(udp + 1);
	__u64 epoch = word >> WORD_EPOCH_SHIFT, told = *(volatile __u64 *)&slot->told, was, is;
	__u32 port = number & (SLOT_PORTS - 1), ip_bytes, psn, msn, at = SLOT_PATHS;
	struct rocast_range range = slot->receivers[port];
	const struct rocast_path *path = 0;
	struct rocast_traffic *count;
	const struct rocast_crc *c;
	__u32 zero = 0;
	int step;

	c = bpf_map_lookup_elem(&crc, &zero);
	/* A port beyond those of a slot would take the range of another. */
	if (!c || number >= SLOT_PORTS || !is_open(told, epoch) ||
	    (void *)(ack + 1) > (void *)(long)ctx->data_end || bpf_xdp_get_buff_len(ctx) != bytes)
		return FOUND;
	if (l3_bytes == sizeof(struct iphdr))
		ip_bytes = __builtin_bswap16(((struct iphdr *)l3)->tot_len) - sizeof(struct iphdr);
	else
		ip_bytes = __builtin_bswap16(((struct ipv6hdr *)l3)->payload_len);
	if (ip_bytes != sizeof(*udp) + sizeof(*ack) || udp->len != bpf_htons(sizeof(*udp) + sizeof(*ack)) ||
	    ack->bth.opcode != OP_ACKNOWLEDGE || ack->bth.se_m_pad_tver != slot->migrated ||
	    ack->aeth & bpf_htonl((__u32)AETH_NOT_ACK << 24))
		return FOUND;
	for (__u32 i = 0; i < SLOT_PATHS; i++) {
		__u32 k = range.first + i, index = place * SLOT_PATHS + k;
		const struct rocast_path *p;

		if (i >= range.count)
			break;
		p = bpf_map_lookup_elem(&paths, &index);
		if (!p)
			break;
		if (p->answer_qpn != f->qpn || !same_vlans(p->vlans, f->vlans))
			continue;
		if (l3_bytes == sizeof(struct iphdr) ?
		    p->addresses[0] == f->dst[3] && p->addresses[1] == f->src[3] :
		    same(p->addresses, f->dst) && same(p->addresses + 4, f->src)) {
			path = p;
			at = p->answer;
			break;
		}
	}
	if (!path || at >= slot->answers)
		return FOUND;
	psn = (bpf_ntohl(ack->bth.psn) - path->delta_psn) & PSN_MASK;
	msn = (bpf_ntohl(ack->aeth) + path->delta_msn) & PSN_MASK;
	/* What was never sent cannot be acknowledged: rule 1. */
	if (ahead(psn, word) >= 0 || !undamaged(c, l3, ack, l3_bytes))
		return FOUND;
	/* The verifier does not see the loop's bound, so the compiler must not rely on it either. */
	asm volatile("" : "+r"(at));
	at &= SLOT_PATHS - 1;
	was = *(volatile __u64 *)&slot->acked[at];
	if (!is_open(was, epoch))
		return FOUND;
	if (ahead(psn, was) < 0)
		goto merged;
	if (ahead(psn, was) == 0) {
		if ((was >> WORD_MESSAGES_SHIFT & PSN_MASK) == msn)
			goto merged;
		return FOUND; /* only the MSN moves: user space notes it */
	}
	is = psn | (__u64)msn << WORD_MESSAGES_SHIFT | WORD_OPEN | epoch << WORD_EPOCH_SHIFT;
	if (__sync_val_compare_and_swap(&slot->acked[at], was, is) != was)
		return FOUND;
merged:
	step = tell(ctx, f, c, slot, epoch, l3_bytes);
	count = bpf_map_lookup_elem(&traffic, &port);
	if (step != FOUND && count) {
		count->rx_frames++;
		count->rx_bytes += bytes;
	}
	return step;
}

/* Merges an answer, or returns FOUND: it goes to user space. */
static __always_inline int take_answer(struct xdp_md *ctx, const struct frame *f, __u32 number)
{
	__u32 index = f->meta.group & (SLOTS - 1);
	struct rocast_slot *slot = bpf_map_lookup_elem(&slots, &index);
	__u64 word;

	if (!slot)
		return FOUND;
	word = *(volatile __u64 *)&slot->word;
	in_order();
	/* A packet that disarmed the group may be one that the source sends again: rule 1. */
	if (!(word & WORD_ARMED) || slot->group != f->meta.group)
		return FOUND;
	if (f->meta.flags & IPV6)
		return slot->ipv6 ? merge(ctx, f, slot, index, word, number, sizeof(struct ipv6hdr)) : FOUND;
	return slot->ipv6 ? FOUND : merge(ctx, f, slot, index, word, number, sizeof(struct iphdr));
}

#endif
