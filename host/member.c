/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "internal.h"
#include "json.h"

enum {
	LONGEST_WAIT_S = 20, /* that the box takes for an answer */
	ANSWER_MS = 5000,    /* for an answer that waits for nothing */
	ASK_AGAIN_MS = 1000, /* after a box that did not answer */
};

static const char *const roles[] = { [ROCAST_RECEIVER] = "receiver", [ROCAST_SOURCE] = "source", [ROCAST_BOTH] = "both" };

static void path_of(const struct rocast_group *group, const char *query, char *path, size_t size)
{
	snprintf(path, size, "/v1/hosts/%s%s", group->name, query);
}

/*
 * Asks the box and waits for the answer. Returns the status; 0 if there is none, with the message.
 * The caller forgets the question.
 */
int tell_box(struct rocast_group *group, const char *method, const char *query, const char *body, int64_t deadline,
	     struct question *question)
{
	char path[NAME_BYTES + 128], box[ADDRESS_TEXT], local[ADDRESS_TEXT];
	struct rocast *host = group->host;
	const char *answer;
	int error, done = 0;

	path_of(group, query, path, sizeof(path));
	address_text(&host->box, box);
	if ((error = ask(question, &host->box, &host->local, method, path, body))) {
		address_text(&host->local, local);
		(void)fail(ROCAST_EBOX, "the box %s cannot be asked from %s (%s); does rocastd run there with hosts: in its config, and is this address the host's?",
			   box, local, strerror(error));
		return 0;
	}
	while (done == 0 && now_ms() < deadline) {
		struct pollfd wanted = { .fd = question->fd, .events = awaits(question) };
		int64_t left = deadline - now_ms();

		(void)poll(&wanted, 1, left > INT32_MAX ? INT32_MAX : (int)left);
		done = go_on(question);
	}
	if (done == 1)
		return status_of(question, &answer);
	(void)fail(ROCAST_EBOX, "the box %s does not answer (%s); does rocastd run there, with hosts: in its config?", box,
		   done < 0 ? strerror(errno) : "the time is up");
	return 0;
}

/* What the host says of itself. The caller frees it. */
static char *request(const struct rocast_group *group, bool ready)
{
	char regions[MAX_REGIONS * 96] = "";
	size_t length = 0;
	char *text;
	unsigned members = group->members;
	bool secret = group->secret[0], policy = group->policy[0]; /* a box of an older version knows none */

	for (unsigned i = 0; i < group->region_count && group->regions[i]; i++) {
		const struct ibv_mr *mr = group->regions[i]->mr;

		length += (size_t)snprintf(regions + length, sizeof(regions) - length, "%s{\"va\":\"0x%" PRIxPTR "\",\"length\":%zu,\"rkey\":\"0x%x\"}",
					   i ? "," : "", (uintptr_t)mr->addr, mr->length, mr->rkey);
	}
	if (asprintf(&text, "{\"role\":\"%s\",\"qpn\":%u,\"psn\":%u,\"sendPSN\":%u,\"members\":%u,\"mtu\":%u,\"port\":%u,%s%s%s%s%s%s\"ready\":%s,\"regions\":[%s]}",
		     roles[group->role], group->qp ? group->qp->qp_num : 0,
		     group->role == ROCAST_SOURCE ? group->send_psn : group->psn, group->role == ROCAST_BOTH ? group->send_psn : 0, members,
		     group->mtu, group->listen_port, secret ? "\"secret\":\"" : "", group->secret, secret ? "\"," : "",
		     policy ? "\"policy\":\"" : "", group->policy, policy ? "\"," : "", ready ? "true" : "false", regions) < 0)
		return NULL;
	return text;
}

/*
 * The port of a member that the box does not know: a box that has started again knows it only when
 * the member has asked something.
 */
static uint16_t known_port(const struct rocast_group *group, const union address *address)
{
	for (unsigned i = 0; i < group->other_count; i++)
		if (same_ip(&group->others[i].address, address))
			return port_of(&group->others[i].address);
	return 0;
}

/* Takes over what the box has said about the group. Returns whether the group runs. */
static bool understand(struct rocast_group *group, const char *answer)
{
	struct member *others = NULL;
	unsigned count = 0, i = 0;
	const char *list = json_member(answer, "members");
	char state[16], ack[32], came[ADDRESS_TEXT];
	size_t length = 0;

	json_text(json_member(answer, "version"), group->version, sizeof(group->version));
	json_text(json_member(answer, "state"), state, sizeof(state));
	if ((group->ended = strcmp(state, "ended") == 0)) {
		json_text(json_member(answer, "reason"), group->reason, sizeof(group->reason));
		return false;
	}
	if (strcmp(state, "running") != 0) {
		group->reason[0] = '\0';
		for (const char *at = json_first(json_member(answer, "came")); at && length < sizeof(group->reason); at = json_next(at)) {
			json_text(at, came, sizeof(came));
			length += (size_t)snprintf(group->reason + length, sizeof(group->reason) - length, "%s%s", length ? ", " : "only these have come: ", came);
		}
		return false;
	}
	group->clear = json_true(json_member(answer, "clearToSend"));
	group->degraded = json_true(json_member(answer, "degraded"));
	json_text(json_member(answer, "ack"), ack, sizeof(ack));
	if (sscanf(ack, "quorum %u", &group->quorum) != 1)
		group->quorum = 0;
	group->evicts = json_true(json_member(answer, "evicts"));
	json_text(json_member(answer, "reason"), group->reason, sizeof(group->reason));
	for (const char *at = json_first(list); at; at = json_next(at))
		count++;
	if (count == 0 || !(others = calloc(count, sizeof(*others))))
		return true;
	count = 0;
	for (const char *at = json_first(list); at; at = json_next(at)) {
		char text[ADDRESS_TEXT], role[16];
		struct member *m = &others[count];
		uint16_t port = (uint16_t)json_number(json_member(at, "port"));

		json_text(json_member(at, "ip"), text, sizeof(text));
		json_text(json_member(at, "role"), role, sizeof(role));
		if (!parse_ip(text, &m->address) || same_ip(&m->address, &group->host->local))
			continue;
		set_port(&m->address, port ? port : known_port(group, &m->address));
		m->receives = strcmp(role, "source") != 0;
		count++;
	}
	free(group->others);
	group->others = others;
	group->other_count = count;
	json_text(json_member(answer, "ip"), group->ip, sizeof(group->ip));
	for (const char *at = json_first(json_member(answer, "memory")); at && i < MAX_REGIONS; at = json_next(at), i++) {
		group->targets[i].va = json_number(json_member(at, "va"));
		group->targets[i].rkey = (uint32_t)json_number(json_member(at, "rkey"));
		group->region_bytes[i] = json_number(json_member(at, "length"));
	}
	group->region_count = i;
	return true;
}

static int refused(const struct rocast_group *group, const struct question *question)
{
	const char *answer;
	char text[400];

	(void)status_of(question, &answer);
	json_text(json_member(json_member(answer, "error"), "message"), text, sizeof(text));
	return fail(ROCAST_EREFUSED, "the box refuses group %s: %s", group->name, text);
}

/* Whether the box refuses for a reason of this kind. */
static bool refused_as(const struct question *question, const char *kind)
{
	const char *answer;
	char text[32];

	(void)status_of(question, &answer);
	json_text(json_member(json_member(answer, "error"), "kind"), text, sizeof(text));
	return strcmp(text, kind) == 0;
}

/*
 * Asks until the group runs, or with ready until it is clear to send. Sets outside if the box says
 * that this program is not in the group.
 */
static int ask_until(struct rocast_group *group, bool ready, int64_t deadline, bool *outside)
{
	group->version[0] = '\0';
	for (;;) {
		struct question question;
		char query[80];
		const char *answer;
		char *body;
		int64_t left = deadline - now_ms();
		int status;
		bool runs;

		if (left <= 0)
			return fail(ROCAST_ETIMEOUT, "group %s is not complete after the time that was given (%s)", group->name,
				    group->reason[0] ? group->reason : "the box does not say why");
		snprintf(query, sizeof(query), "?wait=%d&seen=%s", left < LONGEST_WAIT_S * 1000 ? (int)(left / 1000) : LONGEST_WAIT_S, group->version);
		if (!(body = request(group, ready)))
			return fail(ROCAST_EMEMORY, "no memory");
		status = tell_box(group, "POST", query, body, left < LONGEST_WAIT_S * 1000 ? deadline + ANSWER_MS : now_ms() + LONGEST_WAIT_S * 1000 + ANSWER_MS, &question);
		free(body);
		if (status == 0) {
			forget(&question);
			return ROCAST_EBOX;
		}
		if (status != 200) {
			int error = refused(group, &question);

			*outside = refused_as(&question, "stale") || (ready && refused_as(&question, "not-found"));
			forget(&question);
			return error;
		}
		(void)status_of(&question, &answer);
		runs = understand(group, answer);
		if (runs && !ready) {
			group->qpn = (uint32_t)json_number(json_member(answer, "qpn"));
			group->mtu = (unsigned)json_number(json_member(answer, "mtu"));
		}
		forget(&question);
		if (group->ended)
			return fail(ROCAST_EREFUSED, "%s", group->reason);
		if (runs && (!ready || group->clear))
			return ROCAST_OK;
		if (left < 1000)
			usleep(10000);
	}
}

static unsigned largest_mtu(const struct rocast *host)
{
	return 128u << host->port.active_mtu;
}

static int check_policy(const struct rocast_group *group)
{
	if (group->without_fallback || group->role == ROCAST_RECEIVER || (!group->quorum && !group->evicts))
		return ROCAST_OK;
	return fail(ROCAST_EREFUSED, "group %s goes on without some of its receivers (ack, evict or on-fatal in its policy), and single connections wait for all; "
		    "join it with without_fallback", group->name);
}

/* Joins with a new queue pair. Afterwards operations go by the group. */
int join_group(struct rocast_group *group, int64_t deadline)
{
	unsigned wanted = group->mtu;
	bool outside = false;
	union address ip;
	int error;

	group->psn = random_psn();
	group->send_psn = random_psn();
	if (wanted == 0 || wanted > largest_mtu(group->host))
		group->mtu = largest_mtu(group->host);
	/* One more than the program's operations: the probe. */
	if (!(group->qp = new_qp(group->host, group->cq, group->srq, group->send_depth + 1)))
		return fail(ROCAST_EDEVICE, "no queue pair can be made (%s)", strerror(errno));
	error = ask_until(group, false, deadline, &outside);
	if (!error)
		error = check_policy(group);
	if (!error && !parse_ip(group->ip, &ip))
		error = fail(ROCAST_EBOX, "the box says the group's IP is \"%s\"; run the same version of rocast on both", group->ip);
	if (!error)
		error = connect_qp(group->host, group->qp, &ip, group->qpn, group->psn, group->send_psn, group->mtu, deadline);
	if (!error)
		error = ask_until(group, true, deadline, &outside);
	if (error) {
		struct question question;

		/*
		 * A source that cannot return goes on by single connections: its receivers must not hear
		 * that it has left. A host leaves, not a program: if this one is outside, another program
		 * of the host may be in the group.
		 */
		if (!outside) {
			(void)tell_box(group, "DELETE", group->role == ROCAST_SOURCE && group->returning ? "?whole=1" : "", NULL, now_ms() + ASK_AGAIN_MS, &question);
			forget(&question);
		}
		group->mtu = wanted;
		end_multicast(group);
		return error;
	}
	group->way = ROCAST_MULTICAST;
	group->posted = group->allowed = group->done = group->oldest;
	group->message = group->has = 0;
	for (uint64_t n = group->oldest; n < group->next; n++)
		group->operations[n % group->send_depth].pushed = false; /* its number was of the messages before */
	group->failed = group->degraded = false;
	group->progress_at = group->multicast_since = now_ms();
	return ROCAST_OK;
}

/* Goes on with the question how the group is, or asks it again. */
void watch_group(struct rocast_group *group)
{
	struct epoll_event event = { .events = EPOLLIN };
	const char *answer;
	char query[80], path[NAME_BYTES + 128];
	char *body;
	int done, status;

	if (group->way != ROCAST_MULTICAST || group->returning)
		return;
	if (group->watch.fd < 0) {
		if (now_ms() < group->watch_at || !(body = request(group, true)))
			return;
		snprintf(query, sizeof(query), "?wait=%d&seen=%s", LONGEST_WAIT_S, group->version);
		path_of(group, query, path, sizeof(path));
		done = ask(&group->watch, &group->host->box, &group->host->local, "POST", path, body);
		free(body);
		group->watch_at = now_ms() + ASK_AGAIN_MS;
		group->watch_until = now_ms() + LONGEST_WAIT_S * 1000 + ANSWER_MS;
		if (done == 0)
			(void)epoll_ctl(group->sleeper, EPOLL_CTL_ADD, group->watch.fd, &event);
		return;
	}
	done = go_on(&group->watch);
	if (done == 0 && now_ms() < group->watch_until)
		return;
	status = done == 1 ? status_of(&group->watch, &answer) : 0;
	if (status == 200)
		(void)understand(group, answer);
	/* A box that does not answer, or has forgotten the group, says nothing about the packets. */
	group->watch_at = status == 200 ? 0 : now_ms() + ASK_AGAIN_MS;
	forget(&group->watch);
}

static void free_group(struct rocast_group *group)
{
	struct rocast_group **at;

	for (at = &group->host->groups; *at && *at != group; at = &(*at)->next_group)
		;
	if (*at)
		*at = group->next_group;
	close_links(group, false);
	forget(&group->watch);
	if (group->qp)
		ibv_destroy_qp(group->qp);
	if (group->srq)
		ibv_destroy_srq(group->srq);
	if (group->link_cq)
		ibv_destroy_cq(group->link_cq);
	if (group->cq)
		ibv_destroy_cq(group->cq);
	if (group->channel)
		ibv_destroy_comp_channel(group->channel);
	if (group->listener >= 0)
		close(group->listener);
	if (group->timer >= 0)
		close(group->timer);
	if (group->sleeper >= 0)
		close(group->sleeper);
	free_stream(group->stream);
	for (unsigned i = 0; i < MAX_REGIONS; i++)
		if (group->regions[i])
			group->regions[i]->users--;
	free(group->operations);
	free(group->receives);
	free(group->ready);
	free(group->others);
	free(group);
}

static int make_objects(struct rocast_group *group)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = group->receive_depth, .max_sge = 1 } };
	struct rocast *host = group->host;

	group->operations = calloc(group->send_depth, sizeof(*group->operations));
	group->receives = calloc(group->receive_depth, sizeof(*group->receives));
	group->ready = calloc(group->send_depth + group->receive_depth, sizeof(*group->ready));
	if (!group->operations || !group->receives || !group->ready)
		return fail(ROCAST_EMEMORY, "no memory");
	if (!(group->channel = ibv_create_comp_channel(host->device)) || fcntl(group->channel->fd, F_SETFL, O_NONBLOCK) ||
	    !(group->cq = ibv_create_cq(host->device, (int)(group->send_depth + group->receive_depth + 1), NULL, group->channel, 0)) ||
	    (group->role != ROCAST_SOURCE && !(group->srq = ibv_create_srq(host->pd, &srq))))
		return fail(ROCAST_EDEVICE, "no queues for %u operations and %u receives can be made (%s); ask for fewer", group->send_depth,
			    group->receive_depth, strerror(errno));
	group->sleeper = epoll_create1(EPOLL_CLOEXEC);
	if (group->sleeper < 0 || epoll_ctl(group->sleeper, EPOLL_CTL_ADD, group->channel->fd, &event))
		return fail(ROCAST_EDEVICE, "no descriptor can be made (%s)", strerror(errno));
	return group->without_fallback ? ROCAST_OK : listen_for_members(group);
}

static int check_membership(const struct rocast *host, const struct rocast_membership *wanted)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	const char *name = wanted->name ? wanted->name : "";

	if (*name == '\0' || strlen(name) >= NAME_BYTES || strspn(name, letters) != strlen(name) || strchr("._-", *name))
		return fail(ROCAST_EARGUMENT, "\"%s\" is not a valid group name; write 1 to 63 letters, digits, '.', '_' or '-', a letter or digit first", name);
	for (const struct rocast_group *g = host->groups; g; g = g->next_group)
		if (strcmp(g->name, name) == 0)
			return fail(ROCAST_EARGUMENT, "this program is in group %s already; leave it first", name);
	if ((unsigned)wanted->role > ROCAST_BOTH)
		return fail(ROCAST_EARGUMENT, "the role %d is none", (int)wanted->role);
	if (wanted->members < 2)
		return fail(ROCAST_EARGUMENT, "a group has two members or more, and not %u", wanted->members);
	if (wanted->region_count > MAX_REGIONS)
		return fail(ROCAST_EARGUMENT, "%u regions are more than %d", wanted->region_count, MAX_REGIONS);
	if (wanted->send_depth > MAX_DEPTH || wanted->receive_depth > MAX_DEPTH)
		return fail(ROCAST_EARGUMENT, "depths are %u and %u, and may be %d", wanted->send_depth, wanted->receive_depth, MAX_DEPTH);
	if (wanted->mtu != 0 && (wanted->mtu < 256 || wanted->mtu > 4096 || (wanted->mtu & (wanted->mtu - 1))))
		return fail(ROCAST_EARGUMENT, "mtu is %u; write 256, 512, 1024, 2048 or 4096, or 0", wanted->mtu);
	for (unsigned i = 0; i < wanted->region_count; i++)
		if (!wanted->regions[i] || wanted->regions[i]->host != host)
			return fail(ROCAST_EARGUMENT, "region %u is not memory of this device", i);
		else if (wanted->regions[i]->read_only)
			return fail(ROCAST_EARGUMENT, "region %u was registered only to send from; register it to be written", i);
	return ROCAST_OK;
}

static unsigned or_default(unsigned value, unsigned standard)
{
	return value ? value : standard;
}

int rocast_join(struct rocast *host, const struct rocast_membership *wanted, struct rocast_group **joined)
{
	struct rocast_group *group;
	int error;

	*joined = NULL;
	if ((error = check_process(host)) || (error = check_membership(host, wanted)))
		return error;
	if (!(group = calloc(1, sizeof(*group))))
		return fail(ROCAST_EMEMORY, "no memory");
	group->host = host;
	strcpy(group->name, wanted->name);
	strcpy(group->secret, host->secret);
	strcpy(group->policy, host->policy);
	group->role = wanted->role;
	group->members = wanted->members;
	group->mtu = wanted->mtu;
	group->send_depth = or_default(wanted->send_depth, DEFAULT_DEPTH);
	group->receive_depth = or_default(wanted->receive_depth, DEFAULT_DEPTH);
	group->patience_ms = or_default(wanted->patience_ms, host->patience_ms);
	group->give_up_ms = or_default(wanted->give_up_ms, DEFAULT_GIVE_UP);
	group->without_fallback = wanted->without_fallback;
	group->listener = group->sleeper = group->timer = group->watch.fd = -1;
	if (wanted->role != ROCAST_SOURCE) {
		group->region_count = wanted->region_count;
		for (unsigned i = 0; i < wanted->region_count; i++) {
			group->regions[i] = wanted->regions[i];
			group->regions[i]->users++;
		}
	}
	if ((error = make_objects(group)) || (error = join_group(group, now_ms() + group->patience_ms))) {
		free_group(group);
		return error;
	}
	group->next_group = host->groups;
	host->groups = group;
	*joined = group;
	return ROCAST_OK;
}

/* Ends the membership, or all memberships of the group. */
static int go_away(struct rocast_group *group, bool whole)
{
	struct question question;
	int status, error = ROCAST_OK;

	end_multicast(group);
	status = tell_box(group, "DELETE", whole ? "?whole=1&tell=1" : "", NULL, now_ms() + ANSWER_MS, &question);
	if (status == 0)
		error = ROCAST_EBOX;
	else if (status != 200 && status != 404) /* 404: another member has ended it */
		error = refused(group, &question);
	forget(&question);
	if (whole && error == ROCAST_EREFUSED) {
		char why[400];

		/* This member leaves alone. What the box has said before is what the program hears. */
		snprintf(why, sizeof(why), "%s", rocast_message());
		(void)tell_box(group, "DELETE", "", NULL, now_ms() + ANSWER_MS, &question);
		forget(&question);
		(void)fail(error, "%s", why);
	} else if (whole) {
		tell_all(group, MESSAGE_END);
	}
	free_group(group);
	return error;
}

int rocast_leave(struct rocast_group *group)
{
	int error;

	if (!group)
		return ROCAST_OK;
	if ((error = check_process(group->host)))
		return error;
	return go_away(group, false);
}

int rocast_end(struct rocast_group *group)
{
	int error;

	if (!group)
		return ROCAST_OK;
	if ((error = check_process(group->host)))
		return error;
	if (group->role == ROCAST_RECEIVER)
		return fail(ROCAST_EARGUMENT, "a receiver of group %s cannot end it, and may leave it", group->name);
	return go_away(group, true);
}

unsigned rocast_acknowledged_by(const struct rocast_group *group)
{
	return group->quorum;
}

int rocast_has_member(const struct rocast_group *group, const char *ip)
{
	union address address;

	return parse_ip(ip, &address) && member_at(group, &address);
}

void rocast_describe(const struct rocast_group *group, struct rocast_about *about)
{
	*about = (struct rocast_about){
		.group_ip = group->ip, .group_qpn = group->qpn, .qpn = group->qp ? group->qp->qp_num : 0, .members = group->other_count + 1,
		.mtu = group->mtu, .fallbacks = group->fallbacks, .returns = group->returns,
	};
	for (unsigned i = 0; i < group->region_count; i++)
		about->region_bytes[i] = group->region_bytes[i];
}
