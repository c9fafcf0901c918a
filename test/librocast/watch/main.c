/*
 * watch asks the box how a group is, as a member does that has no queue pair.
 * test/librocast/answers_test.go runs it under the sanitizers, with a clock that this program sets.
 *
 *   watch return BOX   asks, leaves and joins before the answer, and prints which answer it then gets
 *   watch ports BOX    prints the ports of the other members after each of three answers
 *   watch silent BOX   asks a box that never answers, and prints when the question is given up
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "../../../host/internal.h"

static int64_t now;

int64_t __wrap_now_ms(void);
int64_t __wrap_now_ms(void)
{
	return now;
}

/* Begins a question, and goes on until it is sent. */
static void send_question(struct rocast_group *group)
{
	do {
		watch_group(group);
		if (group->watch.fd >= 0)
			(void)poll(&(struct pollfd){ .fd = group->watch.fd, .events = awaits(&group->watch) }, 1, 10);
	} while (group->watch.fd < 0 || group->watch.sent < group->watch.length);
}

int main(int argc, char **argv)
{
	struct rocast host = { .process = getpid() };
	struct rocast_group group = { .host = &host, .name = "g1", .way = ROCAST_MULTICAST, .watch = { .fd = -1 }, .region_count = 1 };

	if (argc != 3 || !parse_endpoint(argv[2], &host.box) || !parse_ip("127.0.0.1", &host.local))
		return 2;
	group.sleeper = epoll_create1(EPOLL_CLOEXEC);
	if (strcmp(argv[1], "ports") == 0) {
		for (unsigned answers = 0; answers < 3;) {
			watch_group(&group);
			if (group.watch.fd >= 0) {
				(void)poll(&(struct pollfd){ .fd = group.watch.fd, .events = awaits(&group.watch) }, 1, -1);
				continue;
			}
			for (unsigned i = 0; i < group.other_count; i++)
				printf("%u ", port_of(&group.others[i].address));
			answers++;
		}
		printf("in three answers\n");
	} else if (strcmp(argv[1], "return") == 0) {
		send_question(&group);
		end_multicast(&group);
		if (group.watch.fd >= 0) {
			puts("none: the first question goes on");
			return 0;
		}
		group.way = ROCAST_MULTICAST;
		for (now += 5000; group.version[0] == '\0';) {
			watch_group(&group);
			if (group.watch.fd >= 0)
				(void)poll(&(struct pollfd){ .fd = group.watch.fd, .events = awaits(&group.watch) }, 1, -1);
		}
		puts(group.version);
	} else {
		send_question(&group);
		while (group.watch.fd >= 0 && now < 60000) {
			now += 1000;
			watch_group(&group);
		}
		printf("given up after %d s\n", (int)(now / 1000));
	}
	forget(&group.watch);
	free(group.others);
	close(group.sleeper);
	return 0;
}
