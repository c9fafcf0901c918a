// Package ctl is control: it keeps the groups people asked for and makes the box follow.
//
// [Controller] takes group files, finds the next hops, publishes groups to the data path, makes the box own the groups'
// IPs, keeps the files in the state directory and sets everything up again after a restart. When the kernel says that a
// host is reached differently, the groups it concerns are planned anew; nothing else is touched.
//
//	file ─▶ groupfile ─▶ plan (hops: nexthop) ─▶ Switch.Add ─▶ address ─▶ store
//	         refused          refused               undone      undone    undone: the old state or the new
//
// A running group may change its receivers (update.go). What became of them since, like where one joined or that one was
// evicted, is kept beside the file, because after a crash the data path knows nothing (standing.go, notes.go).
//
// What it is made of lies below, each readable alone: groupfile (what people write), nexthop (how hosts are reached),
// address (whose IPs), store (the state directory), api (what goes over the socket), server (the socket), metrics, perftest
// (groups for unmodified perftest programs; perftest.go gives it what it needs). The package never touches a frame, and
// never writes an R_Key to a log.
//
// Read first: controller.go, then plan.go.
package ctl
