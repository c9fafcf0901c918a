// Package hosts makes groups of what hosts say about themselves, by the same ways as requests of
// the API do: a group is created, updated, confirmed and removed. What a host says, and how a group
// file comes of it, is package gather.
//
// The rules are a step function. A [task] is one question of a host, or one member that the box
// itself takes out. desk.step takes what has happened to the task, and returns the one thing that
// the task does next: look at the group, create it, wait, answer. The function reads no clock,
// waits for nothing and asks nobody: time and everything that is known of groups come with the
// event.
//
//	question ─▶ step ─▶ act ─▶ Hosts does it ─▶ event ─▶ step ─▶ … ─▶ answer
//
// [Hosts] is what does these things. It holds a mutex for the length of a step, and never while it
// waits. A task that may change a group has the lock of that group's name from its first look until
// it does something that needs no lock.
//
// Read first: step.go, then join.go and leave.go; expire.go has what becomes of silent programs.
package hosts
