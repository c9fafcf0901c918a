// Package ctl is control: it keeps the groups that users asked for and makes the box follow them.
//
// [Controller] takes group files, finds the next hops, publishes groups to the data path, makes the box own the groups'
// IPs, keeps the files in the state directory and sets everything up again after a restart. When the kernel says that a
// host is reached differently, the groups with a member there are planned anew; nothing else is touched.
//
//	file ─▶ groupfile ─▶ refuse.go ─▶ plan (hops: nexthop) ─▶ Switch.Add ─▶ address ─▶ store
//	         refused      refused                             undone        undone    undone: the old state or the new
//
// A running group may change its receivers (update.go). What happened to its receivers since, such as where one joined or
// that one was evicted, is kept beside the file (chronicle), because after a crash the data path knows nothing.
//
// The files build on each other, from bottom to top:
//
//	switch.go        what is asked of the data path, the next hops and the addresses
//	group.go         one desired group; index.go finds groups by their members
//	publish.go       plan, publish, own and track a group; keep.go keeps its chronicle
//	view.go          groups as the API shows them; stats.go ports and counters
//	refuse.go        what a new group or member is refused for
//	create.go        and remove; update.go; restore.go; helpers.go, the groups of perftest's runs
//	follow.go        links and next hops change; news.go, what the data path tells of members
//	run.go           a Controller's life
//
// The packages below can be read alone: plan, chronicle, ports, groupfile (what users write), nexthop (how hosts are
// reached), address (the groups' IPs on the box), store (the state directory), api (what goes over the socket), server (the
// socket), metrics, config, perftest (groups for unmodified perftest programs).
//
// The package never touches a frame, and never writes an R_Key to a log.
//
// Read first: group.go, then publish.go and create.go.
package ctl
