// Package ctl is control: it keeps the groups that users asked for and makes the box follow them.
//
// [Controller] wires the rooms below, and takes the requests: a group file is checked here, other
// boxes are asked for their parts, and then the groups (ctl/groups) store the group, publish it to
// the data path and add its IP to the box. After a restart they set everything up again. When the
// kernel reports a new path to a host, the Controller plans the groups with a member there again;
// other groups are not touched.
//
//	file ─▶ groupfile ─▶ refuse.go ─▶ groups.Add: store ─▶ plan ─▶ Switch.Add ─▶ address
//	         refused      refused                  undone           undone        undone
//
// An update may change the receivers of a running group (update.go). The state of the receivers,
// such as the PSN where a receiver joined or that a receiver was evicted, is stored beside the file
// (chronicle), because after a crash the data path has lost it.
//
// The files, by what they are about:
//
//	switch.go        the interfaces to the data path, the next hops and the addresses
//	controller.go    what a Controller has; run.go, its start, run and end
//	refuse.go        the checks of a new group or member
//	create.go        create and remove a group; update.go; restore.go
//	regions.go       memory of a running group; table.go, where the memory is a table
//	read.go          what the API reads; pulse.go, whether the forwarding threads work
//	serving.go       what services at group IPs (ctl/services) need of control
//	hosting.go       what groups that hosts make (ctl/hosts) need of control
//	edge.go          the questions of hosts' edges
//
// A group may span several boxes (docs/tree.md). To this box, the boxes behind
// it are receivers, and an upper box is the source: a member that is behind a neighbour is replaced
// in the group's file by the link to the neighbour, and nothing below plan knows of trees.
//
// Each of the packages below can be read alone. None of them knows one that stands above it here.
// The packages server (the socket of the API) and metrics know this one.
//
//	shared             groups that all boxes share, and those that go with an address
//	desired            what etcd has of them
//	hosts              groups that programs on hosts make
//	services           groups for programs that know nothing of groups: perftest and cm, by groupip
//	branches           the parts of groups that other boxes carry, by neighbour and tree
//	follow             groups follow the links, next hops and addresses of the box
//	watch              what is seen of groups that run: whether they get on, who is out, who is
//	                   the source
//	view               what the API shows of them
//	edges              which receivers share a leg, and what their edges are to map
//	groups             the groups of this box: what readers see of each, one change at a time, what is
//	                   stored and published
//	plan               what is published of a group; ports, nexthop: how hosts are reached
//	chronicle          what happened to receivers
//	store, address     the state directory; the groups' IPs on the box
//	groupfile, config  the files that users write
//	api                the messages on the socket
//
// # Events and goodput
//
// Control records an event where it notices what has happened, next to the log line. Events go into
// a ring (events), which GET /v1/events reads. A reader names the last event that it has, and the
// run of the daemon in which it got that event. The answer may wait for the next event. What a
// restart needs is in the chronicle of each group, not in the ring.
//
// Control samples each group's merged PSN (ctl/watch/progress.go). A group is degraded if packets
// were outstanding at both ends of each sample window for degraded-after, and the rate was less
// than degraded-below of the best remembered rate. The best rate is forgotten with a half-life of
// about a minute of work. A group that could not be created at all its boxes is degraded too. So is
// a group with a member in trouble (ctl/view/trouble.go); but it goes on (goesOn), so no program
// leaves it for that reason. Only Summary of ctl/view decides in which state a group is.
//
// The package never touches a frame, and never writes an R_Key to a log.
//
// Read first: the packages groups and view, then create.go and branches/change.go.
package ctl
