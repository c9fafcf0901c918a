/*
 * links begins single connections as a member does whose device can make no queue pair.
 * test/librocast/answers_test.go runs it under the sanitizers.
 *
 *   links grow    begins connections to one member, and then to three; prints the room for their
 *                 completions each time
 *   links bound   begins connections to three members by a device whose queues hold ten completions,
 *                 and prints how many operations each connection takes at once; then by one whose
 *                 queues hold two, and to nobody
 *   links port    begins one to a member of which no port is known, and prints why it cannot
 *   links crowd   is connected to 50 times by a member and by a host that is none, and prints how
 *                 many connections it keeps
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "../../../host/internal.h"

static struct ibv_cq queue;
static int room, queues;

struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *device, int entries, void *context, struct ibv_comp_channel *channel, int vector)
{
	(void)device, (void)context, (void)channel, (void)vector;
	room = entries;
	queues++;
	return &queue;
}

int __wrap_ibv_destroy_cq(struct ibv_cq *);
int __wrap_ibv_destroy_cq(struct ibv_cq *cq)
{
	queues -= cq == &queue;
	return 0;
}

struct ibv_qp *__wrap_ibv_create_qp(struct ibv_pd *, struct ibv_qp_init_attr *);
struct ibv_qp *__wrap_ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	(void)pd, (void)attr;
	errno = ENOMEM;
	return NULL;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp, (void)wr, (void)bad;
	return 0;
}

/* Counts the operations that one connection takes before the first of them is complete. */
static unsigned operations_at_once(struct rocast_group *group)
{
	struct ibv_context device = { .ops = { .post_send = post_send } };
	struct ibv_qp qp = { .context = &device };
	struct operation operations[8] = { 0 };
	struct link l = { .group = group, .outgoing = true, .ready = true, .qp = &qp };

	group->operations = operations;
	group->allowed = group->next = 8;
	group->links = &l;
	send_away(group);
	group->links = NULL;
	return (unsigned)l.posted;
}

static void connect_from(struct rocast_group *group, const char *ip)
{
	union address at = group->host->local, from;
	int fd;

	set_port(&at, group->listen_port);
	if (!parse_ip(ip, &from) || (fd = begin_connect(&at, &from)) < 0)
		printf("%s cannot connect: %s\n", ip, strerror(errno));
	serve_members(group); /* the connection stays on this side */
}

int main(int argc, char **argv)
{
	struct rocast host = { .process = getpid(), .max_cqe = 1000 };
	struct member others[3] = { { .receives = true }, { .receives = true }, { .receives = true } };
	struct rocast_group group = {
		.host = &host, .name = "g1", .way = ROCAST_UNICAST, .watch = { .fd = -1 }, .listener = -1, .others = others, .other_count = 1, .send_depth = 4,
	};
	unsigned kept = 0;

	if (argc != 2 || !parse_ip("127.0.0.1", &host.local))
		return 2;
	group.sleeper = epoll_create1(EPOLL_CLOEXEC);
	for (unsigned i = 0; i < 3; i++) {
		(void)parse_ip("127.0.0.2", &others[i].address);
		set_port(&others[i].address, strcmp(argv[1], "port") ? 9 : 0);
	}
	if (strcmp(argv[1], "crowd") == 0) {
		if (listen_for_members(&group))
			puts(rocast_message());
		for (int i = 0; i < 50; i++) {
			connect_from(&group, "127.0.0.2");
			connect_from(&group, "127.0.0.3");
		}
		for (const struct link *l = group.links; l; l = l->next)
			kept++;
		printf("%u of a member, who is %s\n", kept, group.links && same_ip(&group.links->peer, &others[0].address) ? "known" : "unknown");
		close_links(&group, false);
		close(group.listener);
	} else if (strcmp(argv[1], "bound") == 0) {
		group.other_count = 3;
		group.send_depth = 8;
		host.max_cqe = 10;
		(void)connect_members(&group, 0);
		printf("room for %d, %u at once by each\n", room, operations_at_once(&group));
		host.max_cqe = 2;
		(void)connect_members(&group, 0);
		puts(rocast_message());
		group.other_count = 0;
		(void)connect_members(&group, 0);
		puts(rocast_message());
	} else {
		(void)connect_members(&group, 0);
		if (group.link_cq)
			printf("%d in %d\n", room, queues);
		group.other_count = 3;
		(void)connect_members(&group, 0);
		if (group.link_cq)
			printf("%d in %d\n", room, queues);
		puts(rocast_message());
	}
	close(group.sleeper);
	return 0;
}
