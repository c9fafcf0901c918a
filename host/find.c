/* SPDX-License-Identifier: Apache-2.0 */
#include "box.h"

#include <arpa/nameser.h>
#include <netdb.h>
#include <resolv.h>
#include <string.h>

/*
 * How long a server of DNS has for an answer, and how often it is asked. By itself resolv.conf(5)
 * gives it 5 s twice, for each name that is tried: a program that waits so long looks hung.
 */
#ifndef LOOKUP_SECONDS
#define LOOKUP_SECONDS 2
#endif
#define LOOKUP_TRIES 2

/* A record of type SRV (RFC 2782). */
struct service {
	unsigned priority, weight, port;
	char host[NS_MAXDNAME];
};

static unsigned get16(const unsigned char *at)
{
	return (unsigned)at[0] << 8 | at[1];
}

/*
 * Whether a is to be taken before b. All hosts of a group need the same box, so nothing is drawn by
 * lot: the weight, then the name, and then the port decide.
 */
static bool is_before(const struct service *a, const struct service *b)
{
	int names = strcmp(a->host, b->host);

	if (a->priority != b->priority)
		return a->priority < b->priority;
	if (a->weight != b->weight)
		return a->weight > b->weight;
	return names ? names < 0 : a->port < b->port;
}

/* Reads an answer of DNS. Returns how many boxes its records name, of which best is the first. */
static int read_services(const unsigned char *answer, int length, struct service *best)
{
	const unsigned char *end = answer + length, *at = answer + NS_HFIXEDSZ;
	int found = 0;

	if (length < NS_HFIXEDSZ)
		return 0;
	for (unsigned n = get16(answer + 4); n > 0; n--) {
		int name = dn_skipname(at, end);

		if (name < 0 || end - at < name + NS_QFIXEDSZ)
			return 0;
		at += name + NS_QFIXEDSZ;
	}
	for (unsigned n = get16(answer + 6); n > 0; n--) {
		int name = dn_skipname(at, end);
		struct service s;
		unsigned type, bytes;

		if (name < 0 || end - at < name + NS_RRFIXEDSZ)
			break;
		at += name;
		type = get16(at);
		bytes = get16(at + 8);
		at += NS_RRFIXEDSZ;
		if (end - at < (long)bytes)
			break;
		if (type == ns_t_srv && bytes > 6) {
			s.priority = get16(at);
			s.weight = get16(at + 2);
			s.port = get16(at + 4);
			/* A host "." says that there is no box (RFC 2782). */
			if (dn_expand(answer, end, at + 6, s.host, sizeof(s.host)) > 0 && s.host[0] && s.port &&
			    (found++ == 0 || is_before(&s, best)))
				*best = s;
		}
		at += bytes;
	}
	return found;
}

static void set_times(struct __res_state *resolver)
{
	resolver->retrans = LOOKUP_SECONDS;
	resolver->retry = LOOKUP_TRIES;
}

/* Finds the address of a host, and takes one of IPv4 first. */
static bool resolve(const char *host, union address *address)
{
	static const int families[] = { AF_INET, AF_INET6 };

	for (unsigned i = 0; i < 2; i++) {
		struct addrinfo hints = { .ai_family = families[i], .ai_socktype = SOCK_STREAM }, *list;

		if (getaddrinfo(host, NULL, &hints, &list))
			continue;
		memset(address, 0, sizeof(*address));
		memcpy(address, list->ai_addr, list->ai_addrlen);
		freeaddrinfo(list);
		return true;
	}
	return false;
}

bool find_box(union address *address)
{
	unsigned char answer[NS_MAXMSG];
	struct __res_state resolver;
	struct service best;
	int length, retrans, retry;
	bool found;

	memset(&resolver, 0, sizeof(resolver));
	if (res_ninit(&resolver))
		return false;
	set_times(&resolver);
	length = res_nsearch(&resolver, "_rocast._tcp", ns_c_in, ns_t_srv, answer, sizeof(answer));
	res_nclose(&resolver);
	if (length > (int)sizeof(answer) || read_services(answer, length, &best) == 0)
		return false;
	/* getaddrinfo asks with the state of this thread. */
	if (!(_res.options & RES_INIT) && res_init())
		return false;
	retrans = _res.retrans;
	retry = _res.retry;
	set_times(&_res);
	found = resolve(best.host, address);
	_res.retrans = retrans;
	_res.retry = retry;
	if (!found)
		return false;
	set_port(address, (uint16_t)best.port);
	return true;
}
