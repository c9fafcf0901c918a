#!/bin/sh
# Fills a cache directory with the parts of the lab's guests: Debian kernels with rdma_rxe, and the
# user space that runs on them. These parts are not installed on this machine. QEMU, a C compiler
# and two decompressors are installed.
#
#   setup.sh            prepares kernels 6.1 and 6.12, and 6.18 if the apt sources have it (those of
#                       trixie-backports do); this is quick if they are in the cache
#   setup.sh 6.1        prepares only this series
#
# The cache is $ROCAST_CACHE, or $XDG_CACHE_HOME/rocast, or ~/.cache/rocast. Delete it to fetch
# everything again.
set -eu

: "${ROCAST_CACHE:=${XDG_CACHE_HOME:-$HOME/.cache}/rocast}"
cache=$ROCAST_CACHE/softroce
[ $# -gt 0 ] || set -- 6.1 6.12 6.18

host_tools="qemu-system-x86_64 gcc xz zstd flock"
host_packages="qemu-system-x86 gcc libc6-dev linux-libc-dev xz-utils zstd util-linux"

# The programs that stories run inside a guest. verbs/ and rdmacm/ are built with the -dev packages,
# against the same libraries.
guest_packages="busybox-static dash iproute2 ethtool perftest ibverbs-providers ibverbs-utils rdmacm-utils libibverbs-dev librdmacm-dev"

# The parts of a kernel package that have rdma_rxe, virtio, the other NICs and virtual devices of a
# guest that is the box, and their dependencies. A * of tar matches slashes too.
module_paths="arch/* crypto/* lib/* net/* fs/configfs/* drivers/infiniband/core/* drivers/infiniband/sw/*
	drivers/virtio/* drivers/char/* drivers/net/virtio_net* drivers/net/net_failover* drivers/net/vmxnet3/*
	drivers/net/ethernet/intel/e1000e/* drivers/net/veth* drivers/net/tun* drivers/net/ifb* drivers/ptp/* drivers/pps/*"

say() { echo "softroce setup: $*" >&2; }

missing_tools() {
	for tool in $host_tools; do command -v "$tool" >/dev/null || return 0; done
	return 1
}

apt_update_once() {
	[ -z "${updated:-}" ] || return 0
	apt-get update -q >&2
	updated=yes
}

install_host_tools() {
	missing_tools || return 0
	say "installing $host_packages"
	apt_update_once
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $host_packages >&2
}

# closure prints the arguments and the packages that they need, without virtual packages.
closure() {
	apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances \
		"$@" | grep -E '^[a-z0-9]' | grep -v ':' | sort -u
}

# downloadable prints the packages that have an installation candidate.
downloadable() {
	xargs apt-cache policy | awk '/^[a-z0-9].*:$/ { name = substr($1, 1, length($1) - 1) } /Candidate: [0-9]/ { print name }'
}

# complete says whether a directory has been filled from this list of packages or paths. An older
# version of this script may have filled the directory from another list.
complete() {
	[ "$(cat "$1/.complete" 2>/dev/null || echo none)" = "$2" ]
}

# download fetches packages into a directory.
download() {
	(cd "$1" && shift && apt-get download -q -o APT::Sandbox::User=root "$@" >/dev/null)
}

unpack_user_space() {
	complete "$cache/root" "$guest_packages" && return
	say "fetching the guests' user space: $guest_packages"
	apt_update_once
	rm -rf "$cache/root" "$cache/debs"
	mkdir -p "$cache/root" "$cache/debs"
	packages=$(closure $guest_packages | downloadable)
	download "$cache/debs" $packages
	for deb in "$cache"/debs/*.deb; do dpkg-deb -x "$deb" "$cache/root"; done
	rm -rf "$cache/debs"
	echo "$guest_packages" >"$cache/root/.complete"
}

# newest_image prints the newest signed generic kernel package of a series:
# linux-image-6.1.0-54-amd64.
newest_image() {
	series=$(echo "$1" | sed 's/\./\\./g')
	apt-cache pkgnames "linux-image-$1." | grep -E "^linux-image-$series\.[0-9]+(-[0-9]+|\+deb[0-9]+(\+[0-9]+)?)-amd64\$" |
		sort -V | tail -n 1
}

unpack_kernel() {
	dir=$cache/kernel/$1
	complete "$dir" "$module_paths" && return
	apt_update_once
	image=$(newest_image "$1")
	if [ -z "$image" ]; then
		say "the apt sources of this machine have no kernel $1; its stories will be skipped"
		return
	fi
	say "fetching $image"
	rm -rf "$dir"
	mkdir -p "$dir"
	download "$dir" "$image"
	deb=$(echo "$dir"/*.deb)
	patterns="*/boot/vmlinuz-* */modules.builtin"
	set -f # tar expands the patterns, not the shell
	for path in $module_paths; do patterns="$patterns */kernel/$path"; done
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$dir" --wildcards $patterns
	set +f
	rm "$dir"/*.deb
	echo "$module_paths" >"$dir/.complete"
}

mkdir -p "$cache"
install_host_tools
exec 9>"$cache/.lock"
flock 9
unpack_user_space
for series in "$@"; do unpack_kernel "$series"; done
say "ready in $cache"
