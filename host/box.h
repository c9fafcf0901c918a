/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses, the box that DNS names, and questions to a box over HTTP, which never block. */
#ifndef ROCAST_BOX_H
#define ROCAST_BOX_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

socklen_t address_bytes(const union address *address);

/* Reads ADDRESS:PORT or [ADDRESS]:PORT. */
bool parse_endpoint(const char *text, union address *address);

/*
 * Finds the box that DNS names by a record _rocast._tcp of type SRV (RFC 2782) in one of the
 * domains of resolv.conf.
 */
bool find_box(union address *address);

/* Reads an IP address without a port. */
bool parse_ip(const char *text, union address *address);

bool same_ip(const union address *a, const union address *b);

void set_port(union address *address, uint16_t port);

uint16_t port_of(const union address *address);

enum { ADDRESS_TEXT = 64 };

/* The address without its port. */
void address_text(const union address *address, char text[ADDRESS_TEXT]);

/* Milliseconds of a clock that never goes back. */
int64_t now_ms(void);

/* A question that is under way, or whose answer has come. */
struct question {
	int fd; /* -1: there is none */
	bool connected;
	char *text; /* the request */
	size_t length, sent;
	char *answer;
	size_t have, room;
};

/*
 * Begins a question. local is the address from which it comes, and for which the program therefore
 * speaks. body may be NULL. Returns 0 or an errno.
 */
int ask(struct question *question, const union address *box, const union address *local, const char *method,
	const char *path, const char *body);

/*
 * Goes on with a question without waiting: 1: the answer is there; 0: not yet; -1: errno says why
 * not.
 */
int go_on(struct question *question);

/* The events of poll(2) for which the question waits. */
short awaits(const struct question *question);

/* The status and the body of an answer that is there. The body lives as long as the question. */
int status_of(const struct question *question, const char **body);

void forget(struct question *question);

/* Begins to connect a socket from local to remote. Returns it, or -1 with errno. */
int begin_connect(const union address *remote, const union address *local);

/* The error of a socket that was to connect, once it can be written; 0: it is connected. */
int connect_error(int fd);

#endif
