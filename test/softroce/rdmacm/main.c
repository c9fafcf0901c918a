/*
 * rocast-rdmacm connects by librdmacm, as programs that know nothing of groups do.
 *
 *   rocast-rdmacm listen IP PORT BYTES
 *       accepts one connection, and says in its private data where its memory is: VA (64 bits),
 *       R_Key (32), length (32), big-endian. Prints "listening". Waits for one SEND, prints the
 *       SHA-256 of the memory, and waits until the other side has disconnected.
 *   rocast-rdmacm connect IP PORT BYTES TIMES [RECEIVER ...]
 *       connects, WRITEs its memory that often with other contents, SENDs one message, prints the
 *       SHA-256 of what it wrote last, and disconnects. Its request names the receivers.
 *   rocast-rdmacm lend IP PORT BYTES, rocast-rdmacm borrow IP PORT BYTES TIMES
 *       are listen and connect without private data: lend prints VA and R_Key of its memory in a line
 *       when it has accepted, and borrow prints "connected" and reads such a line from stdin.
 *   rocast-rdmacm serve IP PORT BYTES COUNT
 *       accepts connections as listen does, any number at one time, and ends when so many have
 *       ended. Prints "listening".
 *   rocast-rdmacm repeat PORT TIMES IP[,IP...] ...
 *       connects and disconnects that often: in turn to each word, and to all addresses of a word at
 *       one time. Prints a line for each time, with the microseconds from the first rdma_connect of
 *       each word until all its connections were established.
 *
 * An error is one line on stderr, with the event's status if a connection is refused.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../verbs/sha256.h"

struct region {
	uint64_t va;
	uint32_t rkey;
	uint32_t length;
};

static const char message[] = "that was all";

static int fail(const char *what, const struct rdma_cm_id *id)
{
	int error = errno;

	fprintf(stderr, "%s: %s", what, strerror(error));
	if (id && id->event)
		fprintf(stderr, " (%s, status %d)", rdma_event_str(id->event->event), id->event->status);
	fputc('\n', stderr);
	return 1;
}

static void print_hash(const void *memory, size_t bytes)
{
	char hex[SHA256_HEX_BYTES];

	sha256_hex(memory, bytes, hex);
	printf("%s\n", hex);
	fflush(stdout);
}

static const struct ibv_qp_init_attr queue_pair = {
	.qp_type = IBV_QPT_RC,
	.cap = { .max_send_wr = 64, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	.sq_sig_all = 1,
};

static struct rdma_cm_id *make(char *ip, char *port, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *found = NULL;
	struct ibv_qp_init_attr attr = queue_pair;
	struct rdma_cm_id *id = NULL;

	if (rdma_getaddrinfo(ip, port, &hints, &found) || rdma_create_ep(&id, found, NULL, &attr))
		return NULL;
	rdma_freeaddrinfo(found);
	return id;
}

static int wait_disconnected(struct rdma_cm_id *id)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(id->channel, &event))
		return fail("wait for the end", id);
	if (event->event != RDMA_CM_EVENT_DISCONNECTED) {
		fprintf(stderr, "%s instead of the end\n", rdma_event_str(event->event));
		return 1;
	}
	rdma_ack_cm_event(event);
	rdma_disconnect(id);
	return 0;
}

static int listen_once(char *ip, char *port, void *memory, size_t bytes, int lend)
{
	struct rdma_cm_id *listener = make(ip, port, RAI_PASSIVE), *id;
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7 };
	struct region region;
	struct ibv_wc done;
	struct ibv_mr *mr;
	char received[sizeof(message)];
	struct ibv_mr *received_mr;

	if (!listener || rdma_listen(listener, 1))
		return fail("listen", listener);
	printf("listening\n");
	fflush(stdout);
	if (rdma_get_request(listener, &id))
		return fail("wait for a request", listener);
	mr = rdma_reg_write(id, memory, bytes);
	received_mr = rdma_reg_msgs(id, received, sizeof(received));
	if (!mr || !received_mr || rdma_post_recv(id, NULL, received, sizeof(received), received_mr))
		return fail("register memory", NULL);
	region = (struct region){ htobe64((uintptr_t)memory), htobe32(mr->rkey), htobe32((uint32_t)bytes) };
	param.private_data = lend ? NULL : &region;
	param.private_data_len = lend ? 0 : sizeof(region);
	if (rdma_accept(id, &param))
		return fail("accept", id);
	if (lend) {
		printf("%#" PRIxPTR " %#" PRIx32 "\n", (uintptr_t)memory, mr->rkey);
		fflush(stdout);
	}
	if (rdma_get_recv_comp(id, &done) <= 0 || done.status || strcmp(received, message) != 0)
		return fail("receive", NULL);
	print_hash(memory, bytes);
	return wait_disconnected(id);
}

/* read_region reads where to WRITE from stdin. */
static int read_region(struct region *r, size_t bytes)
{
	uint64_t va;
	uint32_t rkey;

	printf("connected\n");
	fflush(stdout);
	if (scanf("%" SCNx64 " %" SCNx32, &va, &rkey) != 2)
		return 0;
	*r = (struct region){ htobe64(va), htobe32(rkey), htobe32((uint32_t)bytes) };
	return 1;
}

static int connect_once(char *ip, char *port, uint8_t *memory, size_t bytes, long times, char **receivers, int count, int borrow)
{
	struct in_addr names[14] = { 0 };
	struct rdma_cm_id *id = make(ip, port, 0);
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };
	struct region region;
	struct ibv_mr *mr;
	struct ibv_wc done;
	char text[sizeof(message)];
	struct ibv_mr *text_mr;

	for (int i = 0; i < count; i++)
		if (i == 14 || !inet_aton(receivers[i], &names[i]))
			return fail("read the receivers", NULL);
	param.private_data = count ? names : NULL;
	param.private_data_len = (uint8_t)((size_t)count * sizeof(names[0]));
	if (!id || rdma_connect(id, &param))
		return fail("connect", id);
	memcpy(&region, id->event->param.conn.private_data, sizeof(region));
	if (borrow && !read_region(&region, bytes))
		return fail("read where to WRITE", NULL);
	if (be32toh(region.length) < bytes) {
		fprintf(stderr, "the other side has %u bytes\n", be32toh(region.length));
		return 1;
	}
	memcpy(text, message, sizeof(message));
	mr = rdma_reg_msgs(id, memory, bytes);
	text_mr = rdma_reg_msgs(id, text, sizeof(text));
	if (!mr || !text_mr)
		return fail("register memory", NULL);
	for (long i = 0; i < times; i++) {
		for (size_t k = 0; k < bytes; k++)
			memory[k] = (uint8_t)(k * 31 + (k >> 8) + (size_t)i * 7);
		if (rdma_post_write(id, NULL, memory, bytes, mr, 0, be64toh(region.va), be32toh(region.rkey)) ||
		    rdma_get_send_comp(id, &done) <= 0 || done.status) {
			fprintf(stderr, "WRITE %ld: %s\n", i, ibv_wc_status_str(done.status));
			return 1;
		}
	}
	if (rdma_post_send(id, NULL, text, sizeof(text), text_mr, 0) || rdma_get_send_comp(id, &done) <= 0 || done.status)
		return fail("SEND", NULL);
	print_hash(memory, bytes);
	return rdma_disconnect(id) ? fail("disconnect", id) : 0;
}

/* served is a connection of serve. */
struct served {
	struct ibv_mr *memory, *message;
	char text[sizeof(message)];
};

static int serve_one(struct rdma_cm_id *id, void *memory, size_t bytes)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7 };
	struct ibv_qp_init_attr attr = queue_pair;
	struct served *s = calloc(1, sizeof(*s));
	struct region region;

	if (!s || rdma_create_qp(id, NULL, &attr))
		return fail("create a queue pair", NULL);
	id->context = s;
	s->memory = rdma_reg_write(id, memory, bytes);
	s->message = rdma_reg_msgs(id, s->text, sizeof(s->text));
	if (!s->memory || !s->message || rdma_post_recv(id, NULL, s->text, sizeof(s->text), s->message))
		return fail("register memory", NULL);
	region = (struct region){ htobe64((uintptr_t)memory), htobe32(s->memory->rkey), htobe32((uint32_t)bytes) };
	param.private_data = &region;
	param.private_data_len = sizeof(region);
	return rdma_accept(id, &param) ? fail("accept", NULL) : 0;
}

static int serve(char *ip, char *port, void *memory, size_t bytes, long count)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP }, *found = NULL;
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener;

	if (!channel || rdma_getaddrinfo(ip, port, &hints, &found) || rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(listener, found->ai_src_addr) || rdma_listen(listener, 64))
		return fail("listen", NULL);
	printf("listening\n");
	fflush(stdout);
	while (count > 0) {
		struct rdma_cm_event *event;
		struct rdma_cm_id *id;
		struct served *s;
		int kind;

		if (rdma_get_cm_event(channel, &event))
			return fail("wait for an event", NULL);
		kind = event->event;
		id = event->id;
		rdma_ack_cm_event(event);
		if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
			if (serve_one(id, memory, bytes))
				return 1;
			continue;
		}
		if (kind == RDMA_CM_EVENT_ESTABLISHED)
			continue;
		s = id->context;
		rdma_disconnect(id);
		rdma_destroy_qp(id);
		rdma_dereg_mr(s->memory);
		rdma_dereg_mr(s->message);
		free(s);
		rdma_destroy_id(id);
		count--;
	}
	return 0;
}

/* target is one word of repeat: the hosts that are connected to at one time. */
struct target {
	char *hosts[16];
	struct rdma_cm_id *ids[16];
	int count;
};

static int parse_targets(struct target *targets, char **words, int count)
{
	for (int i = 0; i < count; i++)
		for (char *host = strtok(words[i], ","); host; host = strtok(NULL, ",")) {
			if (targets[i].count == 16)
				return 0;
			targets[i].hosts[targets[i].count++] = host;
		}
	return 1;
}

/* await takes one event of a kind for each connection of a target. */
static int await(struct rdma_event_channel *channel, int count, enum rdma_cm_event_type kind)
{
	struct rdma_cm_event *event;

	while (count-- > 0) {
		if (rdma_get_cm_event(channel, &event))
			return fail("wait for an event", NULL);
		if (event->event != kind) {
			fprintf(stderr, "%s, status %d, instead of %s\n", rdma_event_str(event->event), event->status, rdma_event_str(kind));
			return 1;
		}
		rdma_ack_cm_event(event);
	}
	return 0;
}

static int connect_target(struct rdma_event_channel *channel, struct target *t, char *port)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };
	struct timespec from, to;

	for (int i = 0; i < t->count; i++) {
		t->ids[i] = make(t->hosts[i], port, 0);
		if (!t->ids[i] || rdma_migrate_id(t->ids[i], channel))
			return fail("prepare to connect", NULL);
	}
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < t->count; i++)
		if (rdma_connect(t->ids[i], &param))
			return fail("connect", NULL);
	if (await(channel, t->count, RDMA_CM_EVENT_ESTABLISHED))
		return 1;
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("%ld ", (to.tv_sec - from.tv_sec) * 1000000 + (to.tv_nsec - from.tv_nsec) / 1000);
	for (int i = 0; i < t->count; i++)
		rdma_disconnect(t->ids[i]);
	if (await(channel, t->count, RDMA_CM_EVENT_DISCONNECTED))
		return 1;
	for (int i = 0; i < t->count; i++)
		rdma_destroy_ep(t->ids[i]);
	return 0;
}

static int repeat(char *port, long times, char **words, int count)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct target *targets = calloc((size_t)count, sizeof(*targets));

	if (!channel || !targets || !parse_targets(targets, words, count))
		return fail("read the addresses", NULL);
	for (; times > 0; times--) {
		for (int i = 0; i < count; i++)
			if (connect_target(channel, &targets[i], port))
				return 1;
		printf("\n");
	}
	return 0;
}

int main(int argc, char **argv)
{
	size_t bytes = argc > 4 ? strtoul(argv[4], NULL, 0) : 0;
	uint8_t *memory = calloc(1, bytes ? bytes : 1);

	if (argc == 5 && strcmp(argv[1], "listen") == 0 && memory)
		return listen_once(argv[2], argv[3], memory, bytes, 0);
	if (argc == 5 && strcmp(argv[1], "lend") == 0 && memory)
		return listen_once(argv[2], argv[3], memory, bytes, 1);
	if (argc == 6 && strcmp(argv[1], "borrow") == 0 && memory)
		return connect_once(argv[2], argv[3], memory, bytes, atol(argv[5]), NULL, 0, 1);
	if (argc >= 6 && strcmp(argv[1], "connect") == 0 && memory)
		return connect_once(argv[2], argv[3], memory, bytes, atol(argv[5]), argv + 6, argc - 6, 0);
	if (argc == 6 && strcmp(argv[1], "serve") == 0 && memory)
		return serve(argv[2], argv[3], memory, bytes, atol(argv[5]));
	if (argc >= 5 && strcmp(argv[1], "repeat") == 0)
		return repeat(argv[2], atol(argv[3]), argv + 4, argc - 4);
	fprintf(stderr, "usage: see the top of main.c\n");
	return 2;
}
