#!/bin/sh
# Fills a cache directory with the parts of the lab's guests: Debian kernels with rdma_rxe, the user
# space that runs on them, and a whole Debian with systemd. These parts are not installed on this
# machine. QEMU, a C compiler, two decompressors and mmdebstrap are installed.
#
#   setup.sh            prepares kernels 6.1 and 6.12, and 6.18 if the apt sources have it (those of
#                       trixie-backports do), and Debian 12 and 13; this is quick if they are in the
#                       cache
#   setup.sh 7.3        prepares only this series, also if only stable-backports have it
#   setup.sh newest     prepares only the newest kernel: that of stable-backports, at the mirror of
#                       this machine's apt sources; if there is none, the newest of these sources
#   setup.sh bookworm   prepares only this release of Debian, for a box with systemd
#   setup.sh hosts-13   prepares only the user space that hosts of Debian 13 have, from the same
#                       mirror; else hosts have that of this machine's apt sources
#   setup.sh mpi        prepares only Open MPI and MPICH, for TestMPI; not prepared by default
#   setup.sh mpi-13     prepares only those of Debian 13, whose Open MPI is 5.0
#   setup.sh python     prepares only Python, for TestPackages; python-13 is that of Debian 13; not
#                       prepared by default
#
# The cache is $ROCAST_CACHE, or $XDG_CACHE_HOME/rocast, or ~/.cache/rocast. Delete it to fetch
# everything again.
set -eu

: "${ROCAST_CACHE:=${XDG_CACHE_HOME:-$HOME/.cache}/rocast}"
cache=$ROCAST_CACHE/softroce
named=yes apt_options=
if [ $# -eq 0 ]; then
	named=
	set -- 6.1 6.12 6.18 bookworm trixie
fi

host_tools="qemu-system-x86_64 gcc xz zstd flock mmdebstrap mkfs.ext4"
host_packages="qemu-system-x86 gcc libc6-dev linux-libc-dev xz-utils zstd util-linux mmdebstrap e2fsprogs debian-archive-keyring"

# The programs that stories run inside a guest. verbs/ and rdmacm/ are built with the -dev packages,
# against the same libraries.
guest_packages="busybox-static dash iproute2 ethtool perftest ibverbs-providers ibverbs-utils rdmacm-utils libibverbs-dev librdmacm-dev"

# What guests of TestMPI have besides: both MPI libraries with their launchers. The headers are
# unpacked without what they depend on, which is mostly Fortran compilers.
mpi_packages="openmpi-bin mpich"
mpi_headers="libopenmpi-dev libmpich-dev"

# What guests of TestPackages have besides.
python_packages="python3"

# The parts of a kernel package that have rdma_rxe, virtio, the other NICs and virtual devices of a
# guest that is the box, and their dependencies. A * of tar matches slashes too.
module_paths="arch/* crypto/* lib/* net/* fs/configfs/* drivers/infiniband/core/* drivers/infiniband/sw/*
	drivers/virtio/* drivers/char/* drivers/net/virtio_net* drivers/net/net_failover* drivers/net/vmxnet3/*
	drivers/net/ethernet/intel/e1000e/* drivers/net/veth* drivers/net/tun* drivers/net/ifb* drivers/net/bonding/* drivers/net/team/* drivers/ptp/* drivers/pps/*"

# What a fresh Debian has beyond the required packages, as far as the stories use it, and the parts
# of its kernel package that a virtual machine without a screen never loads.
system_packages="systemd-sysv,udev,dbus,kmod,iproute2,iputils-ping,procps,sudo,curl,linux-image-amd64"
system_without="drivers/gpu drivers/media drivers/net/wireless sound"

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
	apt-cache $apt_options depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances \
		"$@" | grep -E '^[a-z0-9]' | grep -v ':' | sort -u
}

# downloadable prints the packages that have an installation candidate.
downloadable() {
	xargs apt-cache $apt_options policy | awk '/^[a-z0-9].*:$/ { name = substr($1, 1, length($1) - 1) } /Candidate: [0-9]/ { print name }'
}

# complete says whether a directory has been filled from this list of packages or paths. An older
# version of this script may have filled the directory from another list.
complete() {
	[ "$(cat "$1/.complete" 2>/dev/null || echo none)" = "$2" ]
}

# download fetches packages into a directory.
download() {
	(cd "$1" && shift && apt-get $apt_options download -q -o APT::Sandbox::User=root "$@" >/dev/null)
}

# unpack fills a directory with packages and with the packages that they need. The packages of the
# third argument come without those.
unpack() {
	dir=$1 packages=$2 alone=${3:-}
	complete "$dir" "$packages${alone:+ $alone}" && return
	say "fetching the guests' user space: $packages${alone:+ $alone}"
	apt_update_once
	rm -rf "$dir" "$cache/debs"
	mkdir -p "$dir" "$cache/debs"
	all=$(closure $packages | downloadable)
	download "$cache/debs" $all $alone
	for deb in "$cache"/debs/*.deb; do dpkg-deb -x "$deb" "$dir"; done
	rm -rf "$cache/debs"
	echo "$packages${alone:+ $alone}" >"$dir/.complete"
}

# image_of prints the newest signed generic kernel package of a series: linux-image-6.1.0-54-amd64.
# The series newest is all of them.
image_of() {
	series='[0-9]+\.[0-9]+'
	[ "$1" = newest ] || series=$(echo "$1" | sed 's/\./\\./g')
	apt-cache $apt_options pkgnames "linux-image-" |
		grep -E "^linux-image-$series\.[0-9]+(-[0-9]+|\+deb[0-9]+(\+[0-9]+)?)-amd64\$" | sort -V | tail -n 1
}

# read_suite lets apt read the lists of one suite only, of the mirror of this machine's apt sources,
# as if no package was installed. The lists are in the cache meanwhile.
read_suite() {
	suite=$1
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' | head -n 1)
	keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	[ -n "$mirror" ] && [ -e "$keyring" ] || return 0
	apt=$cache/apt
	mkdir -p "$apt/lists/partial"
	apt_options="-o Dir::Etc::sourcelist=$apt/sources.list -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists=$apt/lists -o Dir::State::status=/dev/null -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root"
	# The second time by the release's own name: a cache before the mirror may have kept an old copy
	# of what it has under the other name.
	for _ in 1 2; do
		echo "deb [signed-by=$keyring] $mirror $suite main" >"$apt/sources.list"
		apt-get $apt_options update -q >&2 || break
		codename=$(apt-get $apt_options indextargets --format '$(CODENAME)' | head -n 1)
		[ "$codename" != "$suite" ] || break
		suite=$codename
	done
}

# read_sources lets apt read the lists of this machine's apt sources again.
read_sources() {
	apt_options=
	rm -rf "$cache/apt"
}

# unpack_release fills a directory, as unpack does, with packages of the release of Debian that its
# name ends with.
unpack_release() {
	dir=$1 packages=$2 alone=${3:-} number=${1##*-}
	complete "$dir" "$packages${alone:+ $alone}" && return
	case $number in
	12) release=bookworm ;;
	13) release=trixie ;;
	*) release= ;;
	esac
	[ -z "$release" ] || read_suite $release
	if [ -z "$apt_options" ] || [ -z "$(echo perftest | downloadable)" ]; then
		say "the mirror has no Debian $number, or cannot be reached; stories of such hosts will fail"
	else
		unpack "$dir" "$packages" "$alone"
	fi
	read_sources
}

# unpack_kernel fills a directory with a kernel. Newer Debian kernels are in several packages.
unpack_kernel() {
	dir=$cache/kernel/$1
	complete "$dir" "$module_paths" && return
	apt_update_once
	image=
	[ "$1" = newest ] || image=$(image_of "$1")
	if [ -z "$image" ] && [ -n "$named" ]; then
		read_suite stable-backports
		image=$(image_of "$1")
	fi
	if [ -z "$image" ]; then
		read_sources
		image=$(image_of "$1")
	fi
	if [ -z "$image" ]; then
		say "neither the apt sources of this machine nor stable-backports have a kernel $1; its stories will be skipped"
		return
	fi
	say "fetching $image"
	rm -rf "$dir"
	mkdir -p "$dir"
	parts=$(apt-cache $apt_options depends "$image" | awk '$1 == "Depends:" && $2 ~ /^linux-(base|binary|modules)-[0-9]/ { print $2 }')
	download "$dir" "$image" $parts
	patterns="*/vmlinuz* */modules.builtin"
	set -f # tar expands the patterns, not the shell
	for path in $module_paths; do patterns="$patterns */kernel/$path"; done
	set +f
	for deb in "$dir"/*.deb; do
		dpkg-deb --fsys-tarfile "$deb"
	done | (set -f && tar -x --ignore-zeros -C "$dir" --wildcards $patterns)
	rm -rf "$dir"/*.deb
	read_sources
	echo "$module_paths" >"$dir/.complete"
}

# unpack_system installs a release of Debian into a directory. Its initrd has only what finds the
# disk: an emulated machine takes long to unpack more.
unpack_system() {
	release=$1 dir=$cache/system/$1
	complete "$dir" "$system_packages $system_without" && return
	say "installing Debian $release into $dir"
	rm -rf "$dir"
	mkdir -p "$dir"
	set -- --include="$system_packages"
	for path in $system_without; do set -- "$@" --dpkgopt="path-exclude=/lib/modules/*/kernel/$path/*"; done
	if ! mmdebstrap --quiet --mode=root --variant=minbase --format=directory "$@" \
		--aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
		--essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d"
			printf "MODULES=list\nCOMPRESS=gzip\n" >"$1/etc/initramfs-tools/conf.d/small"
			printf "virtio_pci\nvirtio_blk\next4\n" >"$1/usr/share/initramfs-tools/modules.d/disk"' \
		"$release" "$dir/root" >&2; then
		rm -rf "$dir"
		say "the mirror has no Debian $release, or cannot be reached; its stories will be skipped"
		return
	fi
	echo "$system_packages $system_without" >"$dir/.complete"
}

mkdir -p "$cache"
install_host_tools
exec 9>"$cache/.lock"
flock 9
unpack "$cache/root" "$guest_packages"
for part in "$@"; do
	case $part in
	hosts-*) unpack_release "$cache/root-${part#hosts-}" "$guest_packages" ;;
	python) unpack "$cache/python" "$python_packages" ;;
	python-*) unpack_release "$cache/$part" "$python_packages" ;;
	[0-9]* | newest) unpack_kernel "$part" ;;
	mpi) unpack "$cache/mpi" "$mpi_packages" "$mpi_headers" ;;
	mpi-*) unpack_release "$cache/$part" "$mpi_packages" "$mpi_headers" ;;
	*) unpack_system "$part" ;;
	esac
done
say "ready in $cache"
