/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * How the frames of the groups are found: what is read of a frame, where its group is looked up,
 * and how it goes to the AF_XDP socket of its queue with what was found in front of it. This part
 * changes no byte of a frame. It reads headers, not lengths: user space checks whether the frame is
 * a valid RoCEv2 packet (UDP length, padding, ICRC, PSN).
 */
#ifndef ROCAST_CLASSIFIER_H
#define ROCAST_CLASSIFIER_H

#include "xdp.h"

enum {
	ROCE_V2_PORT = 4791,
	MF_AND_OFFSET = 0x3fff, /* of IPv4's frag_off, without DF */
	VLAN_TAGS_MAX = 2,
	VLAN_ID_MASK = 0x0fff, /* of a tag's TCI */
	PCP_MASK = 0xe0, /* of the TCI's first byte */
	QP1 = 1, /* the general services QP: connection management */
};

/* BTH opcodes (IBTA vol. 1, 9.2.1; CNP: annex A17). */
enum {
	OP_READ_RESPONSE_FIRST = 0x0d,
	OP_ATOMIC_ACKNOWLEDGE = 0x12,
	OP_UD_SEND_ONLY = 0x64,
	OP_CNP = 0x81,
};

struct bth {
	__u8 opcode;
	__u8 se_m_pad_tver;
	__be16 pkey;
	__be32 qpn; /* 8 bits FECN, BECN and reserved, 24 bits dest QPN */
	__be32 psn; /* 8 bits AckReq and reserved, 24 bits PSN */
};

enum rocast_kind {
	KIND_DATA = 1, /* requests, and every opcode of no other kind */
	KIND_FEEDBACK, /* READ responses, ACK, ATOMIC ACK */
	KIND_CNP,
	KIND_CM,
};

enum rocast_flags {
	IPV6 = 1 << 0,
	VLAN_SHIFT = 1, /* two bits: number of VLAN tags */
};

enum { MAGIC = 0x726f6361 };

/* The 16 bytes that user space finds in front of a redirected frame. */
struct rocast_meta {
	__u32 magic; /* marks the metadata as the classifier's */
	__u32 group;
	__u8 kind;
	__u8 flags;
	__u8 l3_off; /* from the start of the frame, bytes */
	__u8 bth_off;
	__u32 reserved;
};

/* Which fields of a key are compared. The others are 0. */
enum rocast_match {
	MATCH_DST_QPN = 1,
	MATCH_PAIR_QPN, /* source, destination and QPN */
	MATCH_DST,
	MATCH_SRC, /* an address that only the box sends from */
} __attribute__((packed));

struct rocast_key {
	__u8 src[16]; /* IPv4 as ::ffff:a.b.c.d, the way a GID spells it */
	__u8 dst[16];
	__u32 qpn;
	enum rocast_match match;
	__u8 ipv6; /* 1: an IPv6 frame, whose v4-mapped address is no IPv4 group's */
	__u8 zero[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct rocast_key);
	__type(value, __u32);
} groups SEC(".maps");

enum {
	PORT_ENTRIES = 1 << 14,
	PORTS = 256, /* that are attached at one time */
	QUEUES = 1024, /* of a port; a queue with a higher number has no socket */
};

/* Whether the driver of a port leaves room for metadata in front of a frame. */
enum {
	ROOM_UNKNOWN, /* no frame has arrived yet */
	ROOM,
	NO_ROOM, /* user space attaches the classifier in another mode */
};

/* What differs between ports. One program serves all of them. */
struct rocast_port {
	__u32 ifindex; /* 0: the entry is free */
	__u32 number; /* the PortID */
	__u32 first_socket; /* of the port's queue 0 in the map xsks */
	__u32 room;
	__u32 redirected; /* a frame was redirected to a socket since user space wrote 0 */
};

/* What user space and all programs share. */
struct rocast_common {
	/*
	 * The number of changes of groups, which user space writes after each change. 0: it does
	 * not write them, and nothing is remembered.
	 */
	__u32 changes;
	struct rocast_port ports[PORT_ENTRIES]; /* by the lowest bits of the ifindex */
} common;

/*
 * What was found in groups last on a CPU, by the lowest bits of the QPN and of the source address.
 * A CPU runs one classifier at a time, because the kernel disables bottom halves meanwhile.
 */
enum { REMEMBERED = 64 };

struct rocast_found {
	__be32 src[4];
	__be32 dst[4];
	__u32 qpn;
	__u32 ipv6;
	__u32 group;
	__u32 changes; /* when the group was looked up; 0: none was */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REMEMBERED);
	__type(key, __u32);
	__type(value, struct rocast_found);
} found SEC(".maps");

/* The sockets of the queues of all ports. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, PORTS * QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

/* The decision about a frame. Each frame moves the counter of exactly one. */
enum rocast_verdict {
	PASS_TRUNCATED,
	PASS_NOT_IP,
	PASS_FRAGMENT,
	PASS_IP_OPTIONS,
	PASS_NOT_UDP,
	PASS_NOT_ROCE,
	PASS_NO_GROUP,
	PASS_NO_SOCKET,
	PASS_META_FAILED,
	DROP_OWN_SOURCE,
	DROP_MERGED, /* an ACK that the kernel merged, and that the source does not hear of yet: answers.h */
	REDIRECT_DATA,
	REDIRECT_FEEDBACK,
	REDIRECT_CNP,
	REDIRECT_CM,
	REDIRECT_FAN_OUT, /* sent to every path by the kernel: fanout.h */
	REDIRECT_MERGED, /* an ACK that the kernel merged, and that became the ACK to the source: answers.h */
	VERDICTS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VERDICTS);
	__type(key, enum rocast_verdict);
	__type(value, __u64);
} counters SEC(".maps");

/* No verdict yet: the step found what it looked for. */
enum { FOUND = VERDICTS };

/*
 * What the headers of one frame say. cursor walks from header to header and offset counts the bytes
 * that it passes: only programs loaded with CAP_PERFMON may subtract pointers. The verifier of 6.12
 * takes the classifier without that capability. The verifier of 6.1 does not: when half of a number
 * on the stack is overwritten, it takes the number for a pointer.
 */
struct frame {
	void *cursor;
	void *end;
	__u8 offset;
	__be16 proto;
	__be32 src[4];
	__be32 dst[4];
	__u32 qpn;
	__u8 pcp; /* the priority of the outermost tag, in the bits of a TCI's first byte */
	__u32 vlans[VLAN_TAGS_MAX]; /* TPID and VLAN ID, the outermost first; tags with VLAN ID 0 are left out */
	struct rocast_meta meta;
};

/* Moves the cursor over one header. False: the frame's first buffer ends inside the header. */
static __always_inline int take(struct frame *f, __u8 bytes)
{
	f->cursor += bytes;
	f->offset += bytes;
	return f->cursor <= f->end;
}

static __always_inline void map_ipv4(__be32 *to, __be32 addr)
{
	to[0] = 0;
	to[1] = 0;
	to[2] = bpf_htonl(0xffff);
	to[3] = addr;
}

static __always_inline int is_vlan(__be16 proto)
{
	return proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD);
}

/* A tag with VLAN ID 0 carries only a priority. */
static __always_inline void put_vlan(struct frame *f, __be16 tpid, __be16 tci)
{
	__u32 id = __builtin_bswap16(tci) & VLAN_ID_MASK, vlan = (__u32)__builtin_bswap16(tpid) << 16 | id;

	if (id && !f->vlans[0])
		f->vlans[0] = vlan;
	else if (id)
		f->vlans[1] = vlan;
}

static __always_inline int read_ethernet(struct frame *f)
{
	struct ethhdr *eth = f->cursor;
	__u8 tags = 0;

	if (!take(f, sizeof(*eth)))
		return PASS_TRUNCATED;
	f->proto = eth->h_proto;
#pragma unroll
	for (int i = 0; i < VLAN_TAGS_MAX; i++) {
		struct vlan_hdr *vlan = f->cursor;

		if (!is_vlan(f->proto))
			break;
		if (!take(f, sizeof(*vlan)))
			return PASS_TRUNCATED;
		put_vlan(f, f->proto, vlan->h_vlan_TCI);
		if (i == 0)
			f->pcp = vlan->h_vlan_TCI & PCP_MASK;
		f->proto = vlan->h_vlan_encapsulated_proto;
		tags++;
	}
	f->meta.flags = tags << VLAN_SHIFT;
	f->meta.l3_off = f->offset;
	return FOUND;
}

static __always_inline int read_ipv4(struct frame *f)
{
	struct iphdr *ip = f->cursor;

	if (!take(f, sizeof(*ip)))
		return PASS_TRUNCATED;
	if (ip->version_ihl >> 4 != 4)
		return PASS_NOT_IP;
	map_ipv4(f->src, ip->saddr);
	map_ipv4(f->dst, ip->daddr);
	if (ip->frag_off & bpf_htons(MF_AND_OFFSET))
		return PASS_FRAGMENT;
	if (ip->version_ihl != 0x45)
		return PASS_IP_OPTIONS;
	if (ip->protocol != IPPROTO_UDP)
		return PASS_NOT_UDP;
	return FOUND;
}

static __always_inline int read_ipv6(struct frame *f)
{
	struct ipv6hdr *ip = f->cursor;

	if (!take(f, sizeof(*ip)))
		return PASS_TRUNCATED;
	if ((bpf_ntohl(ip->version_class_flow) >> 28) != 6)
		return PASS_NOT_IP;
	__builtin_memcpy(f->src, ip->saddr, sizeof(f->src));
	__builtin_memcpy(f->dst, ip->daddr, sizeof(f->dst));
	f->meta.flags |= IPV6;
	switch (ip->nexthdr) {
	case IPPROTO_UDP:
		break;
	case IPPROTO_FRAGMENT:
		return PASS_FRAGMENT;
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS:
		return PASS_IP_OPTIONS;
	default:
		return PASS_NOT_UDP;
	}
	return FOUND;
}

static __always_inline int read_ip(struct frame *f)
{
	if (f->proto == bpf_htons(ETH_P_IP))
		return read_ipv4(f);
	if (f->proto == bpf_htons(ETH_P_IPV6))
		return read_ipv6(f);
	return PASS_NOT_IP;
}

static __always_inline enum rocast_kind kind_of(__u8 opcode, __u32 qpn)
{
	if (opcode >= OP_READ_RESPONSE_FIRST && opcode <= OP_ATOMIC_ACKNOWLEDGE)
		return KIND_FEEDBACK;
	if (opcode == OP_CNP)
		return KIND_CNP;
	if (opcode == OP_UD_SEND_ONLY && qpn == QP1)
		return KIND_CM;
	return KIND_DATA;
}

static __always_inline int read_roce(struct frame *f)
{
	struct udphdr *udp = f->cursor;
	struct bth *bth;

	if (!take(f, sizeof(*udp)))
		return PASS_TRUNCATED;
	if (udp->dest != bpf_htons(ROCE_V2_PORT))
		return PASS_NOT_ROCE;
	f->meta.bth_off = f->offset;
	bth = f->cursor;
	if (!take(f, sizeof(*bth)))
		return PASS_TRUNCATED;
	f->qpn = bpf_ntohl(bth->qpn) & 0xffffff;
	f->meta.kind = kind_of(bth->opcode, f->qpn);
	return FOUND;
}

static __always_inline __u32 *look_up(const struct frame *f, enum rocast_match match)
{
	struct rocast_key key = { .match = match, .ipv6 = f->meta.flags & IPV6 };

	if (match == MATCH_PAIR_QPN || match == MATCH_SRC)
		__builtin_memcpy(key.src, f->src, sizeof(key.src));
	if (match != MATCH_SRC)
		__builtin_memcpy(key.dst, f->dst, sizeof(key.dst));
	if (match == MATCH_DST_QPN || match == MATCH_PAIR_QPN)
		key.qpn = f->qpn;
	return bpf_map_lookup_elem(&groups, &key);
}

/*
 * Compiler barrier: no read before it is moved behind it. x86 keeps the order of reads by itself.
 * On other CPUs the loader refuses fan-out (checkOrder in order.go), and does not write changes.
 */
static __always_inline void in_order(void)
{
	asm volatile("" ::: "memory");
}

static __always_inline int same(const __be32 *a, const __be32 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

/* A CM message names no group's QP: only its destination can be a group's. */
static __always_inline int find_group(struct frame *f)
{
	__u32 at = (f->qpn ^ bpf_ntohl(f->src[3])) & (REMEMBERED - 1), now = 0, *group = 0;
	struct rocast_found *last = bpf_map_lookup_elem(&found, &at);

	if (f->meta.kind != KIND_CM) { /* else now stays 0, and nothing is remembered */
		/*
		 * The number is read before the look-up. So what is remembered with the number is
		 * the state at that number or a later one, and after a later change the number
		 * differs.
		 */
		now = *(volatile __u32 *)&common.changes;
		in_order();
		if (last && now && last->changes == now && last->qpn == f->qpn &&
		    last->ipv6 == (f->meta.flags & IPV6) && same(last->dst, f->dst) && same(last->src, f->src)) {
			f->meta.group = last->group;
			return FOUND;
		}
		group = look_up(f, MATCH_DST_QPN);
		if (!group)
			group = look_up(f, MATCH_PAIR_QPN);
	}
	if (!group)
		group = look_up(f, MATCH_DST);
	if (!group)
		return PASS_NO_GROUP;
	f->meta.group = *group;
	if (last && now) {
		__builtin_memcpy(last->src, f->src, sizeof(last->src));
		__builtin_memcpy(last->dst, f->dst, sizeof(last->dst));
		last->qpn = f->qpn;
		last->ipv6 = f->meta.flags & IPV6;
		last->group = f->meta.group;
		last->changes = now;
	}
	return FOUND;
}

/*
 * Returns the entry of an attached interface, or 0: then user space has not made it yet, or has
 * removed it.
 */
static __always_inline struct rocast_port *port_of(__u32 ifindex)
{
	struct rocast_port *port = &common.ports[ifindex & (PORT_ENTRIES - 1)];

	if (port->ifindex != ifindex)
		port = 0;
	/* The compiler knows that the table is not at 0, and would not compare the pointer any more. */
	asm volatile("" : "+r"(port));
	return port;
}

/* The first frame shows it, whatever the frame is: so it is known before a group has traffic. */
static __always_inline void find_room(struct xdp_md *ctx, struct rocast_port *port)
{
	if (!port || port->room != ROOM_UNKNOWN)
		return;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(struct rocast_meta))) {
		port->room = NO_ROOM;
		return;
	}
	bpf_xdp_adjust_meta(ctx, sizeof(struct rocast_meta));
	port->room = ROOM;
}

/*
 * The redirect comes before the metadata: a frame that goes to the kernel because its queue has no
 * socket carries none, which would keep GRO from merging it. bpf_redirect_map returns its flag,
 * XDP_PASS, if there is no socket.
 */
static __always_inline int redirect(struct xdp_md *ctx, const struct frame *f, struct rocast_port *port)
{
	__u32 queue = ctx->rx_queue_index;
	struct rocast_meta *meta;

	if (!port || queue >= QUEUES || bpf_redirect_map(&xsks, port->first_socket + queue, XDP_PASS) != XDP_REDIRECT)
		return PASS_NO_SOCKET;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta)))
		return PASS_META_FAILED;
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return PASS_META_FAILED;
	*meta = f->meta;
	if (!port->redirected)
		port->redirected = 1;
	return FOUND;
}

/*
 * Frames that could reach a QP in the name of the box. A host reassembles fragments and skips IP
 * options before its RDMA device sees the packet (rxe receives from a UDP socket), so these frames
 * count whatever is in them. A group's frames do not count: user space refuses them by their
 * source, because no member has an address that only the box sends from.
 */
static __always_inline int could_be_forged(int step)
{
	return step == PASS_NO_GROUP || step == PASS_FRAGMENT || step == PASS_IP_OPTIONS;
}

#endif
