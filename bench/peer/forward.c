// SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause)
//go:build ignore

/*
 * forward: the bar. A replicator in C over AF_XDP that rewrites what rocast rewrites, with the
 * ICRC, and decides nothing: no merging, no check of the ICRC, no member table. Whoever wrote a
 * forwarder by hand for one group would write this.
 *
 * Per copy: Ethernet header, IP addresses, TTL, IPv4 checksum by difference, QPN, PSN, RETH VA and
 * R_Key, and the ICRC: the received one XOR one constant of (group, receiver), XOR a table word for
 * each byte in which PSN and VA differ. The tables come from the benchmark; they hold for its one
 * payload length.
 *
 * It does what is known to be fast: one spinning thread for each queue, batches of 64, ring sizes
 * and transmit budget as rocast has them, no need-wakeup, one kick after each batch and port. "In
 * place" rewrites the received buffers for one port after the other, as the kernel copies on
 * transmit; "memcpy" copies each frame into a buffer of the port's own.
 *
 * What the receivers send goes to the source's port as it is, from the buffers in which it came,
 * with one kick for all of them.
 *
 * stdin: struct setup, then struct edit for each (group, receiver). File descriptor 3: the XSKMAP
 * of all ports. It says "ready" on stdout and ends when stdin is closed. Raw system calls:
 * libxdp would add a dependency, not speed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_xdp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Newer than Debian 12's headers. */
#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif
#ifndef XDP_PKT_CONTD
#define XDP_PKT_CONTD (1 << 0)
#endif
#ifndef XDP_MAX_TX_SKB_BUDGET
#define XDP_MAX_TX_SKB_BUDGET 9
#endif
#ifndef AF_XDP
#define AF_XDP 44
#endif
#ifndef SOL_XDP
#define SOL_XDP 283
#endif

enum {
	CHUNK = 4096,
	RING = 2048,
	ANSWERS = 64, /* buffers for answers, for each port: a window asks for much fewer */
	ANSWERS_AT_ONCE = 16, /* of each port: those of all ports fit into a ring */
	BATCH = 64,
	BUDGET = 256,
	PORTS_MAX = 65,
	FRAGS_MAX = 2,
	HEADERS = 14 + 20 + 8 + 12 + 16,
	XSKMAP_FD = 3,
	OP_WRITE_ONLY = 0x0a,
};

/* Both structs are written by c.go. */
struct setup {
	uint32_t magic;
	uint32_t workers;
	uint32_t receivers;
	uint32_t groups;
	uint32_t copy;  /* memcpy, else in place */
	uint32_t multi; /* frames take two buffers */
	uint32_t first_group;
	uint32_t ifindex[PORTS_MAX];
	uint32_t psn_icrc[3][256]; /* by byte, from the last one */
	uint32_t va_icrc[8][256];
};

struct edit {
	uint8_t l2[14];
	uint16_t checksum; /* added to the complement of the received one, host order */
	uint32_t src, dst; /* network order */
	uint32_t qpn;      /* network order, in the low 24 bits of the word on the wire */
	uint32_t rkey;     /* network order */
	uint32_t psn;      /* added */
	uint32_t icrc;     /* XORed */
	uint64_t va;       /* added */
};

struct __attribute__((packed)) frame {
	uint8_t l2[12];
	uint16_t proto;
	uint8_t version, tos;
	uint16_t len, id, frag;
	uint8_t ttl, protocol;
	uint16_t check;
	uint32_t src, dst;
	uint16_t sport, dport, udp_len, udp_check;
	uint8_t opcode, flags;
	uint16_t pkey;
	uint32_t qpn, psn;
	uint64_t va;
	uint32_t rkey, length;
};

static struct setup setup;
static struct edit *edits;
static volatile int quit;

#define MAGIC 0x62656e63

static void die(const char *what)
{
	fprintf(stderr, "forward: %s: %s\n", what, strerror(errno));
	exit(1);
}

struct ring {
	uint32_t *producer, *consumer;
	void *entries;
};

struct port {
	int fd;
	struct ring rx, tx, fill, done;
	uint64_t pool; /* memcpy: the port's own buffers in the UMEM */
	uint32_t next;
};

/* What a frame was when it came: every copy is made from this. */
struct packet {
	uint8_t *head;
	uint8_t *icrc_at;
	struct xdp_desc desc[FRAGS_MAX];
	int frags;
	const struct edit *edit;
	uint16_t check;
	uint8_t ttl;
	uint32_t psn; /* host order, AckReq in bit 31 */
	uint64_t va;  /* host order */
	uint32_t icrc;
};

struct worker {
	pthread_t thread;
	uint32_t queue;
	uint8_t *umem;
	struct port ports[PORTS_MAX];
	struct packet packets[BATCH];
};

static void map_ring(int fd, struct ring *r, off_t at, const struct xdp_ring_offset *o, size_t entry)
{
	uint8_t *m = mmap(NULL, o->desc + RING * entry, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, at);

	if (m == MAP_FAILED)
		die("map a ring");
	r->producer = (uint32_t *)(m + o->producer);
	r->consumer = (uint32_t *)(m + o->consumer);
	r->entries = m + o->desc;
}

static void set(int fd, int option, const void *value, socklen_t len)
{
	if (setsockopt(fd, SOL_XDP, option, value, len))
		die("set up an AF_XDP socket");
}

static void open_port(struct worker *w, int i, size_t umem_bytes)
{
	struct port *p = &w->ports[i];
	struct xdp_umem_reg reg = {.addr = (uintptr_t)w->umem, .len = umem_bytes, .chunk_size = CHUNK};
	struct sockaddr_xdp addr = {
		.sxdp_family = AF_XDP, .sxdp_ifindex = setup.ifindex[i], .sxdp_queue_id = w->queue,
	};
	struct xdp_mmap_offsets off;
	socklen_t len = sizeof(off);
	int size = RING, budget = BUDGET;

	p->fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (p->fd < 0)
		die("open an AF_XDP socket");
	if (i == 0)
		set(p->fd, XDP_UMEM_REG, &reg, sizeof(reg));
	set(p->fd, XDP_UMEM_FILL_RING, &size, sizeof(size));
	set(p->fd, XDP_UMEM_COMPLETION_RING, &size, sizeof(size));
	set(p->fd, XDP_RX_RING, &size, sizeof(size));
	set(p->fd, XDP_TX_RING, &size, sizeof(size));
	setsockopt(p->fd, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget, sizeof(budget)); /* before 6.17: 32 a kick */
	if (getsockopt(p->fd, SOL_XDP, XDP_MMAP_OFFSETS, &off, &len))
		die("read the rings' offsets");
	map_ring(p->fd, &p->rx, XDP_PGOFF_RX_RING, &off.rx, sizeof(struct xdp_desc));
	map_ring(p->fd, &p->tx, XDP_PGOFF_TX_RING, &off.tx, sizeof(struct xdp_desc));
	map_ring(p->fd, &p->fill, XDP_UMEM_PGOFF_FILL_RING, &off.fr, sizeof(uint64_t));
	map_ring(p->fd, &p->done, XDP_UMEM_PGOFF_COMPLETION_RING, &off.cr, sizeof(uint64_t));
	if (i == 0) {
		addr.sxdp_flags = XDP_COPY | (setup.multi ? XDP_USE_SG : 0);
	} else {
		addr.sxdp_flags = XDP_SHARED_UMEM;
		addr.sxdp_shared_umem_fd = w->ports[0].fd;
	}
	for (int tries = 0; bind(p->fd, (struct sockaddr *)&addr, sizeof(addr)); tries++) {
		if (errno != EBUSY || tries == 1000)
			die("bind an AF_XDP socket");
		usleep(2000); /* the queue's last owner is being torn down */
	}
}

static void fill(struct port *p, uint64_t from, uint32_t chunks)
{
	uint64_t *ring = p->fill.entries;

	for (uint32_t i = 0; i < chunks; i++)
		ring[i] = from + (uint64_t)i * CHUNK;
	__atomic_store_n(p->fill.producer, chunks, __ATOMIC_RELEASE);
}

static void open_worker(struct worker *w)
{
	/* Chunks to receive into from the source, from each receiver, and, for memcpy, to send from. */
	uint64_t answers = (uint64_t)RING * CHUNK, pools = answers + (uint64_t)setup.receivers * ANSWERS * CHUNK;
	uint64_t bytes = pools + (setup.copy ? (uint64_t)setup.receivers * RING * CHUNK : 0);

	w->umem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (w->umem == MAP_FAILED)
		die("allocate packet memory");
	madvise(w->umem, bytes, MADV_HUGEPAGE); /* as rocast does */
	memset(w->umem, 0, bytes);
	for (uint32_t i = 0; i <= setup.receivers; i++) {
		open_port(w, i, bytes);
		if (i == 0) {
			fill(&w->ports[i], 0, RING);
			continue;
		}
		fill(&w->ports[i], answers + (uint64_t)(i - 1) * ANSWERS * CHUNK, ANSWERS);
		w->ports[i].pool = pools + (uint64_t)(i - 1) * RING * CHUNK;
	}
}

static void steer(struct worker *w)
{
	for (uint32_t i = 0; i <= setup.receivers; i++) {
		uint32_t key = i * setup.workers + w->queue, value = w->ports[i].fd;
		union bpf_attr attr = {.map_fd = XSKMAP_FD, .key = (uintptr_t)&key, .value = (uintptr_t)&value};

		if (syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &attr, sizeof(attr)))
			die("put a socket into the XSKMAP");
	}
}

/* 1: the packet is to be replicated. */
static int admit(struct worker *w, struct packet *p)
{
	struct frame *f = (struct frame *)p->head;
	const struct xdp_desc *last = &p->desc[p->frags - 1];
	uint32_t group;

	if (p->desc[0].len < HEADERS || last->len < 4 || f->proto != htons(0x0800) || f->version != 0x45 ||
	    f->ttl <= 1 || f->opcode != OP_WRITE_ONLY || (ntohl(f->qpn) & 0xffffff) != 1)
		return 0;
	group = ntohl(f->dst) - setup.first_group;
	if (group >= setup.groups)
		return 0;
	p->edit = &edits[(size_t)group * setup.receivers];
	p->icrc_at = w->umem + last->addr + last->len - 4;
	memcpy(&p->icrc, p->icrc_at, 4);
	p->check = ntohs(f->check);
	p->ttl = f->ttl;
	p->psn = ntohl(f->psn);
	p->va = be64toh(f->va);
	return 1;
}

static inline uint32_t fold_icrc(uint32_t psn, uint64_t va)
{
	uint32_t c = setup.psn_icrc[0][psn & 255] ^ setup.psn_icrc[1][psn >> 8 & 255] ^ setup.psn_icrc[2][psn >> 16 & 255];

	for (int i = 0; i < 8; i++)
		c ^= setup.va_icrc[i][va >> 8 * i & 255];
	return c;
}

static inline void rewrite(const struct packet *p, const struct edit *e, uint8_t *head, uint8_t *icrc_at)
{
	struct frame *f = (struct frame *)head;
	uint32_t psn = ((p->psn + e->psn) & 0xffffff) | (p->psn & 0xff000000u);
	uint64_t va = p->va + e->va;
	uint32_t sum = (uint16_t)~p->check + e->checksum;
	uint32_t icrc = p->icrc ^ e->icrc ^ fold_icrc(psn ^ p->psn, va ^ p->va);

	memcpy(head, e->l2, 14);
	f->check = htons(~(sum + (sum >> 16)));
	f->ttl = p->ttl - 1;
	f->src = e->src;
	f->dst = e->dst;
	f->udp_check = 0;
	f->qpn = (f->qpn & htonl(0xff000000)) | e->qpn;
	f->psn = htonl(psn);
	f->va = htobe64(va);
	f->rkey = e->rkey;
	memcpy(icrc_at, &icrc, 4);
}

/* Takes up to BATCH packets. *descs is the number of descriptors that they took in the ring. */
static int receive(struct worker *w, uint64_t *used, int *descs)
{
	struct ring *r = &w->ports[0].rx;
	uint32_t at = *r->consumer, ready = __atomic_load_n(r->producer, __ATOMIC_ACQUIRE) - at;
	const struct xdp_desc *ring = r->entries;
	int n = 0;
	uint32_t taken = 0;

	while (n < BATCH && taken < ready) {
		struct packet *p = &w->packets[n];
		uint32_t frags = 0;

		for (;;) {
			const struct xdp_desc *d = &ring[(at + taken + frags) % RING];

			if (frags < FRAGS_MAX)
				p->desc[frags] = *d;
			frags++;
			if (!(d->options & XDP_PKT_CONTD))
				break;
			if (taken + frags == ready)
				goto out; /* the rest of the frame is still to come */
		}
		for (uint32_t i = 0; i < frags; i++)
			*used++ = ring[(at + taken + i) % RING].addr & ~(uint64_t)(CHUNK - 1);
		taken += frags;
		p->frags = frags;
		p->head = w->umem + p->desc[0].addr;
		if (frags <= FRAGS_MAX && admit(w, p))
			n++;
		if (taken + FRAGS_MAX > BATCH * FRAGS_MAX)
			break;
	}
out:
	__atomic_store_n(r->consumer, at + taken, __ATOMIC_RELEASE);
	*descs = taken;
	return n;
}

static void recycle(struct port *p, const uint64_t *used, int descs)
{
	struct ring *r = &p->fill;
	uint32_t at = *r->producer;
	uint64_t *fill = r->entries;

	for (int i = 0; i < descs; i++)
		fill[(at + i) % RING] = used[i];
	__atomic_store_n(r->producer, at + descs, __ATOMIC_RELEASE);
}

/* Kicks until the kernel has passed all descriptors: in copy mode it has the bytes then. */
static void flush(struct port *p, uint32_t producer)
{
	__atomic_store_n(p->tx.producer, producer, __ATOMIC_RELEASE);
	for (int tries = 0; __atomic_load_n(p->tx.consumer, __ATOMIC_ACQUIRE) != producer; tries++) {
		__atomic_store_n(p->done.consumer, __atomic_load_n(p->done.producer, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
		if (sendto(p->fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 && errno != EAGAIN && errno != EBUSY &&
		    errno != ENOBUFS && errno != EINTR)
			die("send");
		if (tries == 1 << 20) {
			errno = ETIME;
			die("send");
		}
	}
}

/* Copies a packet into the port's next buffers and returns its descriptors in desc. */
static void duplicate(struct worker *w, struct port *p, const struct packet *k, const struct edit *e, struct xdp_desc *desc)
{
	uint8_t *head = NULL, *to = NULL;

	for (int i = 0; i < k->frags; i++) {
		desc[i] = k->desc[i];
		desc[i].addr = p->pool + (uint64_t)(p->next++ % RING) * CHUNK;
		to = w->umem + desc[i].addr;
		memcpy(to, w->umem + k->desc[i].addr, k->desc[i].len);
		if (i == 0)
			head = to;
	}
	rewrite(k, e, head, to + k->desc[k->frags - 1].len - 4);
}

static void replicate(struct worker *w, int n)
{
	for (uint32_t r = 0; r < setup.receivers; r++) {
		struct port *p = &w->ports[1 + r];
		struct xdp_desc *ring = p->tx.entries;
		uint32_t at = *p->tx.producer;

		for (int i = 0; i < n; i++) {
			const struct packet *k = &w->packets[i];
			struct xdp_desc copy[FRAGS_MAX];
			const struct xdp_desc *desc = k->desc;

			if (setup.copy) {
				duplicate(w, p, k, &k->edit[r], copy);
				desc = copy;
			} else {
				rewrite(k, &k->edit[r], k->head, k->icrc_at);
			}
			for (int f = 0; f < k->frags; f++)
				ring[at++ % RING] = desc[f];
		}
		flush(p, at);
	}
}

/* Sends what the receivers' ports have received to the source's port. */
static void bring_answers(struct worker *w)
{
	struct port *source = &w->ports[0];
	struct xdp_desc *out = source->tx.entries;
	uint32_t at = *source->tx.producer, n = 0, taken[PORTS_MAX];
	uint64_t used[PORTS_MAX * ANSWERS_AT_ONCE];

	for (uint32_t i = 1; i <= setup.receivers; i++) {
		struct ring *r = &w->ports[i].rx;
		uint32_t from = *r->consumer, ready = __atomic_load_n(r->producer, __ATOMIC_ACQUIRE) - from;
		const struct xdp_desc *in = r->entries;

		taken[i] = ready < ANSWERS_AT_ONCE ? ready : ANSWERS_AT_ONCE;
		if (!ready)
			continue;
		for (uint32_t k = 0; k < taken[i]; k++) {
			const struct xdp_desc *d = &in[(from + k) % RING];

			out[(at + n) % RING] = *d;
			used[n++] = d->addr & ~(uint64_t)(CHUNK - 1);
		}
		__atomic_store_n(r->consumer, from + taken[i], __ATOMIC_RELEASE);
	}
	if (!n)
		return;
	flush(source, at + n);
	for (uint32_t i = 1, done = 0; i <= setup.receivers; done += taken[i++])
		if (taken[i])
			recycle(&w->ports[i], used + done, taken[i]);
}

static void *run(void *arg)
{
	struct worker *w = arg;
	uint64_t used[BATCH * FRAGS_MAX + 32];

	while (!quit) {
		int descs, n = receive(w, used, &descs);

		if (n)
			replicate(w, n);
		if (descs)
			recycle(&w->ports[0], used, descs);
		bring_answers(w);
	}
	return NULL;
}

static void read_all(void *to, size_t bytes)
{
	for (uint8_t *at = to; bytes;) {
		ssize_t n = read(0, at, bytes);

		if (n <= 0)
			die("read the setup");
		at += n;
		bytes -= n;
	}
}

int main(void)
{
	struct worker *workers;
	size_t bytes;
	char c;

	read_all(&setup, sizeof(setup));
	if (setup.magic != MAGIC || setup.receivers >= PORTS_MAX || !setup.workers) {
		errno = EPROTO;
		die("read the setup");
	}
	bytes = sizeof(*edits) * setup.groups * setup.receivers;
	edits = malloc(bytes);
	workers = calloc(setup.workers, sizeof(*workers));
	if (!edits || !workers)
		die("allocate");
	read_all(edits, bytes);
	for (uint32_t i = 0; i < setup.workers; i++) {
		workers[i].queue = i;
		open_worker(&workers[i]);
		steer(&workers[i]);
		if (pthread_create(&workers[i].thread, NULL, run, &workers[i]))
			die("start a thread");
	}
	printf("ready\n");
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	quit = 1;
	for (uint32_t i = 0; i < setup.workers; i++)
		pthread_join(workers[i].thread, NULL);
	return 0;
}
