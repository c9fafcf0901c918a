// Package gather assembles groups from what hosts say about themselves: each host knows its own
// queue pair and how many hosts the group waits for. When all have come there is a group file.
//
// A [Hall] is a step function: it reads no clock and waits for nothing. Package ctl creates the
// groups, and answers the hosts.
package gather
