package testlab

// OnlyDevice defines the shell function only_device. It hides all RDMA devices from the caller
// and what the caller starts, but for the one that its argument names. A host that is a real
// machine has no other one, but the kernel shows every network namespace the devices of all, and
// perftest takes the first. Programs open the nodes of /dev/infiniband, so that has only this
// device's, as in a container. The caller has a mount namespace of its own.
const OnlyDevice = `only_device() {
	for d in /sys/class/infiniband_verbs/uverbs*; do
		[ "$(cat "$d/ibdev")" != "$1" ] || verbs=$d
	done
	mount -t tmpfs none /dev/infiniband
	numbers=$(cat "$verbs/dev")
	mknod "/dev/infiniband/${verbs##*/}" c "${numbers%:*}" "${numbers#*:}"
	numbers=$(cat /sys/class/misc/rdma_cm/dev)
	mknod /dev/infiniband/rdma_cm c "${numbers%:*}" "${numbers#*:}"
}
`
