/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The forwarding of plain packets. User space arms a group when the group's next packet will need
 * no decision. While the group is armed, a packet goes to all paths if it has exactly the next PSN
 * and exactly the expected headers: it is counted in the slot's word and broadcast, and each copy
 * gets the headers that its receiver expects in front of its port (copies.h). Every other packet of
 * the source disarms the group and goes to user space; only user space decides what happens to it.
 * A packet of anybody else goes there too.
 */
#ifndef ROCAST_FANOUT_H
#define ROCAST_FANOUT_H

#include "classifier.h"

enum {
	SLOTS = 1024, /* groups that can be armed at one time */
	SLOT_PATHS = 64, /* receivers and shared legs of an armed group */
	SLOT_PORTS = 64, /* a group with a member behind a port of a higher number is not armed */
	SLOT_REGIONS = 4, /* memory regions of an armed group */
	ACK_BYTES = 40 + 8 + 12 + 4 + 4, /* of a merged ACK over IPv6, which is the longest, behind its Ethernet header */
	L2_BYTES = 22, /* of an Ethernet header with two VLAN tags */
	FANS = 256, /* different sets of ports that groups send to */
	FAN_ENTRIES = SLOT_PATHS,
	LENGTHS = 1032, /* different lengths, in 4-byte words between the BTH and the ICRC */
	RETAINED_BYTES = 2168, /* of a frame that one entry can retain: payload of 2048 bytes, and headers; two hold any */
};

enum { NO_REGION = 0xff };

/* The distance of PSNs that may be in flight: feedback.Window. */
enum { WINDOW = 1 << 21 };

/* No packet of LENGTHS words has more words or UDP bytes; the verifier needs the bounds. */
enum { WORDS_MASK = 0x7ff, UDP_BYTES_MASK = 0x1fff };

/*
 * The word of a slot, which user space and the kernel share. User space stores a new word only
 * while the group is not armed. While it is armed, the kernel counts a packet by compare-and-swap,
 * and either side may clear the armed bit.
 *
 *	0       24         48       49      50      64
 *	| PSN   | messages | inside | armed | epoch |
 */
enum {
	WORD_MESSAGES_SHIFT = 24,
	WORD_EPOCH_SHIFT = 50,
	PSN_MASK = 0xffffff,
};

/* The bit of the last word of the BTH that asks for an ACK. */
#define ACK_REQ 0x80000000u

#define WORD_INSIDE (1ull << 48)
#define WORD_ARMED (1ull << 49)

/* The bit of rocast_slot.asked that is set with any PSN. */
#define ASKED (1u << 31)

struct rocast_region {
	__u64 va; /* as the source sees it */
	__u64 length;
	__u32 rkey;
	__u32 zero;
};

struct rocast_range {
	__u8 first; /* index among the slot's paths */
	__u8 count;
};

/*
 * The headers of a plain packet of the group, and the places of the paths of each port. Several
 * receivers may share one copy, which leaves by a leg of theirs. So the paths of a port are the
 * receivers that share, the other receivers, and the shared legs, in this order. Within one epoch
 * only word, payload, limit, asked, span, told and acked change.
 */
struct rocast_slot {
	__u64 word;
	__u64 payload; /* bytes of payload of the packets that word counts */
	__u32 limit; /* the last PSN that may be carried, unless told is far enough: see beyond */
	__u32 group;
	__u32 fan;
	__u32 ingress; /* ifindex of the source's port */
	__be32 src[4];
	__be32 dst[4];
	__u32 qpn;
	__be16 pkey;
	__u8 traffic_class; /* without ECN */
	__u8 ipv6;
	__u32 vlans[2]; /* of the source, as in struct frame */
	__u16 mtu; /* payload bytes */
	__u8 region_count;
	__u8 wide; /* 1: the packets may have several buffers, and one copy of each leaves */
	__u32 retained_first; /* the group's part of the map retained */
	__u32 retained_packets; /* a power of two; 0: the group's packets are not retained */
	__u32 asked; /* the last packet that asks for an ACK, and ASKED; 0: none since the group was armed */
	struct rocast_region regions[SLOT_REGIONS];
	struct rocast_range copies[SLOT_PORTS]; /* the paths for which copies leave by the port */
	struct rocast_range receivers[SLOT_PORTS]; /* the paths whose answers come by the port */
	/* Merging of answers: see answers.h. */
	__u64 told; /* what the source was told last */
	__u64 acked[SLOT_PATHS]; /* what each receiver has acknowledged, in the source's PSNs and MSNs */
	__u32 answers; /* number of receivers */
	__u32 ack_ifindex; /* of the port to the source; only user space reads it */
	__u32 ack_port; /* its PortID */
	__u32 span; /* how far beyond told packets may be carried */
	__u8 multipath; /* the source's packets may come by other ports than ingress too */
	__u8 migrated; /* the MigReq bit of all answers, as in the BTH */
	__u8 pcp; /* of the ACK to the source where the answer has no tag, as in a TCI */
	__u8 ack_l2_bytes;
	__u8 ack_keeps; /* like rocast_path.keeps */
	__u8 ack_l2[L2_BYTES]; /* the Ethernet header of the ACK to the source */
	__u8 ack[ACK_BYTES]; /* what follows, with PSN 0 and MSN 0 */
};

/*
 * How the RETH of a copy differs from the RETH received, for one region of the source and one
 * receiver.
 */
struct rocast_target {
	__u64 delta_va;
	__u32 rkey;
	__u32 crc; /* the change of the CRC register at the end of the RETH that addresses, QPN and R_Key cause */
};

enum rocast_keeps { KEEPS_OUTER = 1, KEEPS_INNER = 2 };

/* How a copy for one path, a receiver or a shared leg, differs from the packet received. */
struct rocast_path {
	__u32 crc; /* the change of the CRC register at the end of the BTH that addresses and QPN cause */
	__u32 qpn;
	__u32 delta_psn;
	__u16 checksum; /* added to the complement of the IPv4 header checksum; includes TTL - 1 */
	__u8 l2_bytes;
	__u8 l2[L2_BYTES];
	__u8 keeps; /* which tags of l2 get the priority of the packet; in l2 it is 0: see enum rocast_keeps */
	__u8 answer; /* of a receiver: its index in rocast_slot.acked */
	__u8 zero;
	__u32 answer_qpn; /* to which the receiver answers */
	__u32 delta_msn; /* of the source's MSNs from the receiver's */
	__u32 vlans[2]; /* of l2, as in struct frame */
	__be32 addresses[8]; /* source and destination; IPv4 has one word each */
	struct rocast_target targets[SLOT_REGIONS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct rocast_slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SLOTS * SLOT_PATHS);
	__type(key, __u32);
	__type(value, struct rocast_path);
} paths SEC(".maps");

/*
 * A packet as the source sent it, for user space to send again to a receiver that lost its copy.
 * The packet with a PSN has the entry retained_first + PSN % retained_packets. Where the slot is
 * wide, each packet has two neighbouring entries, and the second one is written if the first one is
 * too small. User space sets the slot's limit so that no packet is overwritten that a receiver may
 * still lack.
 *
 * The memory of a group goes to others, and a group that is made again may have the addresses, QPNs
 * and PSNs of the one before it. A CPU may write a packet of an earlier block late. So an entry
 * names the block of its packet too:
 *
 *	0     24     34      48
 *	| PSN | slot | epoch |
 */
struct rocast_retained {
	__u64 packet; /* written last; NO_PACKET while the frame is written */
	__u32 bytes; /* of the packet from here on: it may go on in the next entry */
	__u8 frame[RETAINED_BYTES];
};

enum {
	PACKET_SLOT_SHIFT = 24,
	PACKET_EPOCH_SHIFT = 34,
};

#define NO_PACKET (~0ull)

/* The loader sets the number of entries. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rocast_retained);
} retained SEC(".maps");

/*
 * One linear map of the CRC register for each length: it gives the register after that many words
 * of zeros.
 */
struct rocast_operator {
	__u32 table[4][256];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LENGTHS);
	__type(key, __u32);
	__type(value, struct rocast_operator);
} lengths SEC(".maps");

enum { CRC_TABLES = 19 }; /* as far as from the PSN to the end of a RETH */

/* The tables of CRC-32: table[k][b] is the register after byte b and k zero bytes. */
struct rocast_crc {
	__u32 table[CRC_TABLES][256];
};

/* One copy for the programs of all ports, so that it stays in the CPU's cache. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rocast_crc);
} crc SEC(".maps");

/*
 * The sets of ports, and behind them each port by itself, for merged ACKs. The kernel collects the
 * frames that leave by a device and runs the program of the first one on all of them. So an ACK
 * needs the same program as copies.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, FANS + SLOT_PORTS);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
		__uint(max_entries, FAN_ENTRIES);
		__type(key, __u32);
		__uint(value_size, 8);
	});
} fans SEC(".maps");

/*
 * What rocast_classify hands to rocast_fan_out with each copy. The tag stands where the packet's
 * Ethernet addresses were: every copy gets new addresses anyway.
 */
struct fan_tag {
	__u16 slot;
	__u16 epoch;
	__u16 words; /* number of words between the BTH and the ICRC */
	__u8 region;
	__u8 flags; /* IPV6, and the packet's priority as in a TCI */
	__u32 psn;
};

/* Why a group was disarmed, or why a copy was dropped. */
enum rocast_fan_event {
	DISARMED_PSN, /* the packet has another PSN than the next one */
	DISARMED_HEADER, /* the packet has other headers than a plain packet of the group */
	DISARMED_REGION, /* a WRITE outside the group's memory regions, or of length 0 */
	DISARMED_LIMIT, /* the packet is too far ahead of the slowest receiver */
	DISARMED_RACE, /* another CPU changed the word at the same time */
	DISARMED_RETAIN, /* the group's packets are to be retained, and this one cannot be */
	DISARMED_FAN, /* the set of ports to which the group sends is not there */
	COPY_STALE, /* the slot has a newer block, or no path for the copy */
	COPY_MALFORMED, /* the frame is shorter than its tag says, or cannot take the path's VLAN tags */
	FAN_EVENTS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FAN_EVENTS);
	__type(key, enum rocast_fan_event);
	__type(value, __u64);
} fan_events SEC(".maps");

struct rocast_traffic {
	__u64 rx_frames, rx_bytes;
	__u64 tx_frames, tx_bytes;
};

/* Per port: the packets received there and fanned out, and the copies sent there. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SLOT_PORTS);
	__type(key, __u32);
	__type(value, struct rocast_traffic);
} traffic SEC(".maps");

static __always_inline void count_event(__u32 event)
{
	__u64 *n = bpf_map_lookup_elem(&fan_events, &event);

	if (n)
		(*n)++;
}

/* The properties of an opcode that matter for fan-out. An opcode that no group carries has none. */
enum {
	CARRIES = 1 << 0,
	HAS_RETH = 1 << 1,
	HAS_IMM = 1 << 2,
	ENDS = 1 << 3,
};

static __always_inline __u32 traits(__u8 opcode)
{
	switch (opcode) {
	case 0x00: /* SEND FIRST */
	case 0x01: /* SEND MIDDLE */
	case 0x07: /* WRITE MIDDLE */
		return CARRIES;
	case 0x02: /* SEND LAST */
	case 0x04: /* SEND ONLY */
	case 0x08: /* WRITE LAST */
		return CARRIES | ENDS;
	case 0x03: /* SEND LAST with immediate */
	case 0x05: /* SEND ONLY with immediate */
	case 0x09: /* WRITE LAST with immediate */
		return CARRIES | ENDS | HAS_IMM;
	case 0x06: /* WRITE FIRST */
		return CARRIES | HAS_RETH;
	case 0x0a: /* WRITE ONLY */
		return CARRIES | ENDS | HAS_RETH;
	case 0x0b: /* WRITE ONLY with immediate */
		return CARRIES | ENDS | HAS_RETH | HAS_IMM;
	}
	return 0;
}

/* The distance from one PSN or MSN to another: the lowest 24 bits of a and b count. */
static __always_inline __s32 ahead(__u64 a, __u64 b)
{
	return (__s32)((__u32)(a - b) << 8) >> 8;
}

/*
 * Whether a packet must wait until user space has looked again. All receivers have what the source
 * was told in this epoch, also while told is closed. WINDOW bounds what user space has not seen: it
 * compares PSNs of 24 bits.
 */
static __always_inline int beyond(const struct rocast_slot *slot, __u64 word, __u32 psn)
{
	__s32 over = ahead(psn, *(volatile __u32 *)&slot->limit);
	__u64 told;

	if (over <= 0)
		return 0;
	told = *(volatile __u64 *)&slot->told;
	return over > WINDOW || told >> WORD_EPOCH_SHIFT != word >> WORD_EPOCH_SHIFT ||
	       ahead(psn, told) > (__s32) * (volatile __u32 *)&slot->span;
}

struct reth {
	__u64 va; /* big endian, like rkey and bytes */
	__u32 rkey;
	__u32 bytes;
};

/*
 * Returns the region of the slot in which the RETH's memory lies, NO_REGION if the group names no
 * regions, or SLOT_REGIONS if the memory lies in none of them.
 */
static __always_inline __u32 region_of(const struct rocast_slot *slot, const struct reth *reth)
{
	__u64 va = __builtin_bswap64(reth->va);
	__u32 rkey = bpf_ntohl(reth->rkey), bytes = bpf_ntohl(reth->bytes);

	if (slot->region_count == 0)
		return NO_REGION;
	if (bytes == 0)
		return SLOT_REGIONS;
#pragma unroll
	for (int i = 0; i < SLOT_REGIONS; i++) {
		const struct rocast_region *r = &slot->regions[i];

		if (r->rkey == rkey && va - r->va <= r->length &&
		    bytes <= r->length - (va - r->va) && i < slot->region_count)
			return i;
	}
	return SLOT_REGIONS;
}

static __always_inline int same_vlans(const __u32 *a, const __u32 *b)
{
	return a[0] == b[0] && a[1] == b[1];
}

/*
 * The IP header of a frame. The verifier needs a bound of its offset, and the compiler must not
 * compute the pointer anew in another place.
 */
static __always_inline __u8 *l3_of(const struct xdp_md *ctx, __u32 off)
{
	__u8 *l3 = (void *)(long)ctx->data;

	off &= 31;
	l3 += off;
	asm volatile("" : "+r"(l3));
	return l3;
}

/*
 * Whether the packet comes from where the slot's source is, and goes to where the source sends. A
 * packet of anybody else must not disarm the group.
 */
static __always_inline int is_of(const struct xdp_md *ctx, const struct frame *f, const struct rocast_slot *slot)
{
	return !(f->meta.flags & IPV6) == !slot->ipv6 && f->qpn == slot->qpn && same(f->src, slot->src) &&
	       same(f->dst, slot->dst) && same_vlans(f->vlans, slot->vlans) && (ctx->ingress_ifindex == slot->ingress || slot->multipath);
}

/*
 * Checks whether the packet is the plain packet that the slot describes. Returns FOUND, and then
 * tag, ends, asks and payload are filled in, or the reason to disarm the group. l3_bytes is a
 * constant in every call, so that the verifier sees constant offsets.
 */
static __always_inline int plain(struct xdp_md *ctx, const struct frame *f, const struct rocast_slot *slot, __u64 word, const __u32 l3_bytes,
				 struct fan_tag *tag, __u32 *ends, __u32 *asks, __u32 *payload)
{
	__u8 *l3 = l3_of(ctx, f->meta.l3_off);
	void *end = (void *)(long)ctx->data_end;
	struct udphdr *udp = (void *)(l3 + l3_bytes);
	struct bth *bth = (void *)(udp + 1);
	struct reth *reth = (void *)(bth + 1);
	__u32 udp_bytes, ip_bytes, ext_bytes, what, pad, traffic_class, hops, frame_bytes, has_bytes, bound;

	if ((void *)(bth + 1) > end)
		return DISARMED_HEADER;
	tag->psn = bpf_ntohl(bth->psn) & PSN_MASK;
	if (tag->psn != (word & PSN_MASK))
		return DISARMED_PSN;
	if (beyond(slot, word, tag->psn))
		return DISARMED_LIMIT;
	if (l3_bytes == sizeof(struct iphdr)) {
		struct iphdr *ip = (void *)l3;

		ip_bytes = __builtin_bswap16(ip->tot_len) - sizeof(*ip);
		traffic_class = ip->tos;
		hops = ip->ttl;
	} else {
		struct ipv6hdr *ip = (void *)l3;

		ip_bytes = __builtin_bswap16(ip->payload_len);
		traffic_class = bpf_ntohl(ip->version_class_flow) >> 20;
		hops = ip->hop_limit;
	}
	udp_bytes = __builtin_bswap16(udp->len);
	what = traits(bth->opcode);
	ext_bytes = (what & HAS_RETH ? sizeof(struct reth) : 0) + (what & HAS_IMM ? 4 : 0);
	pad = bth->se_m_pad_tver >> 4 & 3;
	tag->words = (udp_bytes - sizeof(*udp) - sizeof(*bth) - 4) / 4;
	if (!what || bth->pkey != slot->pkey || bth->se_m_pad_tver & 0x0f ||
	    (traffic_class & 0xfc) != slot->traffic_class || hops < 2 ||
	    ctx->ingress_ifindex != slot->ingress || udp_bytes != ip_bytes || udp_bytes % 4 ||
	    udp_bytes < sizeof(*udp) + sizeof(*bth) + ext_bytes + (pad ? 4 : 0) + 4 ||
	    udp_bytes > sizeof(*udp) + sizeof(*bth) + ext_bytes + slot->mtu + pad + 4 ||
	    tag->words >= LENGTHS)
		return DISARMED_HEADER;
	/*
	 * Behind the packet there must be at most the padding of Ethernet. The packet must be in the
	 * first buffer: the kernel broadcasts no others.
	 */
	frame_bytes = l3_bytes + udp_bytes;
	if (frame_bytes < ETH_DATA_MIN)
		frame_bytes = ETH_DATA_MIN;
	frame_bytes += f->meta.l3_off;
	has_bytes = bpf_xdp_get_buff_len(ctx);
	/*
	 * The compiler must not mask in front of the byte swap: the verifiers of 6.1 and 6.12 know no
	 * bound of what is swapped.
	 */
	bound = udp_bytes;
	asm volatile("" : "+r"(bound));
	bound &= UDP_BYTES_MASK;
	if (has_bytes > frame_bytes ||
	    (slot->wide ? has_bytes < f->meta.l3_off + l3_bytes + udp_bytes : l3 + l3_bytes + bound > (__u8 *)end))
		return DISARMED_HEADER;
	tag->region = NO_REGION;
	if (what & HAS_RETH) {
		__u32 region;

		if ((void *)(reth + 1) > end)
			return DISARMED_HEADER;
		region = region_of(slot, reth);
		if (region == SLOT_REGIONS)
			return DISARMED_REGION;
		tag->region = region;
	}
	*ends = what & ENDS;
	*asks = bth->psn & bpf_htonl(ACK_REQ);
	*payload = udp_bytes - sizeof(*udp) - sizeof(*bth) - ext_bytes - pad - 4;
	return FOUND;
}

/* Returns an entry for the packet, the first one or the one behind it; 0 where it has none. */
static __always_inline struct rocast_retained *retained_at(const struct rocast_slot *slot, __u32 psn, __u32 second)
{
	__u32 index = slot->retained_first + ((psn & (slot->retained_packets - 1)) << (slot->wide & 1)) + second;

	return bpf_map_lookup_elem(&retained, &index);
}

/* What an entry says of the packet that was the next one of a slot with this word. */
static __always_inline __u64 packet_of(__u32 slot, __u64 word)
{
	return (word & PSN_MASK) | (__u64)slot << PACKET_SLOT_SHIFT | word >> WORD_EPOCH_SHIFT << PACKET_EPOCH_SHIFT;
}

/* Copies the packet, which was not changed yet, from a byte on, as far as the entry has room. */
static __always_inline void retain(struct xdp_md *ctx, struct rocast_retained *to, __u64 packet, __u32 from, __u32 bytes)
{
	*(volatile __u64 *)&to->packet = NO_PACKET;
	in_order();
	to->bytes = bytes;
	if (bytes > RETAINED_BYTES)
		bytes = RETAINED_BYTES;
	/* The verifier of 6.1 loses the bound when the compiler spills the register. */
	asm volatile("" : "+r"(bytes));
	if (bytes == 0 || bytes > RETAINED_BYTES || bpf_xdp_load_bytes(ctx, from, to->frame, bytes))
		return;
	in_order();
	*(volatile __u64 *)&to->packet = packet;
}

/* The bytes of the frame that the tag describes, without VLAN tags and padding. */
static __always_inline __u32 frame_bytes_of(const struct fan_tag *tag)
{
	return sizeof(struct ethhdr) + (tag->flags & IPV6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) +
	       sizeof(struct udphdr) + sizeof(struct bth) + 4 + tag->words * 4;
}

/*
 * Writes an Ethernet header in front of what follows the one of was bytes. Tags that keep the
 * packet's priority get pcp.
 */
static __always_inline int put_l2(struct xdp_md *ctx, const __u8 *l2, __u32 bytes, __u32 was, __u8 keeps, __u8 pcp)
{
	__u8 *data;

	if (bytes != 14 && bytes != 18 && bytes != 22)
		return COPY_MALFORMED;
	if (bytes != was && bpf_xdp_adjust_head(ctx, (int)was - (int)bytes))
		return COPY_MALFORMED;
	data = (void *)(long)ctx->data;
	if (data + L2_BYTES > (__u8 *)(long)ctx->data_end)
		return COPY_MALFORMED;
	__builtin_memcpy(data, l2, 14);
	if (bytes >= 18) {
		__builtin_memcpy(data + 14, l2 + 14, 4);
		if (keeps & KEEPS_OUTER)
			data[14] |= pcp;
	}
	if (bytes == 22) {
		__builtin_memcpy(data + 18, l2 + 18, 4);
		if (keeps & KEEPS_INNER)
			data[18] |= pcp;
	}
	return FOUND;
}

/*
 * Sends the packet to all paths and returns REDIRECT_FAN_OUT if its group is armed and the packet
 * is plain. Otherwise it returns FOUND, and the packet goes to user space. If the packet is of the
 * group's source, it disarms the group. number is that of the port by which the packet came.
 */
static __always_inline int carry(struct xdp_md *ctx, const struct frame *f, __u32 number)
{
	__u32 index = f->meta.group & (SLOTS - 1), ends = 0, asks = 0, payload = 0, fan;
	struct rocast_slot *slot;
	struct rocast_traffic *count;
	struct rocast_retained *entry = 0, *second = 0;
	struct fan_tag tag = {};
	void *devices;
	__u64 word, next;
	__u32 bytes;
	__u8 *data;
	int step;

	slot = bpf_map_lookup_elem(&slots, &index);
	if (!slot)
		return FOUND;
	word = *(volatile __u64 *)&slot->word;
	in_order();
	if (!(word & WORD_ARMED) || slot->group != f->meta.group || !is_of(ctx, f, slot))
		return FOUND;
	if (f->meta.flags & IPV6)
		step = plain(ctx, f, slot, word, sizeof(struct ipv6hdr), &tag, &ends, &asks, &payload);
	else
		step = plain(ctx, f, slot, word, sizeof(struct iphdr), &tag, &ends, &asks, &payload);
	fan = slot->fan;
	devices = bpf_map_lookup_elem(&fans, &fan);
	if (step == FOUND && !devices)
		step = DISARMED_FAN;
	tag.flags = (f->meta.flags & IPV6) | f->pcp;
	bytes = frame_bytes_of(&tag) + f->meta.l3_off - sizeof(struct ethhdr);
	if (step == FOUND && slot->retained_packets) {
		entry = retained_at(slot, tag.psn, 0);
		if (bytes > RETAINED_BYTES && slot->wide)
			second = retained_at(slot, tag.psn, 1);
		if (!entry || (bytes > RETAINED_BYTES && !second))
			step = DISARMED_RETAIN;
	}
	/* Before the packet is counted. A later redirect to a socket takes the place of this one. */
	if (step == FOUND && bpf_redirect_map(devices, 0, slot->wide ? 0 : BPF_F_BROADCAST) != XDP_REDIRECT)
		step = DISARMED_FAN;
	if (step != FOUND)
		goto disarm;

	next = (word & ~(__u64)PSN_MASK & ~WORD_INSIDE) | ((word + 1) & PSN_MASK);
	if (ends)
		next = (next & ~((__u64)PSN_MASK << WORD_MESSAGES_SHIFT)) |
		       ((next + (1ull << WORD_MESSAGES_SHIFT)) & ((__u64)PSN_MASK << WORD_MESSAGES_SHIFT));
	else
		next |= WORD_INSIDE;
	/* Before the swap: whoever sees the packet counted also sees that it asks. */
	if (asks)
		*(volatile __u32 *)&slot->asked = tag.psn | ASKED;
	if (__sync_val_compare_and_swap(&slot->word, word, next) != word) {
		step = DISARMED_RACE;
		goto disarm;
	}
	__sync_fetch_and_add(&slot->payload, payload);
	if (entry)
		retain(ctx, entry, packet_of(index, word), 0, bytes);
	if (second)
		retain(ctx, second, packet_of(index, word), RETAINED_BYTES, bytes - RETAINED_BYTES);
	/* Without tags the headers of all copies stand at one place. put_l2 writes the path's tags. */
	if (f->meta.l3_off != sizeof(struct ethhdr) &&
	    bpf_xdp_adjust_head(ctx, f->meta.l3_off - (int)sizeof(struct ethhdr)))
		return FOUND; /* cannot be: the headers are longer */
	data = (void *)(long)ctx->data;
	if (data + sizeof(struct ethhdr) > (__u8 *)(long)ctx->data_end)
		return FOUND; /* cannot be: the headers were read */
	tag.slot = index;
	tag.epoch = word >> WORD_EPOCH_SHIFT;
	__builtin_memcpy(data, &tag, sizeof(tag));
	count = bpf_map_lookup_elem(&traffic, &number);
	if (count) {
		count->rx_frames++;
		count->rx_bytes += bytes;
	}
	return REDIRECT_FAN_OUT;
disarm:
	__sync_fetch_and_and(&slot->word, ~WORD_ARMED);
	count_event(step);
	return FOUND;
}

#endif
