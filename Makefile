# make builds rocastd, rocast and rocast-edge into build/; make help lists the other targets.
#
# Targets that need packages install the missing ones with apt-get, if they run as root.

SHELL       := /bin/bash
.SHELLFLAGS := -o pipefail -c

GO      ?= go
BUILD   := build
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS := -s -w -X github.com/rocast/rocast/ctl/version.Version=$(VERSION) -X github.com/rocast/rocast/ctl/version.Commit=$(COMMIT)

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
DEADCODE    := golang.org/x/tools/cmd/deadcode@v0.52.0
DUPL        := github.com/mibk/dupl@v1.1.0
# A build tag of the tree: lint also reads the files that are compiled only under it. It reads those
# of rocast-cp that need a C compiler by their own tag, librocast.
TAGS        := softroce

.PHONY: all build cpus arm64 package demo demo-rxe demo-tree demo-edge demo-cp consensus storage test race bench bench-apps generate lint softroce perftest-options operate-story watch sim matrix sim-scale model fuzz mutants install clean help

all: build

# Everything is compiled one way, tests too, so that Go's cache has each package once: static, and
# the same bytes wherever the tree lies. No path, no time and no C compiler goes in.
export CGO_ENABLED := 0
export GOFLAGS     := $(filter-out -trimpath -buildvcs=%,$(GOFLAGS)) -trimpath -buildvcs=false

# What is installed: go.mod alone says which versions.
COMPILE := GOWORK=off $(GO) build -ldflags '$(LDFLAGS)'
build: ## rocastd, rocast and rocast-edge into build/; rocast-cp that copies is in the package librocast
	$(COMPILE) -o $(BUILD)/ ./cmd/...

# Boxes and hosts may have other CPUs than this machine: servers and DPUs with arm64.
CPUS := amd64 arm64
cpus: ## what make build makes, for each CPU that has packages, into build/cpus
	rm -rf $(BUILD)/cpus
	for arch in $(CPUS); do GOARCH=$$arch $(COMPILE) -o $(BUILD)/cpus/$$arch/ ./cmd/... || exit 1; done

# QEMU emulates no BPF: the packages here do without, and bpf itself is tested in guests. The tests
# of librocast that are left out need the sanitizer of threads, or are too slow to be emulated.
ARM64_COMPILER := aarch64-linux-gnu-gcc
arm64: ## the data path, rocast-edge and librocast as programs for arm64, tested under QEMU
	@scripts/need qemu-aarch64-static:qemu-user-static
	GOARCH=arm64 $(GO) test -count=1 -short -exec qemu-aarch64-static ./cmd/rocast-edge/... ./roce/... ./mft ./feedback ./dataplane ./client
	@if command -v $(ARM64_COMPILER) >/dev/null && [ -e /usr/lib/aarch64-linux-gnu/libibverbs.so ]; then \
		ASAN_OPTIONS=detect_leaks=0 $(GO) test -count=1 -timeout 30m ./test/librocast -run 'Answers|Endpoints|Questions|Watches|Single|Source|Several' \
			-cc $(ARM64_COMPILER) -emulator 'qemu-aarch64-static -L /usr/aarch64-linux-gnu'; \
	else \
		echo 'librocast is left out: run dpkg --add-architecture arm64, and install gcc-aarch64-linux-gnu and libibverbs-dev:arm64'; \
	fi

package: build cpus ## .deb and .rpm into build/packages
	@scripts/need gcc:gcc
	@scripts/need /usr/lib/$$(cc -dumpmachine)/libibverbs.so:libibverbs-dev
	@packaging/build $(BUILD) $(VERSION) $(COMMIT)

demo: build ## reliable multicast on this machine: one source, three receivers, lost packets
	@scripts/need ip:iproute2 ping:iputils-ping ethtool:ethtool
	$(GO) build -o $(BUILD)/demo ./demo
	$(BUILD)/demo -bin $(BUILD)

# On this machine if its kernel can hold the hosts, which Linux can from 7.1 on. Otherwise
# in a virtual machine with the newest kernel of stable-backports.
demo-rxe: build ## real RDMA hosts on one machine: ib_write_bw -R from one to three, a cut cable, and what the box says
	@scripts/need ip:iproute2 rdma:iproute2 ethtool:ethtool gcc:gcc
	$(COMPILE) -o $(BUILD)/demo-rxe ./demo/rxe
	@if $(BUILD)/demo-rxe -probe; then \
		scripts/need ib_write_bw:perftest && $(BUILD)/demo-rxe -bin $(BUILD); \
	else \
		test/softroce/setup.sh newest && $(GO) build -o $(BUILD)/demorxe ./test/softroce/demorxe && $(BUILD)/demorxe -bin $(BUILD); \
	fi

demo-tree: build ## a group over three boxes on this machine; one of them is killed in the middle
	@scripts/need ip:iproute2 ethtool:ethtool
	$(GO) build -o $(BUILD)/demo-tree ./demo/tree
	$(BUILD)/demo-tree -bin $(BUILD)

demo-edge: build ## shared copies on this machine: a box with one port, a switch, eight receivers with edges; one of these is killed
	@scripts/need ip:iproute2 ethtool:ethtool
	$(GO) build -o $(BUILD)/demo-edge ./demo/edge
	$(BUILD)/demo-edge -bin $(BUILD)

demo-cp: build ## rocast-cp on this machine: a directory to three hosts by one group; one is killed, and gets the rest with --resume
	@scripts/need ip:iproute2 ethtool:ethtool
	$(GO) build -o $(BUILD)/demo-cp ./demo/cp
	$(BUILD)/demo-cp -bin $(BUILD)

consensus: build ## leaders write a log to replicas, and everything crashes; entries per second beside a leader that sends to each; SHORT=1
	@scripts/need ip:iproute2 tc:iproute2 ethtool:ethtool
	$(GO) build -o $(BUILD)/ ./bench/consensus
	$(BUILD)/consensus -bin $(BUILD) -figures $(BUILD)/consensus.json $(if $(SHORT),-short)

storage: build ## blocks on the disks of three replicas, one of which loses its power; blocks per second beside three unicasts; SHORT=1
	@scripts/need ip:iproute2 tc:iproute2 ethtool:ethtool
	$(GO) build -o $(BUILD)/ ./bench/storage
	$(BUILD)/storage -bin $(BUILD) -figures $(BUILD)/storage.json $(if $(SHORT),-short)

# Any user may run it, as often as files are saved: no root, no package to install.
.PHONY: check
check: ## what needs no root, in 70 s once it is compiled: format, vet, staticcheck, tests, the everyday model
	@scripts/clean 'run gofmt -w on these' gofmt -l $$(git ls-files '*.go')
	$(GO) vet -tags $(TAGS) work
	$(GO) run $(STATICCHECK) -tags $(TAGS) work
	@scripts/gotest -short $$(scripts/rootless)
	@mkdir -p $(BUILD)
	$(GO) run ./verify/model/rocmodel -everyday >$(BUILD)/model.txt || { tail -50 $(BUILD)/model.txt; exit 1; }

test: ## every test that this machine allows, as root; prints which it left out and why
	@[ "$$(id -u)" = 0 ] || echo 'make test needs root: without it every test is left out that makes a network namespace; make check needs none' >&2
	@scripts/need tshark:tshark $(COPY_NEEDS) $(WHEEL_NEEDS) $(INFO)/python3-venv.list:python3-venv || true
	@scripts/need ip:iproute2 ping:iputils-ping ethtool:ethtool gcc:gcc etcd:etcd-server
	@scripts/gotest work

# SHORT=1 leaves out long tests of one thread, and packages that scripts/raced does not name: so
# does .ci/run. All packages are compiled before, because the hosts of some tests have timeouts.
race: export CGO_ENABLED := 1
race: ## the tests under the race detector; SHORT=1: where goroutines are started
	@scripts/need ip:iproute2 ping:iputils-ping ethtool:ethtool gcc:gcc etcd:etcd-server
	@packages=$$($(if $(SHORT),scripts/raced,echo work)) && $(GO) list -race -test -export -deps $$packages >/dev/null && \
		scripts/gotest -race $(if $(SHORT),-short) $$packages

# Needs a quiet machine with two CPUs. The full form takes forty minutes. Whatever forwarder cannot
# be installed is left out.
bench: build ## rocast compared with other forwarders, and what each hot function costs; SHORT=1: three minutes
	@scripts/need ip:iproute2 bridge:iproute2 tc:iproute2 ethtool:ethtool gcc:gcc
	@scripts/need ovs-vswitchd:openvswitch-switch || true
	@mkdir -p $(BUILD)/bench
	$(GO) test -run '^$$' -bench . -skip 'Memory|Load' -benchmem -benchtime 200ms -count $(if $(SHORT),1,6) \
		./roce ./feedback ./mft ./dataplane | tee $(BUILD)/bench/micro.txt
	$(GO) build -o $(BUILD)/ ./bench/rocbench
	$(BUILD)/rocbench -bin $(BUILD) -out $(BUILD)/bench $(if $(SHORT),-short)

bench-apps: build ## the papers' tables: WRITEs, broadcast (also behind one port), consensus, storage, loss, files; SHORT=1; ONLY=iops,loss: these sections; UPDATE=1 writes docs/evaluation.md, or these sections of it
	@scripts/need ip:iproute2 bridge:iproute2 tc:iproute2 ethtool:ethtool
	@scripts/need $(COPY_NEEDS) || true
	$(GO) build -o $(BUILD)/ ./bench/rocapps ./bench/consensus ./bench/storage
	$(BUILD)/rocapps -bin $(BUILD) -out $(BUILD)/bench-apps $(if $(SHORT),-short) $(if $(ONLY),-only $(ONLY)) $(if $(UPDATE),-page docs)

# The virtual machines run Debian's kernels 6.1 and 6.12. SHORT=1 is one kernel and the stories that
# say most. ENGINE=afxdp keeps the box's kernel from carrying packets. REPAIR=off leaves losses to
# the source in all stories that do not name a policy. KERNEL=7.3 plays the stories on hosts with
# this kernel only, also one of stable-backports, and HOSTS=13 on hosts with the user space of
# Debian 13: perftest 25.01 and rdma-core 56. ONE=1 plays them in one machine with the newest
# kernel, which holds the box and all hosts.
ENGINE ?= auto
REPAIR ?= local
CHOSEN := $(HOSTS)$(KERNEL)
softroce: ## real Soft-RoCE hosts in virtual machines, two kernels; SHORT=1: one kernel, few stories; HOSTS=13, KERNEL=7.3: these hosts; ONE=1: all in one machine
ifdef ONE
	@scripts/need gcc:gcc
	@test/softroce/setup.sh newest $(HOSTS:%=hosts-%)
	$(GO) test -tags softroce -count=1 -timeout 90m -v $(if $(SHORT),-short) -run TestOneMachine ./test/softroce/ -engine $(ENGINE) -repair $(REPAIR) $(HOSTS:%=-hosts %)
else
	@scripts/need gcc:gcc
	@test/softroce/setup.sh $(if $(CHOSEN),$(or $(KERNEL),6.1 6.12) $(HOSTS:%=hosts-%))
	$(if $(SHORT),,@test/softroce/setup.sh python$(HOSTS:%=-%))
	$(GO) test -tags softroce -count=1 -timeout 150m -v $(if $(SHORT),-short -run TestStories,$(if $(CHOSEN),-run 'TestLab|TestStories|TestPackages',-skip 'TestMPI|TestOneMachine|TestPerftestOptions')) \
		./test/softroce/ -engine $(ENGINE) -repair $(REPAIR) $(KERNEL:%=-kernel %) $(HOSTS:%=-hosts %)
	$(if $(SHORT)$(CHOSEN),,test/softroce/setup.sh newest && $(GO) test -tags softroce -count=1 -timeout 20m -v ./test/softroce/demorxe)
	$(if $(SHORT)$(CHOSEN),,$(MAKE) softroce ONE=1)
endif

perftest-options: ## what each option of perftest does to a group, on hosts of Debian 13 with the newest kernel; UPDATE=1 writes docs/operate.md
	@scripts/need gcc:gcc
	@test/softroce/setup.sh newest hosts-13
	$(GO) test -tags softroce -count=1 -timeout 150m -v -run TestPerftestOptions ./test/softroce/ -kernel newest -hosts 13 -engine $(ENGINE) $(if $(UPDATE),-update)

INFO        := /var/lib/dpkg/info
# The programs that rocast-cp is measured beside.
COPY_NEEDS  := rsync:rsync nc:netcat-openbsd uftp:uftp udp-sender:udpcast
WHEEL_NEEDS := /usr/bin/python3:python3 $(INFO)/python3-pip.list:python3-pip $(INFO)/python3-setuptools.list:python3-setuptools $(INFO)/python3-wheel.list:python3-wheel
.PHONY: wheel
wheel: ## the package rocast for Python, as a wheel, into build/packages
	@scripts/need $(WHEEL_NEEDS)
	@packaging/wheel $(BUILD) $(VERSION) $(COMMIT)

.PHONY: mpi mpi-library
mpi-library: ## librocast-mpi for Open MPI and for MPICH into build/, and as .deb into build/packages
	@scripts/need gcc:gcc /usr/include/infiniband/verbs.h:libibverbs-dev mpicc.openmpi:libopenmpi-dev mpicc.mpich:libmpich-dev
	@packaging/librocast-mpi $(BUILD) $(VERSION) $(COMMIT)

# First on this machine with a stand-in for librocast, then on four virtual machines. SHORT=1 is one
# kernel. HOSTS=13 is the user space of Debian 13, whose Open MPI is 5.0.
mpi: ## MPI_Bcast by groups, with Open MPI and MPICH, beside their own broadcasts
	@scripts/need gcc:gcc mpicc.openmpi:libopenmpi-dev mpirun.openmpi:openmpi-bin mpicc.mpich:libmpich-dev mpiexec.hydra:mpich
	@test/softroce/setup.sh 6.12 $(if $(SHORT),,6.1) $(HOSTS:%=hosts-%) mpi$(HOSTS:%=-%)
	$(GO) test -count=1 ./test/mpi -installed
	$(GO) test -tags softroce -count=1 -timeout 90m -v $(if $(SHORT),-short) -run TestMPI ./test/softroce/ -engine $(ENGINE) $(HOSTS:%=-hosts %)

operate-story: ## the session of docs/operate.md, in a fresh Debian 12; UPDATE=1 writes it into the page
	@test/softroce/setup.sh 6.1 bookworm
	$(GO) test -tags softroce -count=1 -timeout 20m -v -run TestOperate ./test/softroce/ $(if $(UPDATE),-update)

watch: ## what an operator sees of a cut cable: the alert rules in a real Prometheus, the page in a real browser; UPDATE=1 writes docs/troubleshoot.md
	@scripts/need ip:iproute2 ethtool:ethtool prometheus:prometheus chromium:chromium
	$(GO) test -count=1 -v ./test/watch -installed $(if $(UPDATE),-update)

SEEDS ?= 20000
FROM  ?= 0
sim: ## SEEDS simulated runs from seed FROM on, and a tenth as many through trees of boxes; REPLAY=n replays seed n and writes its frames as pcapng
	@mkdir -p $(BUILD)
	$(GO) build -o $(BUILD)/rocsim ./verify/sim/rocsim
	$(BUILD)/rocsim $(if $(REPLAY),-replay $(REPLAY),-seeds $(SEEDS) -from $(FROM)) -out $(BUILD)
	$(if $(REPLAY),,$(BUILD)/rocsim -tree -seeds $$(($(SEEDS) / 10 + 1)) -from $(FROM))

# SEED chooses the cells and their runs, RUNS how many simulated runs a cell has, CELLS how many
# cells run in namespaces; ONLY='event=kill ack=quorum' leaves cells with these values;
# IN=simulation or IN=namespaces is one half; CELL='...' IN=... SEED=n runs one cell again.
SEED  ?= 1
RUNS  ?= 20
CELLS ?= 20
matrix: ## each pair of what a group can be, and each three with an event; some on real daemons; SEED, RUNS, CELLS, ONLY, IN, CELL
ifneq ($(IN),namespaces)
	@mkdir -p $(BUILD)
	$(GO) build -o $(BUILD)/rocsim ./verify/sim/rocsim
	$(BUILD)/rocsim -from $(SEED) $(if $(CELL),-cell '$(CELL)',-matrix -seeds $(RUNS) -only '$(ONLY)')
endif
ifneq ($(IN),simulation)
	@scripts/need ip:iproute2 ethtool:ethtool etcd:etcd-server
	$(GO) test -count=1 -timeout 60m ./test/matrix -seed $(SEED) $(if $(CELL),-cell '$(CELL)',-cells $(CELLS) -only '$(ONLY)')
endif

# Full, it takes minutes on one core and 1 GiB.
sim-scale: ## the papers' networks of 1,024 and 16,384 hosts in simulation, with plots; SHORT=1: under a minute
	@mkdir -p $(BUILD)
	$(GO) build -o $(BUILD)/ ./bench/scale/rocscale
	$(BUILD)/rocscale -out $(BUILD)/sim-scale $(if $(SHORT),-short)

INPUTS ?= 200000
fuzz: ## every fuzz target, on INPUTS inputs each
	@scripts/fuzz $(INPUTS)

# The thorough worlds take minutes and some gigabytes; the everyday ones, which make test searches
# too, take seconds.
model: ## every state that four packets and a few mishaps can get into; EVERYDAY=1: only small worlds
	$(GO) run ./verify/model/rocmodel $(if $(EVERYDAY),-everyday)

# GENERATED=all, or rooms or files separated by commas, tries generated mutants instead of the
# rules; GENERATED=swept the rooms in which none survives; SAMPLE=99 takes so many.
mutants: ## breaks one rule of merging at a time; a test has to notice each; GENERATED=all: operators and statements
	@scripts/need clang:clang llvm-strip:llvm /usr/include/bpf/bpf_helpers.h:libbpf-dev /usr/include/linux/bpf.h:linux-libc-dev
	$(GO) run ./verify/mutants $(if $(GENERATED),-generated $(GENERATED) $(if $(SAMPLE),-sample $(SAMPLE)))

generate: ## compile the XDP programs; git diff must then be empty
	@scripts/need clang:clang llvm-strip:llvm /usr/include/bpf/bpf_helpers.h:libbpf-dev /usr/include/linux/bpf.h:linux-libc-dev
	$(GO) generate work

# One package at a time: several write docs/reference.md. What differs from run to run is recorded
# by targets of its own: make operate-story UPDATE=1 writes docs/operate.md, make watch UPDATE=1
# docs/troubleshoot.md, make bench-apps UPDATE=1 docs/evaluation.md.
.PHONY: update
update: ## writes what is generated into docs and testdata: tables, golden files, the API's description, outcomes of stories; read the diff
	$(GO) test -count=1 -p 1 -run 'Reference|Description' ./cmd/rocastd ./ctl/cm ./ctl/config ./ctl/groupfile ./ctl/metrics ./ctl/openapi ./test/matrix -update
	$(GO) test -count=1 -p 1 ./cmd/rocast -update
	$(GO) test -count=1 -p 1 -run TestStories ./feedback -rewrite
	$(GO) test -count=1 -p 1 ./bench/report -rewrite

lint: ## gofmt, vet, staticcheck, unreachable functions, repeated code
	@scripts/clean 'run gofmt -w on these' gofmt -l $$(git ls-files '*.go')
	$(GO) vet -tags $(TAGS) work
	$(GO) run $(STATICCHECK) -tags $(TAGS) work
	@scripts/need gcc:gcc
	CGO_ENABLED=1 $(GO) vet -tags librocast ./cmd/rocast-cp
	CGO_ENABLED=1 $(GO) run $(STATICCHECK) -tags librocast ./cmd/rocast-cp
	@scripts/clean 'go mod tidy changes these' scripts/tidy
	@scripts/clean 'nothing calls these, not even a test: delete them' $(GO) run $(DEADCODE) -test -tags $(TAGS) work
	@CGO_ENABLED=1 scripts/clean 'only tests and proofs call these: they belong there' scripts/shipped $(GO) run $(DEADCODE) -tags librocast ./cmd/...
	@scripts/clean 'these read alike: give them one function' scripts/repeated $(GO) run $(DUPL)

# Builds nothing: sudo has no Go in its PATH, and what root builds its user cannot build again.
install: ## what make built, the unit and an example configuration under DESTDIR; an existing configuration stays
	@test -x $(BUILD)/rocastd -a -x $(BUILD)/rocast || { echo 'nothing is built yet: run make first, then sudo make install' >&2; exit 1; }
	install -Dm755 $(BUILD)/rocastd $(DESTDIR)/usr/sbin/rocastd
	install -Dm755 $(BUILD)/rocast $(DESTDIR)/usr/bin/rocast
	install -Dm644 packaging/rocastd.service $(DESTDIR)/usr/lib/systemd/system/rocastd.service
	install -Dm644 packaging/rocast.sysusers $(DESTDIR)/usr/lib/sysusers.d/rocast.conf
	install -Dm644 packaging/rocastd.yaml $(DESTDIR)/usr/share/doc/rocast/rocastd.yaml
	test -e $(DESTDIR)/etc/rocast/rocastd.yaml || install -Dm644 packaging/rocastd.yaml $(DESTDIR)/etc/rocast/rocastd.yaml
	test -n "$(DESTDIR)" || systemd-sysusers rocast.conf

.PHONY: install-edge
install-edge: ## what a host with an edge has of it, under DESTDIR; an existing configuration stays
	@test -x $(BUILD)/rocast-edge || { echo 'nothing is built yet: run make first, then sudo make install-edge' >&2; exit 1; }
	install -Dm755 $(BUILD)/rocast-edge $(DESTDIR)/usr/sbin/rocast-edge
	install -Dm644 packaging/rocast-edge.service $(DESTDIR)/usr/lib/systemd/system/rocast-edge.service
	test -e $(DESTDIR)/etc/rocast/edge.conf || install -Dm644 packaging/edge.conf $(DESTDIR)/etc/rocast/edge.conf

clean: ## removes build/
	rm -rf $(BUILD)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.* ## /\1\t/p' Makefile | expand -t 12
