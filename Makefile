# make builds rocastd and rocast into build/; make help lists the rest.
#
# Targets that need root and packages install what is missing with apt-get.

GO      ?= go
BUILD   := build
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -X github.com/rocast/rocast/ctl/version.Version=$(VERSION)

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
DEADCODE    := golang.org/x/tools/cmd/deadcode@v0.52.0
DUPL        := github.com/mibk/dupl@v1.1.0
# What is compiled only under a build tag is looked at too.
TAGS        := softroce

.PHONY: all build demo test race bench generate lint softroce sim model fuzz mutants install clean help

all: build

build: ## rocastd and rocast into build/
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BUILD)/ ./cmd/...

demo: build ## one source, three receivers, packets lost on the way: the main job for real
	@scripts/need ip:iproute2 ping:iputils-ping ethtool:ethtool
	$(GO) build -o $(BUILD)/demo ./demo
	$(BUILD)/demo -bin $(BUILD)

test: ## every test this machine allows; says what it left out and why
	@scripts/need ip:iproute2 ping:iputils-ping ethtool:ethtool gcc:gcc
	@scripts/gotest ./...

# Every test again under the race detector.
race: ## the same under the race detector
	@scripts/need ip:iproute2 ping:iputils-ping ethtool:ethtool gcc:gcc
	@scripts/gotest -race ./...

bench: build ## what each hot function costs; rocast beside other forwarders
	@scripts/need ip:iproute2 ethtool:ethtool
	@mkdir -p $(BUILD)
	$(GO) test -run '^$$' -bench . -benchmem ./roce ./feedback ./mft ./dataplane | tee $(BUILD)/bench.txt
	$(GO) build -o $(BUILD)/fanout ./bench/fanout
	$(BUILD)/fanout | tee $(BUILD)/fanout.txt

# Real Soft-RoCE hosts: virtual machines of Debian's 6.1 and 6.12 kernels, all stories on both. SHORT=1 is what CI runs.
softroce: ## real Soft-RoCE hosts in virtual machines, two kernels; SHORT=1: what CI runs
	@scripts/need gcc:gcc
	@test/softroce/setup.sh
	$(GO) test -tags softroce -count=1 -timeout 40m -v $(if $(SHORT),-short -run TestStories) ./test/softroce/

# SEEDS simulated runs from seed FROM on; REPLAY=n replays one and writes its pcapng.
SEEDS ?= 20000
FROM  ?= 0
sim: ## SEEDS simulated runs from seed FROM; REPLAY=n replays one and writes its frames
	@mkdir -p $(BUILD)
	$(GO) build -o $(BUILD)/rocsim ./verify/sim/rocsim
	$(BUILD)/rocsim $(if $(REPLAY),-replay $(REPLAY),-seeds $(SEEDS) -from $(FROM)) -out $(BUILD)

# Every fuzz target for FUZZTIME.
FUZZTIME ?= 10s
fuzz: ## every fuzz target for FUZZTIME
	@for p in $$($(GO) list ./...); do for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
		$(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p || exit 1; done; done

# The worlds that are too big for every day: all that can happen to four packets. Minutes, and some gigabytes.
model: ## search every state of small worlds: minutes
	$(GO) run ./verify/model/rocmodel

# Breaks one rule of merging at a time and shows that the tests notice.
mutants: ## break one rule of merging at a time; the tests have to notice
	$(GO) run ./verify/mutants

# Regenerates what is generated; git diff must stay empty.
generate: ## what is generated, anew; git diff must stay empty
	@scripts/need clang:clang llvm-strip:llvm /usr/include/bpf/bpf_helpers.h:libbpf-dev /usr/include/linux/bpf.h:linux-libc-dev
	$(GO) generate ./...

lint: ## gofmt, vet, staticcheck, unreachable functions, repeated code
	@scripts/clean 'run gofmt -w on these' gofmt -l $$(git ls-files '*.go')
	$(GO) vet -tags $(TAGS) ./...
	$(GO) run $(STATICCHECK) -tags $(TAGS) ./...
	@scripts/clean 'nothing calls these, not even a test: delete them' $(GO) run $(DEADCODE) -test -tags $(TAGS) ./...
	@scripts/clean 'these read alike: give them one function' scripts/repeated $(GO) run $(DUPL)

# Builds nothing: sudo has no Go in its PATH, and what root builds its user cannot build again.
install: ## what make built, the unit and an example configuration under DESTDIR; an existing configuration stays
	@test -x $(BUILD)/rocastd -a -x $(BUILD)/rocast || { echo 'nothing is built yet: run make first, then sudo make install' >&2; exit 1; }
	install -Dm755 $(BUILD)/rocastd $(DESTDIR)/usr/sbin/rocastd
	install -Dm755 $(BUILD)/rocast $(DESTDIR)/usr/bin/rocast
	install -Dm644 packaging/rocastd.service $(DESTDIR)/usr/lib/systemd/system/rocastd.service
	install -Dm644 packaging/rocastd.yaml $(DESTDIR)/usr/share/doc/rocast/rocastd.yaml
	test -e $(DESTDIR)/etc/rocast/rocastd.yaml || install -Dm644 packaging/rocastd.yaml $(DESTDIR)/etc/rocast/rocastd.yaml

clean: ## removes build/
	rm -rf $(BUILD)

help: ## this
	@sed -n 's/^\([a-z]*\):.* ## /\1\t/p' Makefile | expand -t 12
