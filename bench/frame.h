/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The frames of the benchmark's hosts, and what its XDP programs use of the kernel's ABI beside
 * what the classifier uses (../bpf/xdp.h).
 */
#ifndef BENCH_FRAME_H
#define BENCH_FRAME_H

#include "../bpf/xdp.h"

#define bpf_be64(x) __builtin_bswap64(x)

enum { BPF_MAP_TYPE_DEVMAP = 14 };
enum { BPF_F_EXCLUDE_INGRESS = 1 << 4 };

static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;

enum { ROCE_V2_PORT = 4791 };

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
