/* SPDX-License-Identifier: Apache-2.0 */
#include "box.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "json.h"

/* The largest group has 1025 members, each with less than 100 bytes in an answer. */
enum { MAX_ANSWER = 1 << 20 };

socklen_t address_bytes(const union address *address)
{
	return address->any.sa_family == AF_INET6 ? sizeof(address->v6) : sizeof(address->v4);
}

bool parse_ip(const char *text, union address *address)
{
	memset(address, 0, sizeof(*address));
	if (inet_pton(AF_INET, text, &address->v4.sin_addr) == 1)
		address->any.sa_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &address->v6.sin6_addr) == 1)
		address->any.sa_family = AF_INET6;
	else
		return false;
	return true;
}

void set_port(union address *address, uint16_t port)
{
	if (address->any.sa_family == AF_INET6)
		address->v6.sin6_port = htons(port);
	else
		address->v4.sin_port = htons(port);
}

uint16_t port_of(const union address *address)
{
	return ntohs(address->any.sa_family == AF_INET6 ? address->v6.sin6_port : address->v4.sin_port);
}

bool parse_endpoint(const char *text, union address *address)
{
	char ip[ADDRESS_TEXT];
	const char *colon = strrchr(text, ':');
	size_t length = colon ? (size_t)(colon - text) : 0;
	char *end;
	unsigned long port;

	if (!colon || length == 0 || length >= sizeof(ip))
		return false;
	port = strtoul(colon + 1, &end, 10);
	if (end == colon + 1 || *end || port == 0 || port > UINT16_MAX)
		return false;
	if (*text == '[' && colon[-1] == ']') {
		text++;
		length -= 2;
	}
	memcpy(ip, text, length);
	ip[length] = '\0';
	if (!parse_ip(ip, address))
		return false;
	set_port(address, (uint16_t)port);
	return true;
}

bool same_ip(const union address *a, const union address *b)
{
	if (a->any.sa_family != b->any.sa_family)
		return false;
	if (a->any.sa_family == AF_INET6)
		return memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, sizeof(a->v6.sin6_addr)) == 0;
	return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
}

void address_text(const union address *address, char text[ADDRESS_TEXT])
{
	const void *ip = address->any.sa_family == AF_INET6 ? (const void *)&address->v6.sin6_addr : (const void *)&address->v4.sin_addr;

	if (!inet_ntop(address->any.sa_family, ip, text, ADDRESS_TEXT))
		strcpy(text, "?");
}

int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int begin_connect(const union address *remote, const union address *local)
{
	union address from = *local;
	int fd = socket(remote->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error;

	if (fd < 0)
		return -1;
	set_port(&from, 0);
	if (bind(fd, &from.any, address_bytes(&from)) == 0 &&
	    (connect(fd, &remote->any, address_bytes(remote)) == 0 || errno == EINPROGRESS))
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

int connect_error(int fd)
{
	int error = 0;
	socklen_t size = sizeof(error);

	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) ? errno : error;
}

int ask(struct question *question, const union address *box, const union address *local, const char *method,
	const char *path, const char *body)
{
	char host[ADDRESS_TEXT];
	int length;

	memset(question, 0, sizeof(*question));
	question->fd = -1;
	if (!body)
		body = "";
	address_text(box, host);
	length = asprintf(&question->text,
			  "%s %s HTTP/1.0\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
			  method, path, host, strlen(body), body);
	if (length < 0) {
		question->text = NULL;
		return ENOMEM;
	}
	question->length = (size_t)length;
	question->fd = begin_connect(box, local);
	if (question->fd < 0) {
		int error = errno;

		forget(question);
		return error;
	}
	return 0;
}

short awaits(const struct question *question)
{
	return question->sent < question->length ? POLLOUT : POLLIN;
}

static int send_rest(struct question *question)
{
	while (question->sent < question->length) {
		ssize_t n = send(question->fd, question->text + question->sent, question->length - question->sent,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0)
			return errno == EAGAIN || errno == ENOTCONN ? 0 : -1;
		question->sent += (size_t)n;
	}
	return 1;
}

static bool make_room(struct question *question)
{
	size_t room = question->room ? 2 * question->room : 4096;
	char *more;

	if (question->have + 1 < question->room)
		return true;
	if (room > MAX_ANSWER || !(more = realloc(question->answer, room))) {
		errno = EMSGSIZE;
		return false;
	}
	question->answer = more;
	question->room = room;
	return true;
}

int go_on(struct question *question)
{
	int sent;

	if (!question->connected) {
		struct pollfd writable = { .fd = question->fd, .events = POLLOUT };
		int error;

		if (poll(&writable, 1, 0) <= 0)
			return 0;
		if ((error = connect_error(question->fd))) {
			errno = error;
			return -1;
		}
		question->connected = true;
	}
	if ((sent = send_rest(question)) <= 0)
		return sent;
	for (;;) {
		ssize_t n;

		if (!make_room(question))
			return -1;
		n = recv(question->fd, question->answer + question->have, question->room - question->have - 1, MSG_DONTWAIT);
		if (n < 0)
			return errno == EAGAIN ? 0 : -1;
		question->have += (size_t)n;
		question->answer[question->have] = '\0';
		if (n == 0) {
			const char *body;

			if (status_of(question, &body) != 0)
				return 1;
			errno = ECONNRESET; /* it has ended before its answer was whole */
			return -1;
		}
	}
}

int status_of(const struct question *question, const char **body)
{
	const char *text = question->answer ? question->answer : "";
	unsigned long status;

	*body = strstr(text, "\r\n\r\n");
	if (strncmp(text, "HTTP/1.", 7) != 0 || strlen(text) < 12 || !*body)
		return 0;
	*body += 4;
	status = strtoul(text + 9, NULL, 10);
	return json_valid(*body) && status >= 100 && status < 600 ? (int)status : 0;
}

void forget(struct question *question)
{
	if (question->fd >= 0)
		close(question->fd);
	free(question->text);
	free(question->answer);
	memset(question, 0, sizeof(*question));
	question->fd = -1;
}
