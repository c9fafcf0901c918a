// SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause)
//go:build ignore

/*
 * The edge of shared legs at a receiver's host. A box sends one copy of a packet to a multicast
 * address, whatever the number of receivers. Here, in front of rdma_rxe, it becomes the packet that
 * a queue pair of this host expects.
 *
 *	shared copy -> look up (source, multicast address, QPN) -- a mapping -> rewritten, to the host
 *	                                                       \-- none ------> dropped
 *
 * What differs between a shared copy and the host's packet is constant for a mapping, so no packet
 * changes any state, and the new ICRC follows from the received one: docs/wire.md#icrc. A frame
 * that is no RoCEv2 packet to one of this edge's multicast addresses goes to the host untouched.
 *
 * The same code is three programs: XDP for frames of one buffer and for frames of several, and tc
 * where a host has no place for an XDP program.
 */
#include "xdp.h"

enum {
	ROCE_V2_PORT = 4791,
	MF_AND_OFFSET = 0x3fff, /* of IPv4's frag_off, without DF */
	NO_OPTIONS = 0x45, /* IPv4 with a header of 20 bytes */
	NUMBER_MASK = 0xffffff, /* of QPNs and PSNs */
	ICRC_BYTES = 4,
	MAPPINGS = 4096,
	ADDRESSES = 1024,
	REGIONS = 4,
	CRC_TABLES = 19, /* as far as from the PSN to the end of a RETH */
	OPERATORS = 11, /* 2^11 - 1 words of zeros are more than path MTU 4096 needs */
	WORDS_MAX = (1 << OPERATORS) - 1,
};

enum {
	OP_WRITE_FIRST = 0x06,
	OP_WRITE_ONLY = 0x0a,
	OP_WRITE_ONLY_IMMEDIATE = 0x0b,
};

struct bth {
	__u8 opcode;
	__u8 se_m_pad_tver;
	__be16 pkey;
	__be32 qpn; /* the upper 8 bits are other fields */
	__be32 psn; /* the same */
};

struct reth {
	__u64 va; /* in the byte order of the wire, as all others */
	__be32 rkey;
	__be32 bytes;
};

/* IPv4 addresses stand as ::ffff:a.b.c.d. ipv6 tells an IPv6 packet with such an address apart. */
struct rocast_address {
	__be32 ip[4];
	__u32 ipv6;
};

struct rocast_leg {
	__be32 src[4];
	struct rocast_address dst;
	__u32 qpn;
};

/* How the RETH of one region differs. All numbers are in the byte order of the machine. */
struct rocast_range {
	__u64 va;
	__u64 length;
	__u64 add_va;
	__u32 rkey;
	__u32 to_rkey;
	__u32 crc; /* what the change of the R_Key leaves in the CRC register at the end of the RETH */
	__u32 zero;
};

struct rocast_mapping {
	__u8 mac[6];
	__u16 checksum; /* added to the complement of the IPv4 header checksum */
	__be32 dst[4];
	__u32 qpn;
	__u32 add_psn;
	__u32 crc; /* what the changes of address and QPN leave in the register at the end of the BTH */
	__u32 crc_past_reth; /* the same at the end of a RETH */
	__u32 ranges;
	__u32 owner; /* whose mapping this is; only user space reads it */
	struct rocast_range range[REGIONS];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAPPINGS);
	__type(key, struct rocast_leg);
	__type(value, struct rocast_mapping);
} mappings SEC(".maps");

/* The multicast addresses of the legs: RoCEv2 packets to them are the edge's, mapped or not. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ADDRESSES);
	__type(key, struct rocast_address);
	__type(value, __u32);
} addresses SEC(".maps");

/* crc[k][b] is the register after byte b and k zero bytes; zeros[k] are 2^k words of zeros. */
struct rocast_tables {
	__u32 crc[CRC_TABLES][256];
	__u32 zeros[OPERATORS][4][256];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rocast_tables);
} tables SEC(".maps");

/* What became of a packet to a multicast address of the edge. */
enum rocast_fate {
	MAPPED,
	NO_MAPPING,
	REFUSED_LENGTH, /* the lengths do not fit each other */
	REFUSED_REGION, /* a WRITE outside the group's memory */
	FATES,
	NOT_OURS = FATES, /* not counted */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FATES);
	__type(key, enum rocast_fate);
	__type(value, __u64);
} fates SEC(".maps");

static long (*bpf_skb_store_bytes)(void *skb, __u32 offset, const void *from, __u32 len, __u64 flags) = (void *)9;
static long (*bpf_skb_load_bytes)(const void *skb, __u32 offset, void *to, __u32 len) = (void *)26;
static long (*bpf_skb_change_type)(void *skb, __u32 type) = (void *)32;
static long (*bpf_skb_pull_data)(void *skb, __u32 len) = (void *)39;

/* What the program runs on. The accesses to bytes behind the first buffer differ. */
enum place { AT_XDP, AT_TC };

struct packet {
	__u8 *data;
	void *end; /* of the first buffer */
	struct ethhdr *eth;
	void *ip; /* of leg.dst.ipv6: the verifier cannot tell a pointer from 0 */
	struct udphdr *udp;
	struct bth *bth;
	__u32 udp_offset;
	__u32 udp_bytes; /* as IP says */
	struct rocast_leg leg;
};

/* Finds the headers of a RoCEv2 packet to an IP multicast address. False: it is something else. */
static __always_inline int read_headers(struct packet *p)
{
	void *l3 = p->eth + 1;
	__be16 proto;

	if (l3 > p->end)
		return 0;
	p->udp_offset = sizeof(struct ethhdr);
	proto = p->eth->h_proto;
	if (proto == bpf_htons(ETH_P_8021Q)) {
		struct vlan_hdr *vlan = l3;

		l3 = vlan + 1;
		if (l3 > p->end)
			return 0;
		p->udp_offset += sizeof(*vlan);
		proto = vlan->h_vlan_encapsulated_proto;
	}
	/*
	 * The address of IP decides, not that of Ethernet: a switch may give each host a frame to its
	 * own MAC.
	 */
	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = l3;

		if ((void *)(ip + 1) > p->end || ip->version_ihl != NO_OPTIONS || ip->protocol != IPPROTO_UDP ||
		    ip->frag_off & bpf_htons(MF_AND_OFFSET) ||
		    (ip->daddr & bpf_htonl(0xf0000000)) != bpf_htonl(0xe0000000))
			return 0;
		p->leg.src[2] = bpf_htonl(0xffff);
		p->leg.src[3] = ip->saddr;
		p->leg.dst.ip[2] = bpf_htonl(0xffff);
		p->leg.dst.ip[3] = ip->daddr;
		p->udp_bytes = (__u32)__builtin_bswap16(ip->tot_len) - sizeof(*ip);
		p->udp_offset += sizeof(*ip);
		p->ip = ip;
		p->udp = (void *)(ip + 1);
	} else if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = l3;

		if ((void *)(ip + 1) > p->end || ip->nexthdr != IPPROTO_UDP ||
		    (ip->daddr[0] & bpf_htonl(0xff000000)) != bpf_htonl(0xff000000))
			return 0;
		__builtin_memcpy(p->leg.src, ip->saddr, sizeof(ip->saddr));
		__builtin_memcpy(p->leg.dst.ip, ip->daddr, sizeof(ip->daddr));
		p->leg.dst.ipv6 = 1;
		p->udp_bytes = __builtin_bswap16(ip->payload_len);
		p->udp_offset += sizeof(*ip);
		p->ip = ip;
		p->udp = (void *)(ip + 1);
	} else {
		return 0;
	}
	p->bth = (void *)(p->udp + 1);
	if ((void *)(p->bth + 1) > p->end || p->udp->dest != bpf_htons(ROCE_V2_PORT))
		return 0;
	p->leg.qpn = bpf_ntohl(p->bth->qpn) & NUMBER_MASK;
	return 1;
}

/*
 * One byte of a number. The compiler must not see its bound: it would leave the mask out, and the
 * verifiers of 6.1 and 6.12 would not know that the byte cannot be larger.
 */
static __always_inline __u64 byte(__u64 x, const int shift)
{
	x >>= shift;
	asm volatile("" : "+r"(x));
	return x & 0xff;
}

/* What a changed PSN leaves in the register so many bytes behind the BTH, which is a constant. */
static __always_inline __u32 crc_of_psn(const struct rocast_tables *t, __u32 change, const __u32 behind)
{
	return t->crc[behind + 2][byte(change, 16)] ^ t->crc[behind + 1][byte(change, 8)] ^ t->crc[behind][byte(change, 0)];
}

/* What a changed VA leaves at the end of the RETH. change is in the byte order of the wire. */
static __always_inline __u32 crc_of_va(const struct rocast_tables *t, __u64 change)
{
	__u32 crc = 0;

#pragma unroll
	for (int i = 0; i < 8; i++)
		crc ^= t->crc[15 - i][byte(change, 8 * i)];
	return crc;
}

/* Passes the CRC register over words of zeros. */
static __always_inline __u32 advance(const struct rocast_tables *t, __u32 crc, __u32 words)
{
#pragma unroll
	for (int k = 0; k < OPERATORS; k++) {
		const __u32(*o)[256] = t->zeros[k];

		if (words >> k & 1)
			crc = o[0][byte(crc, 0)] ^ o[1][byte(crc, 8)] ^ o[2][byte(crc, 16)] ^ o[3][byte(crc, 24)];
	}
	return crc;
}

static __always_inline int has_reth(__u8 opcode)
{
	return opcode == OP_WRITE_FIRST || opcode == OP_WRITE_ONLY || opcode == OP_WRITE_ONLY_IMMEDIATE;
}

/* The range that has all bytes of the WRITE, or REGIONS. */
static __always_inline __u32 range_of(const struct rocast_mapping *m, const struct reth *reth)
{
	__u64 va = __builtin_bswap64(reth->va);
	__u32 rkey = bpf_ntohl(reth->rkey), bytes = bpf_ntohl(reth->bytes), which = REGIONS;

#pragma unroll
	for (__u32 i = 0; i < REGIONS; i++) {
		const struct rocast_range *r = &m->range[i];

		if (i < m->ranges && r->rkey == rkey && va - r->va <= r->length && bytes <= r->length - (va - r->va))
			which = i;
	}
	/* The verifier of 6.1 loses the bound when the compiler spills the register. */
	asm volatile("" : "+r"(which));
	return which;
}

static __always_inline void write_headers(const struct packet *p, const struct rocast_mapping *m, __u32 psn)
{
	struct bth *bth = p->bth;

	bth->qpn = (bth->qpn & bpf_htonl(~NUMBER_MASK)) | bpf_htonl(m->qpn);
	bth->psn = (bth->psn & bpf_htonl(~NUMBER_MASK)) | bpf_htonl(psn);
	p->udp->check = 0;
	if (p->leg.dst.ipv6) {
		struct ipv6hdr *ip = p->ip;

		__builtin_memcpy(ip->daddr, m->dst, sizeof(m->dst));
	} else {
		struct iphdr *ip = p->ip;
		__u32 sum = (__u16)~__builtin_bswap16(ip->check) + m->checksum;

		sum = (sum >> 16) + (sum & 0xffff);
		ip->check = __builtin_bswap16(~sum);
		ip->daddr = m->dst[3];
	}
	__builtin_memcpy(p->eth->h_dest, m->mac, sizeof(m->mac));
}

/* Changes the ICRC, which may stand behind the first buffer. False: the frame ends before. */
static __always_inline int change_icrc(void *ctx, const struct packet *p, __u32 change, const enum place place)
{
	__u32 at = p->udp_offset + p->udp_bytes - ICRC_BYTES, icrc;
	__u8 *tail;

	/* The verifier has to see the bound check on the pointer that is used afterwards. */
	asm volatile("" : "+r"(at));
	at &= 0x3fff;
	tail = p->data + at;
	asm volatile("" : "+r"(tail));
	if ((void *)(tail + ICRC_BYTES) <= p->end) {
		*(__u32 *)tail ^= change;
		return 1;
	}
	if (place == AT_TC) {
		if (bpf_skb_load_bytes(ctx, at, &icrc, sizeof(icrc)))
			return 0;
		icrc ^= change;
		return !bpf_skb_store_bytes(ctx, at, &icrc, sizeof(icrc), 0);
	}
	if (bpf_xdp_load_bytes(ctx, at, &icrc, sizeof(icrc)))
		return 0;
	icrc ^= change;
	return !bpf_xdp_store_bytes(ctx, at, &icrc, sizeof(icrc));
}

/* Makes the packet the one that the queue pair expects. One that is refused may have changed. */
static __always_inline enum rocast_fate apply(void *ctx, const struct packet *p, const struct rocast_mapping *m, const enum place place)
{
	__u32 words, zero = 0, psn, was, change;
	const struct rocast_tables *t = bpf_map_lookup_elem(&tables, &zero);
	struct reth *reth = (void *)(p->bth + 1);

	if (!t || __builtin_bswap16(p->udp->len) != p->udp_bytes || p->udp_bytes & 3 ||
	    p->udp_bytes < sizeof(*p->udp) + sizeof(*p->bth) + ICRC_BYTES)
		return REFUSED_LENGTH;
	words = (p->udp_bytes - sizeof(*p->udp) - sizeof(*p->bth) - ICRC_BYTES) / 4;
	if (words > WORDS_MAX)
		return REFUSED_LENGTH;
	was = bpf_ntohl(p->bth->psn) & NUMBER_MASK;
	psn = (was + m->add_psn) & NUMBER_MASK;
	change = m->crc ^ crc_of_psn(t, was ^ psn, 0);
	if (has_reth(p->bth->opcode) && m->ranges) {
		__u32 which;

		if ((void *)(reth + 1) > p->end || words < sizeof(*reth) / 4)
			return REFUSED_LENGTH;
		which = range_of(m, reth);
		if (which >= REGIONS && reth->bytes)
			return REFUSED_REGION;
		if (which < REGIONS) {
			const struct rocast_range *r = &m->range[which & (REGIONS - 1)];
			__u64 is = __builtin_bswap64(__builtin_bswap64(reth->va) + r->add_va);

			change = m->crc_past_reth ^ r->crc ^ crc_of_psn(t, was ^ psn, sizeof(*reth)) ^ crc_of_va(t, reth->va ^ is);
			words -= sizeof(*reth) / 4;
			reth->va = is;
			reth->rkey = bpf_htonl(r->to_rkey);
		}
	}
	write_headers(p, m, psn);
	return change_icrc(ctx, p, advance(t, change, words), place) ? MAPPED : REFUSED_LENGTH;
}

static __always_inline enum rocast_fate decide(void *ctx, __u8 *data, void *end, const enum place place)
{
	struct packet p = {
		.data = data,
		.end = end,
		.eth = (void *)data,
	};
	const struct rocast_mapping *m;

	if (!read_headers(&p))
		return NOT_OURS;
	m = bpf_map_lookup_elem(&mappings, &p.leg);
	if (m)
		return apply(ctx, &p, m, place);
	return bpf_map_lookup_elem(&addresses, &p.leg.dst) ? NO_MAPPING : NOT_OURS;
}

static __always_inline enum rocast_fate map(void *ctx, __u8 *data, void *end, const enum place place)
{
	__u32 fate = decide(ctx, data, end, place);
	__u64 *count;

	if (fate >= FATES)
		return NOT_OURS;
	count = bpf_map_lookup_elem(&fates, &fate);
	if (count)
		(*count)++;
	return fate;
}

static __always_inline int map_at_xdp(struct xdp_md *ctx)
{
	__u32 fate = map(ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, AT_XDP);

	return fate == MAPPED || fate == NOT_OURS ? XDP_PASS : XDP_DROP;
}

SEC("xdp")
int rocast_edge(struct xdp_md *ctx)
{
	return map_at_xdp(ctx);
}

/* For frames of several buffers: path MTU 4096 on drivers that split it. */
SEC("xdp.frags")
int rocast_edge_frags(struct xdp_md *ctx)
{
	return map_at_xdp(ctx);
}

/* The kernel's struct __sk_buff as far as data_end. */
struct skb {
	__u32 len;
	__u32 others[18];
	__u32 data;
	__u32 data_end;
};

enum { TC_ACT_SHOT = 2, TC_NEXT = -1, PACKET_HOST = 0 };
enum { HEADERS_MAX = 14 + 4 + 40 + 8 + 12 + 16 };

/* Whatever is not dropped goes on to the next program or filter, both of tcx and of clsact. */
SEC("tc")
int rocast_edge_tc(struct skb *skb)
{
	__u32 want = skb->len < HEADERS_MAX ? skb->len : HEADERS_MAX, fate;

	if ((long)skb->data + want > (long)skb->data_end && bpf_skb_pull_data(skb, want))
		return TC_NEXT;
	fate = map(skb, (void *)(long)skb->data, (void *)(long)skb->data_end, AT_TC);
	if (fate == MAPPED)
		bpf_skb_change_type(skb, PACKET_HOST); /* a host may refuse unicast in a multicast frame */
	return fate == MAPPED || fate == NOT_OURS ? TC_NEXT : TC_ACT_SHOT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
