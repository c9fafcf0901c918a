// Package shared lets this box carry its part of the groups that all boxes share.
//
// Package desired has these groups, in etcd: what a user wants, and which box is the root of each.
// A request of a user changes what is wanted, and waits for the root's report (request.go). Each
// box hears of every change. It claims the groups whose sources are attached to it, sets them up,
// changes them, and ends those that it is to carry no longer (carry.go). Which groups have to be
// looked at stands in work.go. A box that takes a group over needs the state of the members, which
// the root stores in etcd (members.go).
//
//	shared.go    what the package needs of others, and what it knows of groups; run.go, the loop
//	report.go    how the root says that a group is, and what other boxes show of it
//	standby.go   groups that go with an address from box to box
//	away.go      whether etcd answers
//
// The package sets groups up by package branches alone, as if a user had asked this box for them.
package shared
