/*
 * source is the source of a group, with a device that does nothing. test/librocast/answers_test.go
 * runs it under the sanitizers.
 *
 *   source alone      wants to become the source; the group is the only way; prints the error
 *   source fallback   the same with single connections too; prints the way
 *   source lost       loses one of two single connections during an operation, and prints what it
 *                     hears of that, and how many connections may go on with the operation
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../../host/internal.h"

int __wrap_ibv_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)qp, (void)attr, (void)mask;
	return 0;
}

int __wrap_ibv_destroy_qp(struct ibv_qp *);
int __wrap_ibv_destroy_qp(struct ibv_qp *qp)
{
	(void)qp;
	return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp, (void)wr, (void)bad;
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int entries, struct ibv_wc *wc)
{
	(void)cq, (void)entries, (void)wc;
	return 0;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
	(void)cq, (void)solicited;
	return 0;
}

static void add_link(struct rocast_group *group, struct ibv_qp *qp, int fd, bool lost)
{
	struct link *l = calloc(1, sizeof(*l));

	if (!l)
		exit(2);
	*l = (struct link){ .group = group, .fd = fd, .qp = qp, .outgoing = true, .ready = true, .posted = 1, .lost = lost, .next = group->links };
	group->links = l;
}

/* Polls until the operation is complete. */
static void lose(struct rocast_group *group)
{
	struct rocast_completion completion;
	unsigned left = 0;
	int fds[2];
	char told;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		exit(2);
	add_link(group, group->qp, fds[0], false);
	add_link(group, group->qp, dup(fds[0]), true);
	group->way = ROCAST_UNICAST;
	group->qp = NULL;
	group->next = 1;
	group->returning = true;
	while (rocast_poll(group, &completion, 1) == 0)
		;
	for (const struct link *l = group->links; l; l = l->next)
		left++;
	printf("%s, and %u go on; the other member hears %s\n", completion.kind == ROCAST_FAILED ? "failed" : "done", left,
	       recv(fds[1], &told, 1, MSG_DONTWAIT) == 0 ? "the end" : "something else");
	close_links(group, false);
	close(fds[1]);
}

int main(int argc, char **argv)
{
	struct ibv_context device = { .ops = { .post_send = post_send, .poll_cq = poll_cq, .req_notify_cq = req_notify_cq } };
	struct ibv_qp qp = { .context = &device };
	struct ibv_cq cq = { .context = &device };
	struct ibv_comp_channel channel = { .context = &device };
	struct rocast host = { .process = getpid() };
	struct operation operations[1] = { 0 };
	struct report ready[1];
	struct rocast_group group = {
		.host = &host, .name = "g1", .role = ROCAST_BOTH, .way = ROCAST_MULTICAST, .give_up_ms = 1, .qp = &qp, .cq = &cq, .channel = &channel,
		.watch = { .fd = -1 }, .listener = -1, .operations = operations, .ready = ready, .send_depth = 1,
	};
	int none[2], error;

	if (argc != 2 || pipe2(none, O_NONBLOCK))
		return 2;
	channel.fd = none[0];
	group.without_fallback = strcmp(argv[1], "alone") == 0;
	group.sleeper = epoll_create1(EPOLL_CLOEXEC);
	if (strcmp(argv[1], "lost") == 0) {
		lose(&group);
	} else {
		error = rocast_become_source(&group, 600000);
		printf("%d %s\n", error, error ? rocast_message() : group.way == ROCAST_UNICAST ? "unicast" : "multicast");
	}
	close(group.sleeper);
	close(none[0]);
	close(none[1]);
	return 0;
}
