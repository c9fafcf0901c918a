/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * The parts of the kernel's BPF and header ABI that the classifier uses. They are written down here
 * so that the classifier compiles to the same bytes wherever clang runs, without kernel headers or
 * libbpf. Every name and number is the kernel's (include/uapi/linux: bpf.h and the headers of
 * Ethernet, IPv4, IPv6 and UDP).
 */
#ifndef ROCAST_XDP_H
#define ROCAST_XDP_H

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the maps and the metadata are little endian: compile with -target bpfel"
#endif

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed int __s32;
typedef __u16 __be16;
typedef __u32 __be32;

#define bpf_htons(x) __builtin_bswap16(x)
#define bpf_ntohl(x) __builtin_bswap32(x)
#define bpf_htonl(x) __builtin_bswap32(x)

/* Map definitions in BTF, from which a loader reads type, sizes and flags. */
#define SEC(name) __attribute__((section(name), used))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name
#define __array(name, val) typeof(val) *name[]
#define __always_inline inline __attribute__((always_inline))

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_XSKMAP = 17,
	BPF_MAP_TYPE_DEVMAP_HASH = 25,
};

enum { BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1 << 10 };
enum { BPF_F_BROADCAST = 1 << 3 };

enum xdp_action { XDP_DROP = 1, XDP_PASS = 2, XDP_REDIRECT = 4 };

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_redirect)(__u32 ifindex, __u64 flags) = (void *)23;
static long (*bpf_xdp_adjust_head)(struct xdp_md *ctx, int delta) = (void *)44;
static long (*bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)51;
static long (*bpf_xdp_adjust_meta)(struct xdp_md *ctx, int delta) = (void *)54;
static __u64 (*bpf_xdp_get_buff_len)(struct xdp_md *ctx) = (void *)188;
static long (*bpf_xdp_load_bytes)(struct xdp_md *ctx, __u32 offset, void *buf, __u32 len) = (void *)189;
static long (*bpf_xdp_store_bytes)(struct xdp_md *ctx, __u32 offset, void *buf, __u32 len) = (void *)190;

enum { ETH_DATA_MIN = 46 }; /* what is shorter is padded */

enum {
	ETH_P_IP = 0x0800,
	ETH_P_8021Q = 0x8100,
	ETH_P_IPV6 = 0x86DD,
	ETH_P_8021AD = 0x88A8,
};

enum {
	IPPROTO_HOPOPTS = 0,
	IPPROTO_UDP = 17,
	IPPROTO_ROUTING = 43,
	IPPROTO_FRAGMENT = 44,
	IPPROTO_DSTOPTS = 60,
};

struct ethhdr {
	__u8 h_dest[6];
	__u8 h_source[6];
	__be16 h_proto;
};

struct vlan_hdr {
	__be16 h_vlan_TCI;
	__be16 h_vlan_encapsulated_proto;
};

struct iphdr {
	__u8 version_ihl;
	__u8 tos;
	__be16 tot_len;
	__be16 id;
	__be16 frag_off;
	__u8 ttl;
	__u8 protocol;
	__u16 check;
	__be32 saddr;
	__be32 daddr;
};

struct ipv6hdr {
	__be32 version_class_flow;
	__be16 payload_len;
	__u8 nexthdr;
	__u8 hop_limit;
	__be32 saddr[4];
	__be32 daddr[4];
};

struct udphdr {
	__be16 source;
	__be16 dest;
	__be16 len;
	__u16 check;
};

#endif
