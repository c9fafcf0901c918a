/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * What the benchmark's own XDP programs use of the kernel's ABI, written down here so that they
 * compile to the same bytes wherever clang runs. Names and numbers are the kernel's.
 */
#ifndef BENCH_XDP_H
#define BENCH_XDP_H

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the maps are little endian: compile with -target bpfel"
#endif

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;

#define bpf_htons(x) __builtin_bswap16(x)
#define bpf_ntohl(x) __builtin_bswap32(x)
#define bpf_htonl(x) __builtin_bswap32(x)
#define bpf_be64(x) __builtin_bswap64(x)

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name

enum bpf_map_type {
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_DEVMAP = 14,
	BPF_MAP_TYPE_XSKMAP = 17,
	BPF_MAP_TYPE_DEVMAP_HASH = 25,
};

enum {
	BPF_F_BROADCAST = 1 << 3,
	BPF_F_EXCLUDE_INGRESS = 1 << 4,
	BPF_F_MMAPABLE = 1 << 10,
};

enum xdp_action { XDP_DROP = 1, XDP_PASS = 2 };

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static long (*bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)51;

enum {
	ETH_P_IP = 0x0800,
	IPPROTO_UDP = 17,
	ROCE_V2_PORT = 4791,
};

/* What the benchmark's hosts send: RoCEv2 WRITE ONLY or ACK over IPv4, untagged, no IP options. */
struct frame {
	__u8 h_dest[6];
	__u8 h_source[6];
	__u16 h_proto;
	__u8 version_ihl;
	__u8 tos;
	__u16 tot_len;
	__u16 id;
	__u16 frag_off;
	__u8 ttl;
	__u8 protocol;
	__u16 check;
	__u32 saddr;
	__u32 daddr;
	__u16 source;
	__u16 dest;
	__u16 len;
	__u16 udp_check;
	__u8 opcode;
	__u8 flags;
	__u16 pkey;
	__u32 qpn; /* the low 24 bits */
	__u32 psn; /* the low 24 bits; bit 31 asks for an acknowledgement */
} __attribute__((packed));

struct reth {
	__u64 va;
	__u32 rkey;
	__u32 length;
} __attribute__((packed));

#define BITS24 0xffffff

static inline __attribute__((always_inline)) int is_roce(const struct frame *f)
{
	return f->h_proto == bpf_htons(ETH_P_IP) && f->version_ihl == 0x45 && f->protocol == IPPROTO_UDP &&
	       f->dest == bpf_htons(ROCE_V2_PORT);
}

#endif
