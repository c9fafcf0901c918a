/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "internal.h"

enum { MAGIC = 0x726f6361, SLEEP_MS = 10 };

static const int64_t NEVER = INT64_MAX;

/* A message between members, all numbers in network byte order. */
struct message {
	uint32_t magic, kind;
	uint32_t qpn, psn; /* of the queue pair of the single connection; the first PSN that it sends */
	uint64_t has;      /* MESSAGE_HERE: messages of the group that the member has */
	uint32_t group_qpn;
	uint32_t members; /* MESSAGE_RETURN: how many join again */
	struct {
		uint64_t va;
		uint32_t rkey, unused;
	} targets[MAX_REGIONS];
	char name[NAME_BYTES];
};

_Static_assert(sizeof(struct message) == MESSAGE_BYTES, "a message has no holes");

static bool tell(struct link *l, enum message_kind kind)
{
	struct rocast_group *group = l->group;
	struct message m = {
		.magic = htobe32(MAGIC), .kind = htobe32(kind), .qpn = htobe32(l->qp ? l->qp->qp_num : 0), .psn = htobe32(l->psn),
		.has = htobe64(group->has), .group_qpn = htobe32(group->qpn), .members = htobe32(group->members),
	};

	for (unsigned i = 0; i < group->region_count && group->regions[i]; i++) {
		m.targets[i].va = htobe64((uintptr_t)group->regions[i]->mr->addr);
		m.targets[i].rkey = htobe32(group->regions[i]->mr->rkey);
	}
	memcpy(m.name, group->name, sizeof(m.name));
	/* It is shorter than the buffer of a socket that has nothing else to send. */
	return send(l->fd, &m, sizeof(m), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(m);
}

/*
 * Reads a message: 1: it is there; 0: not yet; -1: the connection has ended, or is not one of ours.
 */
static int hear(struct link *l, struct message *m)
{
	while (l->have < MESSAGE_BYTES) {
		ssize_t n = recv(l->fd, l->in + l->have, MESSAGE_BYTES - l->have, MSG_DONTWAIT);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -1;
		if (n == 0)
			return -1;
		l->have += (size_t)n;
	}
	l->have = 0;
	memcpy(m, l->in, MESSAGE_BYTES);
	return be32toh(m->magic) == MAGIC && strncmp(m->name, l->group->name, sizeof(m->name)) == 0 ? 1 : -1;
}

static struct link *new_link(struct rocast_group *group, const union address *peer, int fd, bool outgoing)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct link *l = calloc(1, sizeof(*l));

	if (!l) {
		close(fd);
		return NULL;
	}
	*l = (struct link){ .group = group, .peer = *peer, .fd = fd, .outgoing = outgoing, .next = group->links };
	group->links = l;
	if (!outgoing)
		(void)epoll_ctl(group->sleeper, EPOLL_CTL_ADD, fd, &event);
	return l;
}

static void free_link(struct link *l)
{
	struct link **at = &l->group->links;

	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	close(l->fd);
	if (l->qp)
		ibv_destroy_qp(l->qp);
	free(l);
}

/* Ends a connection. What has arrived by it is among the completions. */
static void end_link(struct link *l)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (l->qp && !l->outgoing) {
		(void)ibv_modify_qp(l->qp, &attr, IBV_QP_STATE);
		take_completions(l->group);
		ibv_destroy_qp(l->qp);
		l->qp = NULL;
		take_completions(l->group);
	}
	free_link(l);
}

/* Tells the members of all connections that are used. */
void tell_all(struct rocast_group *group, enum message_kind kind)
{
	for (struct link *l = group->links; l; l = l->next)
		if (l->ready)
			(void)tell(l, kind);
}

void close_links(struct rocast_group *group, bool outgoing_only)
{
	struct link *next;

	for (struct link *l = group->links; l; l = next) {
		next = l->next;
		if (!l->outgoing && outgoing_only)
			continue;
		if (l->outgoing && outgoing_only && l->ready && group->returning)
			(void)tell(l, MESSAGE_RETURN);
		free_link(l);
	}
}

unsigned outgoing_links(const struct rocast_group *group)
{
	unsigned count = 0;

	for (const struct link *l = group->links; l; l = l->next)
		count += l->outgoing;
	return count;
}

struct link *link_of(struct rocast_group *group, uint32_t qpn)
{
	for (struct link *l = group->links; l; l = l->next)
		if (l->qp && l->qp->qp_num == qpn)
			return l;
	return NULL;
}

int listen_for_members(struct rocast_group *group)
{
	struct epoll_event event = { .events = EPOLLIN };
	union address at = group->host->local;
	socklen_t size = sizeof(at);

	set_port(&at, 0);
	group->listener = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (group->listener < 0 || bind(group->listener, &at.any, address_bytes(&at)) || listen(group->listener, SOMAXCONN) ||
	    getsockname(group->listener, &at.any, &size) || epoll_ctl(group->sleeper, EPOLL_CTL_ADD, group->listener, &event)) {
		char text[ADDRESS_TEXT];

		address_text(&at, text);
		return fail(ROCAST_EARGUMENT, "nothing can listen at %s (%s); is this an address of the host?", text, strerror(errno));
	}
	group->listen_port = port_of(&at);
	return ROCAST_OK;
}

const struct member *member_at(const struct rocast_group *group, const union address *address)
{
	for (unsigned i = 0; i < group->other_count; i++)
		if (same_ip(&group->others[i].address, address))
			return &group->others[i];
	return NULL;
}

/*
 * A member that connects again replaces what it has begun before: it has one connection that works,
 * and one that has said nothing yet, whatever its host does.
 */
static void end_silent_link(struct rocast_group *group, const union address *peer)
{
	for (struct link *l = group->links; l; l = l->next) {
		if (!l->outgoing && !l->qp && same_ip(&l->peer, peer)) {
			end_link(l);
			return;
		}
	}
}

static void accept_members(struct rocast_group *group)
{
	for (;;) {
		union address peer;
		socklen_t size = sizeof(peer);
		int fd = accept4(group->listener, &peer.any, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			return;
		if (!member_at(group, &peer)) {
			close(fd);
			continue;
		}
		end_silent_link(group, &peer);
		(void)new_link(group, &peer, fd, false);
	}
}

/* Another member goes on by a single connection. */
static bool answer_hello(struct link *l, const struct message *m)
{
	struct rocast_group *group = l->group;

	if (!group->srq || l->qp)
		return false;
	for (struct link *old = group->links; old; old = old->next)
		if (!old->outgoing && old->qp && same_ip(&old->peer, &l->peer))
			old->lost = true;
	if (group->way == ROCAST_MULTICAST) {
		group->fallbacks++;
		group->try_at = NEVER; /* the other member calls back */
	}
	/* Only now it is certain what this member has of the group's messages. */
	end_multicast(group);
	if (!(l->qp = new_qp(group->host, group->cq, group->srq, 1)))
		return false;
	l->psn = random_psn();
	if (connect_qp(group->host, l->qp, &l->peer, be32toh(m->qpn), be32toh(m->psn), l->psn, group->mtu, 0) != ROCAST_OK)
		return false;
	return l->ready = tell(l, MESSAGE_HERE);
}

/*
 * A source that has connected to a receiver ends that connection to call the receiver back to the
 * group, to connect anew, or because it has left or cannot go on.
 */
static void notice_end(struct link *l)
{
	struct rocast_group *group = l->group;
	const struct member *m = member_at(group, &l->peer);
	char text[ADDRESS_TEXT];

	if (!l->ready || l->lost || group->ended || group->rejoin || group->way != ROCAST_UNICAST || !m || m->receives)
		return;
	address_text(&l->peer, text);
	snprintf(group->reason, sizeof(group->reason), "%s has left, and group %s has ended with it", text, group->name);
	group->ended = true;
}

/* A member has ended the group, or passes on that it has ended. */
static void hear_end(struct link *l)
{
	struct rocast_group *group = l->group;
	char text[ADDRESS_TEXT];

	address_text(&l->peer, text);
	snprintf(group->reason, sizeof(group->reason), "%s says that group %s has ended", text, group->name);
	group->ended = true;
}

/* Looks after the connections of other members. */
void serve_members(struct rocast_group *group)
{
	struct link *next;

	if (group->listener < 0)
		return;
	accept_members(group);
	for (struct link *l = group->links; l; l = next) {
		struct message m;
		int heard;

		next = l->next;
		if (l->outgoing) { /* what it answers at first, take_answer hears */
			if (l->ready && hear(l, &m) > 0 && be32toh(m.kind) == MESSAGE_END)
				hear_end(l);
			continue;
		}
		while ((heard = l->lost ? -1 : hear(l, &m)) > 0) {
			if (be32toh(m.kind) == MESSAGE_HELLO) {
				if (answer_hello(l, &m))
					continue;
			} else if (be32toh(m.kind) == MESSAGE_RETURN) {
				group->members = be32toh(m.members);
				group->rejoin = group->way == ROCAST_UNICAST;
			} else if (be32toh(m.kind) == MESSAGE_END) {
				hear_end(l);
			}
			heard = -1;
			break;
		}
		if (heard < 0) {
			notice_end(l);
			end_link(l);
			if (group->try_at == NEVER) /* the member that would call back has gone */
				group->try_at = now_ms();
		}
	}
}

/*
 * The number of the first operation that a member lacks, which has the first `has` messages that
 * the group carried with this QPN.
 */
static uint64_t first_lacking(const struct rocast_group *group, const struct message *m)
{
	uint64_t first = group->oldest;

	if (be32toh(m->group_qpn) != group->qpn)
		return first;
	for (uint64_t n = group->oldest; n < group->next; n++) {
		const struct operation *op = &group->operations[n % group->send_depth];

		if (is_message(op) && op->pushed && op->message < be64toh(m->has))
			first = n + 1;
	}
	return first;
}

/* Takes the answer of a member. Returns 1, 0 if it has not come yet, and -1 on a failure. */
static int take_answer(struct link *l)
{
	struct rocast_group *group = l->group;
	struct message m;
	int heard = hear(l, &m);

	if (heard <= 0)
		return heard;
	if (be32toh(m.kind) != MESSAGE_HERE ||
	    connect_qp(group->host, l->qp, &l->peer, be32toh(m.qpn), be32toh(m.psn), l->psn, group->mtu, 0) != ROCAST_OK)
		return -1;
	for (unsigned i = 0; i < MAX_REGIONS; i++)
		l->targets[i] = (struct target){ be64toh(m.targets[i].va), be32toh(m.targets[i].rkey) };
	l->posted = l->done = first_lacking(group, &m);
	l->ready = true;
	return 1;
}

/* Goes on with connecting. Returns an errno, or 0. */
static int connect_further(struct link *l)
{
	struct pollfd writable = { .fd = l->fd, .events = POLLOUT };
	int error;

	if (!l->connected) {
		if (poll(&writable, 1, 0) <= 0)
			return 0;
		if ((error = connect_error(l->fd)))
			return error;
		l->connected = true;
	}
	if (!l->greeted && !(l->greeted = tell(l, MESSAGE_HELLO)))
		return EPIPE;
	return take_answer(l) < 0 ? ECONNRESET : 0;
}

static int begin_links(struct rocast_group *group)
{
	char text[ADDRESS_TEXT];
	unsigned count = 0;

	for (unsigned i = 0; i < group->other_count; i++) {
		const struct member *m = &group->others[i];

		count += m->receives;
		if (!m->receives || port_of(&m->address) != 0)
			continue;
		address_text(&m->address, text);
		return fail(ROCAST_EBROKEN, "%s takes no single connections; its program has joined group %s with without_fallback, or without this library",
			    text, group->name);
	}
	if (count == 0)
		return fail(ROCAST_EBROKEN, "group %s has no other member that receives", group->name);
	if (count > group->host->max_cqe)
		return fail(ROCAST_EBROKEN, "%u members are more than the device has single connections for: its queues hold %u completions", count,
			    group->host->max_cqe);
	group->link_depth = group->host->max_cqe / count < group->send_depth ? group->host->max_cqe / count : group->send_depth;
	/* More members may have come since the last time, and no queue pair uses that queue now. */
	if (group->link_cq && ibv_destroy_cq(group->link_cq) == 0)
		group->link_cq = NULL;
	if (!group->link_cq &&
	    !(group->link_cq = ibv_create_cq(group->host->device, (int)(group->link_depth * count), NULL, group->channel, 0)))
		return fail(ROCAST_EDEVICE, "no queue for %u single connections can be made (%s)", count, strerror(errno));
	group->armed = false;
	for (unsigned i = 0; i < group->other_count; i++) {
		const struct member *m = &group->others[i];
		struct link *l;
		int fd;

		if (!m->receives)
			continue;
		fd = begin_connect(&m->address, &group->host->local);
		if (fd < 0 || !(l = new_link(group, &m->address, fd, true))) {
			address_text(&m->address, text);
			return fail(ROCAST_EBROKEN, "%s cannot be reached (%s)", text, strerror(errno));
		}
		l->psn = random_psn();
		if (!(l->qp = new_qp(group->host, group->link_cq, NULL, group->link_depth)))
			return fail(ROCAST_EDEVICE, "no queue pair can be made (%s)", strerror(errno));
	}
	return ROCAST_OK;
}

/* Connects to each other member that receives, unless that is done. */
int connect_members(struct rocast_group *group, int64_t deadline)
{
	char text[ADDRESS_TEXT];
	int error = ROCAST_OK;

	if (outgoing_links(group) > 0)
		return ROCAST_OK;
	error = begin_links(group);
	while (!error) {
		const struct link *missing = NULL;

		for (struct link *l = group->links; l && !error; l = l->next) {
			if (!l->outgoing || l->ready)
				continue;
			if ((error = connect_further(l))) {
				address_text(&l->peer, text);
				error = fail(ROCAST_EBROKEN, "%s has left group %s (%s)", text, group->name, strerror(error));
			} else if (!l->ready) {
				missing = l;
			}
		}
		if (error || !missing)
			break;
		if (now_ms() >= deadline) {
			address_text(&missing->peer, text);
			error = fail(ROCAST_EBROKEN, "%s does not answer; its program calls neither rocast_poll nor rocast_wait, or the host is away", text);
			break;
		}
		serve_members(group); /* they may fall back too */
		usleep(SLEEP_MS * 1000);
	}
	if (!error)
		return ROCAST_OK;
	for (struct link *l = group->links, *next; l; l = next) {
		next = l->next;
		if (l->outgoing)
			free_link(l);
	}
	return error;
}

/* Posts what each member lacks. */
void send_away(struct rocast_group *group)
{
	for (struct link *l = group->links; l; l = l->next) {
		if (!l->outgoing || !l->ready)
			continue;
		for (; l->posted < group->allowed && l->posted - l->done < group->link_depth; l->posted++)
			if (post_operation(l->qp, &group->operations[l->posted % group->send_depth], l->targets, l->posted))
				break;
	}
}
