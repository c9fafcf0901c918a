// Package softroce is a lab of virtual machines whose kernels speak RoCEv2 in software (rdma_rxe).
// They stand around a box, which is a network namespace. So whatever runs in the box meets real
// requesters, real responders and unmodified programs.
//
//	guest 1    guest 2    guest 3        QEMU, Debian's kernel, an initramfs, our agent as process 1
//	   |          |          |           one wire.Wire each: seeded loss, duplicates, capture
//	 rcp1       rcp2       rcp3          taps
//	[     network namespace: the box ]   a plain bridge, or rocastd
//
// The box may be a guest too (BoxGuest). Then its kernel and the drivers of its NICs are those of
// the test, and each wire joins two machines. Or the box is a whole Debian with systemd (System).
//
// From Linux 7.1 on one kernel can be that of all guests, which are namespaces beside the box
// (Config.Here, here.go). Wires, agents and stories are the same. TestOneMachine does this in a
// virtual machine with the newest kernel, in which everything is emulated where there is no KVM:
// there the stories take longer than with a machine for each guest.
//
// Guest i has the addresses 10.77.0.i/24 and fd77::i/64 on eth0, and one RDMA device, rxe0. The box
// is 10.77.0.254, which is also the default route. A guest gets its commands over a virtio serial
// port (package control), so its NIC carries only what the story sends. Booting takes seconds, so
// stories share the guests of a Lab and leave them as they were.
//
// The package never fetches anything (setup.sh does), never needs the network of this machine, and
// leaves nothing behind: QEMU and the processes in the box die with this process, taps disappear
// with their file, and a watcher that survives a crash removes the name of the namespace.
//
// Environment: ROCAST_CACHE, see setup.sh. ROCAST_ACCEL=tcg or ROCAST_ACCEL=kvm skips the trial
// boot that finds out whether KVM works on this machine. Software emulation always works.
//
// The tests have the build tag softroce and are of several kinds. TestLab tests the lab with a
// plain bridge in the box. TestStories runs rocast in the box: the daemon and the command line,
// as users have them. TestBoxKernel and TestBoxNICs have a guest as the box: the first runs the
// tests of packages that use the kernel, the second runs stories with each NIC and each mode of
// a port. TestSystem installs the package into Debian 12 and 13, and kills, upgrades, reboots
// and removes. TestStick has a box with one port, and receivers that share the copies by
// rocast-edge. TestPackages plays what users of librocast install: rocast-cp, and Python with the
// package rocast. TestMPI runs MPI programs on all guests; make mpi prepares and runs it.
// TestPerftestOptions finds out what each option of perftest does to a group, for the table of
// docs/operate.md.
//
// stories_test.go lists the stories, group_test.go sets up a group and its queue pairs, and
// judge_test.go watches the wires and drops frames. notice.go tells what a source noticed by the
// box's fault from what it noticed because its guest got no CPU. -short uses one kernel and the
// stories that cover most. -artifacts keeps every frame of a story that failed.
//
// Start reading at lab.go, then guest.go and boxguest.go. verbs.go drives one queue pair by hand (a
// program in verbs/; that in rdmacm/ connects by librdmacm), and perftest.go runs perftest's tools.
package softroce
