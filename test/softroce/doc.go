// Package softroce is a lab of virtual machines whose kernels speak RoCEv2 in software (rdma_rxe), around a box that is
// a network namespace: real requesters and responders, unmodified programs, for what runs in the box.
//
//	guest 1    guest 2    guest 3        QEMU, Debian's kernel, an initramfs, our agent as process 1
//	   |          |          |           one wire.Wire each: seeded loss, duplicates, capture
//	 rcp1       rcp2       rcp3          taps
//	[     network namespace: the box ]   a plain bridge, or rocastd
//
// Guest i is 10.77.0.i/24 and fd77::i/64 on eth0 with the RDMA device rxe0; the box is 10.77.0.254, also the default
// route. A guest is told what to do over a virtio serial port (package control), so its NIC carries only what the story
// sends. Booting takes seconds: stories share the guests of a Lab and leave them as they found them.
//
// What it never does: fetch anything (setup.sh does), need the network of the machine it runs on, or leave something
// behind: QEMU and what runs in the box die with the process, taps with their file, and the namespace's name is taken
// away by a watcher that outlives a crash.
//
// Environment: ROCAST_CACHE, see setup.sh. ROCAST_ACCEL=tcg or kvm skips the trial boot that finds out whether KVM
// works here; software emulation always does.
//
// The tests, under the build tag softroce, are of two kinds. TestLab proves the lab over a plain bridge. TestStories is
// rocast in the box, the daemon and the command line as users have them: stories_test.go lists the stories, cast_test.go
// sets up a group and its queue pairs, judge_test.go watches and faults the wires. -short is one kernel and the stories
// that say most; -artifacts keeps every frame of a story that failed.
//
// Start reading at lab.go, then guest.go. verbs.go drives one queue pair by hand, perftest.go the well-known tools.
package softroce
