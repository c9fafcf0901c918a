/*
 * source is a member of a group through which nothing gets, and wants to become its source.
 * test/librocast/answers_test.go runs it under the sanitizers.
 *
 *   source alone      the group is the only way; prints the error
 *   source fallback   there are single connections too; prints the way
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
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

int main(int argc, char **argv)
{
	struct ibv_context device = { .ops = { .post_send = post_send, .poll_cq = poll_cq, .req_notify_cq = req_notify_cq } };
	struct ibv_qp qp = { .context = &device };
	struct ibv_cq cq = { .context = &device };
	struct ibv_comp_channel channel = { .context = &device };
	struct rocast host = { .process = getpid() };
	struct operation operations[1] = { 0 };
	struct rocast_group group = {
		.host = &host, .name = "g1", .role = ROCAST_BOTH, .way = ROCAST_MULTICAST, .give_up_ms = 1, .qp = &qp, .cq = &cq, .channel = &channel,
		.watch = { .fd = -1 }, .listener = -1, .operations = operations, .send_depth = 1,
	};
	int none[2], error;

	if (argc != 2 || pipe2(none, O_NONBLOCK))
		return 2;
	channel.fd = none[0];
	group.without_fallback = strcmp(argv[1], "alone") == 0;
	group.sleeper = epoll_create1(EPOLL_CLOEXEC);
	error = rocast_become_source(&group, 600000);
	printf("%d %s\n", error, error ? rocast_message() : group.way == ROCAST_UNICAST ? "unicast" : "multicast");
	close(group.sleeper);
	close(none[0]);
	close(none[1]);
	return 0;
}
