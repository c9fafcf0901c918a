// Package netns makes network namespaces with veth pairs between them, for tests and measurements,
// and removes them again.
//
// "ip netns" shows a namespace as rc<program><pid>-<n> (rcxsk4711-1), so a person can enter it
// while a test hangs. A test that is interrupted removes its namespaces and ends what runs inside.
// A run that was killed leaves them behind; the next program that creates a namespace removes those
// whose process no longer exists.
//
// The package does not touch the namespace in which the program started. Programs need
// CAP_SYS_ADMIN and CAP_NET_ADMIN; without them a test is skipped.
//
// Read New first, then [NS.Do] and Veth:
//
//	a, b := netns.New(t), netns.New(t)
//	left, right := netns.Veth(t, a, "p0", b, "p1", netns.VethOptions{MTU: 9000, Queues: 2})
//	err := a.Do(func() error { return bindTo(left.Index) })
package netns
