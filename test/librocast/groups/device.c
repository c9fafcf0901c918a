#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "device.h"

enum {
	FIRST_QPN = 17,
	FIRST_GROUP = 1000, /* the QPNs of groups, which the box says, begin here */
	ROOM = 256,
};

struct channel {
	struct ibv_comp_channel verbs;
};

struct queue {
	struct ibv_cq verbs;
	struct ibv_wc wc[ROOM];
	unsigned first, count;
	bool armed;
};

struct receives {
	struct ibv_srq verbs;
	struct ibv_recv_wr wr[ROOM];
	struct ibv_sge sge[ROOM];
	unsigned first, count;
};

struct region {
	struct ibv_mr verbs;
	int access;
	unsigned char *bytes; /* where verbs.addr really lies */
	struct region *next;
};

struct pair {
	struct ibv_qp verbs;
	uint32_t peer;
	bool dead;
	struct pair *next;
};

/* A send that not all receivers have taken, because one of them has posted no receive. */
struct sent {
	struct pair *from;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct sent *next;
};

static struct ibv_context context;
static struct sent *sends; /* the oldest first */
static struct pair *pairs;
static struct region *regions;
static uint32_t next_key = 1;
static int refusal; /* of registrations */
static unsigned receives_left = UINT_MAX; /* that are taken */
static uint32_t next_qpn = FIRST_QPN;
static bool works = true;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *allocate(size_t bytes)
{
	void *at = calloc(1, bytes);

	if (!at)
		abort();
	return at;
}

static void complete(struct ibv_cq *cq, struct ibv_wc wc)
{
	struct queue *q = (struct queue *)cq;

	if (q->count == ROOM)
		abort();
	q->wc[(q->first + q->count++) % ROOM] = wc;
	if (q->armed && q->verbs.channel)
		(void)eventfd_write(q->verbs.channel->fd, 1);
	q->armed = false;
}

static bool reaches(const struct pair *from, const struct pair *to)
{
	if (to == from || to->dead || !to->verbs.srq)
		return false;
	if (from->peer >= FIRST_GROUP)
		return to->peer == from->peer;
	return to->verbs.qp_num == from->peer;
}

/* The bytes that a program has named. A device would end the connection where it aborts. */
static void *bytes_of(const struct ibv_sge *sge, int access)
{
	struct region *r = regions;
	uintptr_t from;

	if (sge->length == 0)
		return NULL;
	while (r && r->verbs.lkey != sge->lkey)
		r = r->next;
	if (!r || (r->access & access) != access)
		abort();
	from = sge->addr - (uintptr_t)r->verbs.addr;
	if (from > r->verbs.length || sge->length > r->verbs.length - from)
		abort();
	return r->bytes + from;
}

static void deliver(struct pair *to, const struct ibv_send_wr *wr)
{
	struct receives *r = (struct receives *)to->verbs.srq;
	unsigned at = r->first;

	if (r->sge[at].length < wr->sg_list->length)
		abort(); /* a device would end the connection */
	r->first = (r->first + 1) % ROOM;
	r->count--;
	if (wr->sg_list->length > 0)
		memcpy(bytes_of(&r->sge[at], IBV_ACCESS_LOCAL_WRITE), bytes_of(wr->sg_list, 0), wr->sg_list->length);
	complete(to->verbs.recv_cq, (struct ibv_wc){ .wr_id = r->wr[at].wr_id, .opcode = IBV_WC_RECV, .byte_len = wr->sg_list->length, .qp_num = to->verbs.qp_num });
}

/* Whether all receivers of a send have posted a receive for it. */
static bool fits(const struct sent *send)
{
	for (struct pair *to = pairs; to && send->wr.opcode == IBV_WR_SEND; to = to->next)
		if (reaches(send->from, to) && ((struct receives *)to->verbs.srq)->count == 0)
			return false;
	return true;
}

static bool is_oldest(const struct sent *send)
{
	const struct sent *s = sends;

	while (s->from != send->from)
		s = s->next;
	return s == send;
}

/* Delivers what waits and can be taken. */
static void carry(void)
{
	struct sent **at = &sends;

	while (*at) {
		struct sent *send = *at;

		if (!is_oldest(send) || !fits(send)) {
			at = &send->next;
			continue;
		}
		for (struct pair *to = pairs; to && send->wr.opcode == IBV_WR_SEND; to = to->next)
			if (reaches(send->from, to))
				deliver(to, &send->wr);
		complete(send->from->verbs.send_cq,
			 (struct ibv_wc){ .wr_id = send->wr.wr_id, .opcode = IBV_WC_SEND, .qp_num = send->from->verbs.qp_num });
		*at = send->next;
		free(send);
	}
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct pair *from = (struct pair *)qp;

	(void)bad;
	pthread_mutex_lock(&lock);
	if (works || from->peer < FIRST_GROUP) {
		struct sent *send = allocate(sizeof(*send)), **last = &sends;

		send->from = from;
		send->wr = *wr;
		if (wr->num_sge > 0)
			send->sge = *wr->sg_list;
		send->wr.sg_list = &send->sge;
		while (*last)
			last = &(*last)->next;
		*last = send;
		carry();
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct receives *r = (struct receives *)srq;
	unsigned at;

	(void)bad;
	pthread_mutex_lock(&lock);
	if (receives_left == 0) {
		pthread_mutex_unlock(&lock);
		return ENOMEM;
	}
	receives_left -= receives_left < UINT_MAX;
	if (r->count == ROOM)
		abort();
	at = (r->first + r->count++) % ROOM;
	r->wr[at] = *wr;
	r->sge[at] = *wr->sg_list;
	carry();
	pthread_mutex_unlock(&lock);
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int entries, struct ibv_wc *wc)
{
	struct queue *q = (struct queue *)cq;
	int n = 0;

	pthread_mutex_lock(&lock);
	for (; n < entries && q->count > 0; n++, q->count--) {
		wc[n] = q->wc[q->first];
		q->first = (q->first + 1) % ROOM;
	}
	pthread_mutex_unlock(&lock);
	return n;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
	(void)solicited;
	pthread_mutex_lock(&lock);
	((struct queue *)cq)->armed = true;
	pthread_mutex_unlock(&lock);
	return 0;
}

struct ibv_comp_channel *__wrap_ibv_create_comp_channel(struct ibv_context *);
struct ibv_comp_channel *__wrap_ibv_create_comp_channel(struct ibv_context *of)
{
	struct channel *c = allocate(sizeof(*c));

	c->verbs = (struct ibv_comp_channel){ .context = of, .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) };
	return &c->verbs;
}

int __wrap_ibv_destroy_comp_channel(struct ibv_comp_channel *);
int __wrap_ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	close(channel->fd);
	free(channel);
	return 0;
}

struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *of, int entries, void *user, struct ibv_comp_channel *channel, int vector)
{
	struct queue *q = allocate(sizeof(*q));

	(void)entries, (void)user, (void)vector;
	q->verbs.context = of;
	q->verbs.channel = channel;
	return &q->verbs;
}

int __wrap_ibv_destroy_cq(struct ibv_cq *);
int __wrap_ibv_destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	return 0;
}

struct ibv_srq *__wrap_ibv_create_srq(struct ibv_pd *, struct ibv_srq_init_attr *);
struct ibv_srq *__wrap_ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct receives *r = allocate(sizeof(*r));

	(void)pd, (void)attr;
	r->verbs.context = &context;
	return &r->verbs;
}

int __wrap_ibv_destroy_srq(struct ibv_srq *);
int __wrap_ibv_destroy_srq(struct ibv_srq *srq)
{
	free(srq);
	return 0;
}

struct ibv_qp *__wrap_ibv_create_qp(struct ibv_pd *, struct ibv_qp_init_attr *);
struct ibv_qp *__wrap_ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct pair *p = allocate(sizeof(*p));

	(void)pd;
	p->verbs = (struct ibv_qp){ .context = &context, .send_cq = attr->send_cq, .recv_cq = attr->recv_cq, .srq = attr->srq };
	pthread_mutex_lock(&lock);
	p->verbs.qp_num = next_qpn++;
	p->next = pairs;
	pairs = p;
	pthread_mutex_unlock(&lock);
	return &p->verbs;
}

static unsigned newest_class, lost_answers;
static int lost_error;
static unsigned spoilt;

void spoil_receives(unsigned count)
{
	spoilt = count;
}

/* Fails receives of a queue pair that has ended. */
static void fail_receives(struct pair *p)
{
	struct receives *r = (struct receives *)p->verbs.srq;

	for (unsigned n = spoilt; r && n > 0 && r->count > 0; n--, r->count--) {
		complete(p->verbs.recv_cq, (struct ibv_wc){ .wr_id = r->wr[r->first].wr_id, .status = IBV_WC_WR_FLUSH_ERR, .qp_num = p->verbs.qp_num });
		r->first = (r->first + 1) % ROOM;
	}
}

void lose_answers(unsigned tries, int error)
{
	lost_answers = tries;
	lost_error = error;
}

unsigned traffic_class(void)
{
	return newest_class;
}

int __wrap_ibv_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct pair *p = (struct pair *)qp;

	if ((mask & IBV_QP_AV) && lost_answers > 0) {
		lost_answers--;
		return lost_error;
	}
	pthread_mutex_lock(&lock);
	if (mask & IBV_QP_DEST_QPN)
		p->peer = attr->dest_qp_num;
	if (mask & IBV_QP_AV)
		newest_class = attr->ah_attr.grh.traffic_class;
	if (attr->qp_state == IBV_QPS_ERR && !p->dead)
		fail_receives(p);
	p->dead = attr->qp_state == IBV_QPS_ERR;
	pthread_mutex_unlock(&lock);
	return 0;
}

int __wrap_ibv_destroy_qp(struct ibv_qp *);
int __wrap_ibv_destroy_qp(struct ibv_qp *qp)
{
	struct pair **at = &pairs;

	pthread_mutex_lock(&lock);
	while (&(*at)->verbs != qp)
		at = &(*at)->next;
	*at = (*at)->next;
	for (struct sent **send = &sends; *send;) {
		struct sent *gone = *send;

		if (&gone->from->verbs != qp) {
			send = &gone->next;
			continue;
		}
		*send = gone->next;
		free(gone);
	}
	carry();
	pthread_mutex_unlock(&lock);
	free(qp);
	return 0;
}

int __wrap_ibv_get_cq_event(struct ibv_comp_channel *, struct ibv_cq **, void **);
int __wrap_ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **user)
{
	eventfd_t events;

	*cq = NULL;
	*user = NULL;
	return eventfd_read(channel->fd, &events);
}

void __wrap_ibv_ack_cq_events(struct ibv_cq *, unsigned);
void __wrap_ibv_ack_cq_events(struct ibv_cq *cq, unsigned events)
{
	(void)cq, (void)events;
}

void take_receives(unsigned count)
{
	receives_left = count;
}

void refuse_registrations(int error)
{
	refusal = error;
}

unsigned registrations(void)
{
	unsigned count = 0;

	pthread_mutex_lock(&lock);
	for (const struct region *r = regions; r; r = r->next)
		count++;
	pthread_mutex_unlock(&lock);
	return count;
}

static struct ibv_mr *new_region(struct ibv_pd *pd, void *address, size_t bytes, int access, void *at)
{
	struct region *r = allocate(sizeof(*r));

	pthread_mutex_lock(&lock);
	*r = (struct region){ .verbs = { .context = &context, .pd = pd, .addr = address, .length = bytes, .lkey = next_key++ },
			      .access = access, .bytes = at, .next = regions };
	regions = r;
	pthread_mutex_unlock(&lock);
	return &r->verbs;
}

/* As the kernel does, it wants pages that may be written to where the device may write. */
struct ibv_mr *__wrap_ibv_reg_mr(struct ibv_pd *, void *, size_t, int);
struct ibv_mr *__wrap_ibv_reg_mr(struct ibv_pd *pd, void *address, size_t bytes, int access)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)address & ~(page - 1);

	if ((errno = refusal))
		return NULL;
	if (madvise((void *)begin, (uintptr_t)address + bytes - begin, access ? MADV_POPULATE_WRITE : MADV_POPULATE_READ)) {
		errno = EFAULT;
		return NULL;
	}
	return new_region(pd, address, bytes, access, address);
}

/* Whatever mmap takes is the memory of another device. */
struct ibv_mr *__wrap_ibv_reg_dmabuf_mr(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int);
struct ibv_mr *__wrap_ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access)
{
	unsigned char *at;

	if ((errno = refusal) || (errno = iova == offset ? 0 : EINVAL))
		return NULL;
	at = mmap(NULL, offset + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return NULL;
	return new_region(pd, (void *)(uintptr_t)offset, bytes, access, at + offset);
}

int __wrap_ibv_dereg_mr(struct ibv_mr *);
int __wrap_ibv_dereg_mr(struct ibv_mr *mr)
{
	struct region **at = &regions, *r = (struct region *)mr;

	pthread_mutex_lock(&lock);
	for (const struct pair *p = pairs; p; p = p->next) {
		const struct receives *posted = (const struct receives *)p->verbs.srq;

		for (unsigned i = 0; posted && i < posted->count; i++)
			if (posted->sge[(posted->first + i) % ROOM].lkey == mr->lkey && !p->dead)
				abort(); /* what arrives next would go into it */
	}
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	pthread_mutex_unlock(&lock);
	if (r->bytes != mr->addr)
		munmap(r->bytes - (uintptr_t)mr->addr, (uintptr_t)mr->addr + mr->length);
	free(r);
	return 0;
}

/* What the kernel says of this program, with what others in it have pinned. */
static unsigned pinned_elsewhere;

void pin_elsewhere(unsigned kib)
{
	pinned_elsewhere = kib;
}

/* Whether the program has the capability to lock more than its limit, and it counts. */
static bool may_lock;

void let_lock(bool let)
{
	may_lock = let;
}

void *__real_mmap(void *, size_t, int, int, int, off_t);
void *__wrap_mmap(void *, size_t, int, int, int, off_t);
void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset)
{
	return __real_mmap(at, bytes, access, may_lock ? flags & ~MAP_LOCKED : flags, fd, offset);
}

FILE *__real_fopen(const char *, const char *);
FILE *__wrap_fopen(const char *, const char *);
FILE *__wrap_fopen(const char *path, const char *mode)
{
	static char text[64];

	if (pinned_elsewhere == 0 || strcmp(path, "/proc/self/status"))
		return __real_fopen(path, mode);
	snprintf(text, sizeof(text), "VmLck:\t       8 kB\nVmPin:\t%8u kB\nVmHWM:\t       9 kB\n", pinned_elsewhere);
	return fmemopen(text, strlen(text), "r");
}

static int64_t clock_ns, timer_ns;
static int timer_fd;

int __real_timerfd_settime(int, int, const struct itimerspec *, struct itimerspec *);
int __wrap_timerfd_settime(int, int, const struct itimerspec *, struct itimerspec *);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *before)
{
	static const struct itimerspec never;

	timer_fd = fd;
	timer_ns = at->it_value.tv_sec * INT64_C(1000000000) + at->it_value.tv_nsec;
	return __real_timerfd_settime(fd, flags, clock_ns ? &never : at, before);
}

void set_clock(int64_t ns)
{
	static const struct itimerspec now = { .it_value = { .tv_nsec = 1 } };

	clock_ns = ns;
	if (ns > 0 && timer_ns > 0 && timer_ns <= ns)
		(void)__real_timerfd_settime(timer_fd, 0, &now, NULL);
}

int64_t timer_at(void)
{
	return timer_ns;
}

int __real_clock_gettime(clockid_t, struct timespec *);
int __wrap_clock_gettime(clockid_t, struct timespec *);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	if (clock_ns == 0)
		return __real_clock_gettime(clock, now);
	*now = (struct timespec){ .tv_sec = clock_ns / 1000000000, .tv_nsec = clock_ns % 1000000000 };
	return 0;
}

int __wrap_ibv_close_device(struct ibv_context *);
int __wrap_ibv_close_device(struct ibv_context *device)
{
	(void)device;
	return 0;
}

static void begin(void)
{
	context.ops.post_send = post_send;
	context.ops.post_srq_recv = post_srq_recv;
	context.ops.poll_cq = poll_cq;
	context.ops.req_notify_cq = req_notify_cq;
}

struct rocast *new_host(const char *address)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct rocast *host = allocate(sizeof(*host));

	(void)pthread_once(&once, begin);
	host->process = getpid();
	host->device = &context;
	host->port.active_mtu = IBV_MTU_1024;
	host->max_cqe = ROOM;
	host->patience_ms = 10000;
	if (!parse_endpoint(getenv("ROCAST_BOX"), &host->box) || !parse_ip(address, &host->local))
		abort();
	return host;
}

void let_groups_work(bool work)
{
	pthread_mutex_lock(&lock);
	works = work;
	pthread_mutex_unlock(&lock);
}
