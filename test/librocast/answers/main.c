/*
 * answers reads a JSON text from stdin as librocast reads the box's answers, and prints what it
 * finds. test/librocast/answers_test.go runs it under the sanitizers.
 *
 *   answers text            whether the text is valid, and some members of it
 *   answers endpoint TEXT   the address and port in the text
 *   answers ask BOX LOCAL METHOD PATH BODY   the status and the body of the box's answer
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../host/box.h"
#include "../../../host/json.h"

static int read_text(void)
{
	char *text = calloc(1, 1 << 16), word[16];

	if (!text || fread(text, 1, (1 << 16) - 1, stdin) == 0)
		return 1;
	/* Only as long as the text: the sanitizer notices whatever is read behind it. */
	text = realloc(text, strlen(text) + 1);
	if (!json_valid(text)) {
		puts("invalid");
	} else {
		json_text(json_member(text, "name"), word, sizeof(word));
		printf("name %s qpn %llu clear %d\n", word, (unsigned long long)json_number(json_member(text, "qpn")),
		       json_true(json_member(text, "clearToSend")));
		for (const char *at = json_first(json_member(text, "members")); at; at = json_next(at)) {
			json_text(json_member(at, "ip"), word, sizeof(word));
			printf("member %s port %llu\n", word, (unsigned long long)json_number(json_member(at, "port")));
		}
	}
	free(text);
	return 0;
}

static int read_endpoint(const char *text)
{
	char ip[ADDRESS_TEXT];
	union address at;

	if (!parse_endpoint(text, &at)) {
		puts("no endpoint");
		return 0;
	}
	address_text(&at, ip);
	printf("%s %u\n", ip, ntohs(at.any.sa_family == AF_INET6 ? at.v6.sin6_port : at.v4.sin_port));
	return 0;
}

static int ask_box(char **argv)
{
	union address box, local;
	struct question question;
	const char *body;
	int error, done = 0;

	if (!parse_endpoint(argv[0], &box) || !parse_ip(argv[1], &local))
		return 2;
	if ((error = ask(&question, &box, &local, argv[2], argv[3], argv[4]))) {
		printf("not asked: %s\n", strerror(error));
		return 0;
	}
	while (done == 0) {
		struct pollfd wanted = { .fd = question.fd, .events = awaits(&question) };

		(void)poll(&wanted, 1, -1);
		done = go_on(&question);
	}
	if (done < 0)
		printf("no answer: %s\n", strerror(errno));
	else if (status_of(&question, &body))
		printf("%d %s", status_of(&question, &body), body);
	forget(&question);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "text") == 0)
		return read_text();
	if (argc == 3 && strcmp(argv[1], "endpoint") == 0)
		return read_endpoint(argv[2]);
	if (argc == 7 && strcmp(argv[1], "ask") == 0)
		return ask_box(argv + 2);
	return 2;
}
