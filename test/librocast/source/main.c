/*
 * source is a member of a group, with a device that does nothing. test/librocast/answers_test.go
 * runs it under the sanitizers.
 *
 *   source alone      wants to become the source; the group is the only way; prints the error
 *   source fallback   the same with single connections too; prints the way
 *   source lost       loses one of two single connections during an operation, and prints what it
 *                     hears of that, and how many connections may go on with the operation
 *   source ended      is a receiver to which the box at $ROCAST_BOX says that the group has ended,
 *                     and prints what becomes of two receives, and of further calls
 *   source cut        the same as a receiver to which the source has a single connection, which ends
 *   source called     is one whom the source calls back to the group, before it ends its connection
 *   source both       is one whom a member with ROCAST_BOTH has connected to
 *   source silent     is one to whom the source has begun a connection, and ends it before it is used
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

static struct link *add_link(struct rocast_group *group, struct ibv_qp *qp, int fd, bool lost)
{
	struct link *l = calloc(1, sizeof(*l));

	if (!l)
		exit(2);
	*l = (struct link){ .group = group, .fd = fd, .qp = qp, .outgoing = true, .ready = true, .posted = 1, .lost = lost, .next = group->links };
	return group->links = l;
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

/* Receives until no way is left. */
static void receive(struct rocast_group *group)
{
	struct rocast_completion completion;
	struct ibv_srq srq;
	int n;

	group->srq = &srq;
	group->receives[0] = (struct receive){ .id = 7, .posted = true };
	group->receives[2] = (struct receive){ .id = 9, .posted = true };
	group->receives_posted = 2;
	while ((n = rocast_wait(group, &completion, 1, 1000)) >= 0)
		if (n > 0)
			printf("%s %d, ", completion.kind == ROCAST_FAILED ? "failed" : "received", (int)completion.id);
	printf("%d %s; ", n, rocast_message());
	n = rocast_receive(group, NULL, NULL, 0, 0);
	printf("%d %s\n", n, rocast_message());
}

/* Has a single connection from the source, which ends it at once. */
static void be_connected(struct rocast_group *group, bool called_back, bool by_receiver, bool silent)
{
	struct rocast_group source = *group;
	struct member other = { .receives = by_receiver };
	struct link *l;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) || !parse_ip("127.0.0.2", &other.address))
		exit(2);
	source.returning = called_back;
	(void)add_link(&source, NULL, fds[0], false);
	l = add_link(group, NULL, fds[1], false);
	l->outgoing = false;
	l->ready = !silent;
	l->peer = other.address;
	group->others = &other;
	group->other_count = 1;
	group->way = ROCAST_UNICAST;
	group->qp = NULL;
	group->listener = group->channel->fd; /* to which nobody connects */
	close_links(&source, true);
	if (!called_back && !by_receiver && !silent) {
		receive(group);
		return;
	}
	serve_members(group);
	printf("called back: %d, ended: %d\n", group->rejoin, group->ended);
}

int main(int argc, char **argv)
{
	struct ibv_context device = { .ops = { .post_send = post_send, .poll_cq = poll_cq, .req_notify_cq = req_notify_cq } };
	struct ibv_qp qp = { .context = &device };
	struct ibv_cq cq = { .context = &device };
	struct ibv_comp_channel channel = { .context = &device };
	struct rocast host = { .process = getpid() };
	struct operation operations[1] = { 0 };
	struct receive receives[3] = { 0 };
	struct report ready[4];
	struct rocast_group group = {
		.host = &host, .name = "g1", .role = ROCAST_BOTH, .way = ROCAST_MULTICAST, .give_up_ms = 1, .qp = &qp, .cq = &cq, .channel = &channel,
		.watch = { .fd = -1 }, .listener = -1, .operations = operations, .ready = ready, .send_depth = 1,
		.receives = receives, .receive_depth = 3,
	};
	int none[2], error;

	if (argc != 2 || pipe2(none, O_NONBLOCK))
		return 2;
	channel.fd = none[0];
	group.without_fallback = strcmp(argv[1], "alone") == 0;
	group.sleeper = epoll_create1(EPOLL_CLOEXEC);
	if (strcmp(argv[1], "lost") == 0) {
		lose(&group);
	} else if (strcmp(argv[1], "cut") == 0 || strcmp(argv[1], "called") == 0 || strcmp(argv[1], "both") == 0 || strcmp(argv[1], "silent") == 0) {
		group.role = ROCAST_RECEIVER;
		be_connected(&group, strcmp(argv[1], "called") == 0, strcmp(argv[1], "both") == 0, strcmp(argv[1], "silent") == 0);
	} else if (strcmp(argv[1], "ended") == 0) {
		group.role = ROCAST_RECEIVER;
		if (!parse_endpoint(getenv("ROCAST_BOX"), &host.box) || !parse_ip("127.0.0.1", &host.local))
			return 2;
		receive(&group);
	} else {
		error = rocast_become_source(&group, 600000);
		printf("%d %s\n", error, error ? rocast_message() : group.way == ROCAST_UNICAST ? "unicast" : "multicast");
	}
	close(group.sleeper);
	close(none[0]);
	close(none[1]);
	return 0;
}
