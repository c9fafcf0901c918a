// Package netns gives tests and benchmarks network namespaces with veth pairs between them, and takes them away again.
//
// A namespace is visible to "ip netns" as rc<program><pid>-<n> (rcxsk4711-1), so a person can enter one while a test
// hangs and can delete what a killed run left behind. The next run does that by itself: creating the first namespace of
// a process removes those whose process is gone.
//
// What it never does: touch the namespace the program started in, start or end a process it was not asked to, or
// decide what runs inside. Programs need CAP_SYS_ADMIN and CAP_NET_ADMIN; a test without them skips.
//
// Start reading at New, then [NS.Do] and Veth:
//
//	a, b := netns.New(t), netns.New(t)
//	left, right := netns.Veth(t, a, "p0", b, "p1", netns.VethOptions{MTU: 9000, Queues: 2})
//	err := a.Do(func() error { return bindTo(left.Index) })
package netns
