# SPDX-License-Identifier: Apache-2.0
# shunt: see README.md. `make` or `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# The newest Go at hand: sudo resets PATH, and a Go from 1.21 on fetches the release that go.mod names.
GO = PATH="$$(scripts/find-go.sh):$$PATH" go
export GOTOOLCHAIN ?= auto

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# Flags for the data path. -mcpu=v3 loads on every kernel from 6.1 on.
BPF_DIR := $(CURDIR)/bpf
export BPF2GO_CFLAGS := -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare -mcpu=v3 \
	-I$(BPF_DIR)/third_party/libbpf -I$(BPF_DIR)/include -I$(BPF_DIR) -I$(CURDIR)/lib/include -I/usr/include/$(shell uname -m)-linux-gnu \
	-fdebug-prefix-map=$(CURDIR)=.

help: ## list the targets
	@awk -F':.*## ' '/^## /{print "\n" substr($$0,4)} /^[a-z0-9-]+:.*## /{printf "  %-13s %s\n",$$1,$$2}' $(MAKEFILE_LIST)

## building

build: ## build bin/shunt (needs only Go)
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '-X main.release=$(VERSION)' -o bin/shunt ./cmd/shunt

generate: ## rebuild the BPF objects (needs clang-19) and the generated lists
	$(GO) generate ./internal/reason ./internal/bpfobj ./cmd/shunt ./lib/... ./bench/lib

manifest: ## make deploy/kubernetes/shunt.yaml from the Helm chart
	$(GO) -C deploy/check run . -write

setup: ## install what build, demo and tests need (root; Debian, Ubuntu)
	scripts/setup.sh

clean: ## remove what was built and cached here
	rm -rf bin .cache

## seeing it work

demo: ## make a virtual router, firewall, container host and two-node cluster, accelerate them, show before and after (root; three minutes)
	scripts/demo.sh

## testing

test: ## run every suite that this machine's kernel can run (root; installs what is missing)
	scripts/test.sh

test-unit: ## run the Go tests; without root those that need it are skipped
	$(GO) test ./...

# The rig: shunt as built, root, network namespaces. SEED=n repeats, CASE=file runs one saved case.
RIG_ARGS = -parallel 8 -workers 6 -shunt $(CURDIR)/bin/shunt
RIG = $(GO) test ./test/diff -count=1 $(RIG_ARGS)
CONFIGS ?= 200
TALKS ?= 20
FILTERS ?= 75
BRIDGES ?= 40
OVERLAYS ?= 25
SEED ?= 0
DURATION ?= 10m
PACKETS ?= 2000
OPERATIONS ?= 1000000
CONVERSATIONS ?= 100000
# How many of a hundred configurations have packet filters, bridges, tunnels; a seed gives the same again only with the same shares.
SHARES = -filters $(FILTERS) -bridges $(BRIDGES) -overlays $(OVERLAYS)
FUZZ = $(SHARES) -packets $(PACKETS) -seed $(SEED) -save $(CURDIR) -version $(VERSION) $(if $(RECORD),-record $(abspath $(RECORD)))

diff: build ## compare a router with shunt to one without: CONFIGS=200, SEED=n, CASE=file
	$(if $(CASE),$(RIG) -v -run TestRegress -case $(abspath $(CASE)),$(RIG) -v -timeout 30m -configs $(CONFIGS) -talks $(TALKS) -seed $(SEED) $(SHARES) $(if $(UNCOVERED),-uncovered) $(DIFF_ARGS))

hands: SHELL := /bin/bash -o pipefail
hands: build ## the rig's cases by hand alone, each at both hooks, of which CI runs a part by turns (root; half an hour) [RECORD=file]
	{ echo "make hands: commit $(VERSION), kernel $$(uname -r), $$(nproc) CPUs, $$(date -u +%F)"; SHOW='^TestHand$$' scripts/gotest.sh ./test/diff $(RIG_ARGS) -timeout 60m -uncovered -run '^TestHand$$' $(DIFF_ARGS); } 2>&1 | tee $(or $(RECORD),/dev/null)

killed: SHELL := /bin/bash -o pipefail
killed: build ## 10^5 conversations through a router whose shunt is killed about once a second and started again (root; ten minutes) [CONVERSATIONS=100000] [RECORD=file]
	{ echo "make killed: commit $(VERSION), kernel $$(uname -r), $$(nproc) CPUs, $$(date -u +%F)"; $(GO) test ./test/diff -count=1 -v -timeout 90m -shunt $(CURDIR)/bin/shunt -run '^TestKilled$$' -killed $(CONVERSATIONS); } 2>&1 | tee $(or $(RECORD),/dev/null)

# Which of the cases by hand have their turn (docs/rig.md, "What CI leaves out"): commits take turns.
TURN ?= $(shell scripts/turn.sh)

diff-ci: build ## the same as CI runs it: of the cases by hand those whose TURN it is, what fails once more alone, and the output is only what people read
	SHOW='^Test(ZCoverage|Generated|Conversations)$$' scripts/gotest.sh ./test/diff $(RIG_ARGS) -turn $(TURN) -timeout 23m -shrink 40 -configs $(CONFIGS) -talks $(TALKS) -seed $(SEED) $(SHARES) $(DIFF_ARGS)

fuzz: fuzz-lib fuzz-rig ## both of the following, one after the other

fuzz-lib: ## the function library against its twins with new seeds for DURATION=10m, until the first difference (root) [SEED=n] [OPERATIONS=1000000]
	$(GO) -C lib/test test -count=1 -timeout 0 -skip '^Test(Tutorial|Loads|Compilers|Headers|Sizes|Pages)$$' -duration $(DURATION) -seed $(SEED) -operations $(OPERATIONS)

fuzz-rig: build ## a router with shunt and one without with new configurations for DURATION=10m, until the first difference [PACKETS=2000] [OVERLAYS=100] [RECORD=file]
	$(RIG) -v -timeout 0 -run TestGenerated -duration $(DURATION) $(FUZZ)

fuzz-million: RECORD ?= bench/results/fuzz-$(shell uname -r | grep -oE '^[0-9]+\.[0-9]+').txt
fuzz-million: build ## a million packets over new configurations, differences and all; the record is kept in bench/results
	$(RIG) -v -timeout 0 -run TestGenerated -until 1000000 $(FUZZ)

mutants: ## break shunt in many small ways and count what the rig notices (root, clang-19; an hour; goes on where it ended) [MUTANTS='-n 60 -j 2']
	$(GO) run ./test/diff/mutate $(MUTANTS)

rulesets: ## send typical traffic through rule sets of real life and write docs/rulesets.md: how much of it is fast (root; two minutes)
	$(GO) test -count=1 ./test/rulesets -update

test-docker: SHELL := /bin/bash -o pipefail
test-docker: build ## run a real dockerd beside shunt and beside Linux alone (root, installs docker.io; two minutes) [LONG=1] [RECORD=file]
	scripts/setup.sh build demo test docker
	{ echo "make test-docker$(if $(LONG), LONG=1): commit $(VERSION), kernel $$(uname -r), $$(nproc) CPUs, $$(dockerd --version), $$(date -u +%F)"; \
		$(GO) test ./test/docker -count=1 -v -timeout 60m -shunt $(CURDIR)/bin/shunt -docker $(if $(LONG),-long); } 2>&1 | tee $(or $(RECORD),/dev/null)

test-flannel: SHELL := /bin/bash -o pipefail
test-flannel: build ## run real flanneld, etcd and CNI plugins with a shunt on every node and without (root; eight minutes, and three once to build them) [RECORD=file]
	test/flannel/tools.sh .cache/flannel
	{ echo "make test-flannel: commit $(VERSION), kernel $$(uname -r), $$(nproc) CPUs, flanneld $$(sed -n 's/^flannelVersion=//p' test/flannel/tools.sh), $$(etcd --version | head -n1), $$(date -u +%F)"; \
		$(GO) test ./test/flannel -count=1 -v -timeout 30m -shunt $(CURDIR)/bin/shunt -tools $(CURDIR)/.cache/flannel -flannel; } 2>&1 | tee $(or $(RECORD),/dev/null)

test-flannel-ci: build ## of test-flannel what CI has time for: VXLAN, with everything that happens to clusters (root; three minutes more where .cache/flannel is not kept)
	test/flannel/tools.sh .cache/flannel
	SHOW='^TestFlannel' scripts/gotest.sh ./test/flannel -timeout 8m -shunt $(CURDIR)/bin/shunt -tools $(CURDIR)/.cache/flannel -flannel -run 'TestFlannel/vxlan$$'

test-deploy: ## lint and render the Helm chart, and check what comes out (two minutes once to build Helm's libraries)
	$(GO) -C deploy/check test -count=1 ./...

test-k8s: SHELL := /bin/bash -o pipefail
test-k8s: build ## run real Kubernetes with a shunt on every node and without (root; eight minutes, and a quarter of an hour once to build it) [RECORD=file]
	test/flannel/tools.sh .cache/flannel
	test/k8s/tools.sh .cache/k8s
	{ echo "make test-k8s: commit $(VERSION), kernel $$(uname -r), $$(nproc) CPUs, $$(.cache/k8s/kube-proxy --version), flanneld $$(sed -n 's/^flannelVersion=//p' test/flannel/tools.sh), $$(.cache/k8s/etcd --version | head -n1), containerd $$(.cache/k8s/containerd --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n1), $$(runc --version | head -n1), $$(iptables --version), $$(date -u +%F)"; \
		$(GO) test ./test/k8s -count=1 -v -timeout 40m -shunt $(CURDIR)/bin/shunt -tools $(CURDIR)/.cache/k8s -flannel-tools $(CURDIR)/.cache/flannel -k8s; } 2>&1 | tee $(or $(RECORD),/dev/null)

K ?= 7.x
test-vm: build ## run the tests on another kernel: K=6.1, 6.12, 7.x (the newest) … [P=package ARGS='-test.run …']
	test/vm/vm.sh test $(K) $(P) $(ARGS)

test-vm-ci: ## what CI has time for, on the oldest and the newest kernel side by side
	+$(MAKE) --no-print-directory -j2 --keep-going --output-sync=target vm-ci-6.1 vm-ci-7.x

vm-ci-%: FORCE
	SHUNT_VM_PACKAGES=$(CURDIR)/test/vm/packages.ci-$* test/vm/vm.sh test $*

test-vm-lib: SHELL := /bin/bash -o pipefail
test-vm-lib: ## build the library's kernel module for another kernel and test it there: K=6.1 (which refuses it), 6.12, 7.x (root) [RECORD=file]
	@{ echo "make test-vm-lib K=$(K): commit $(VERSION), $$(date -u +%F)"; test/vm/vm.sh lib $(K); } 2>&1 | tee $(if $(RECORD),-a $(RECORD),/dev/null)

lib-compilers: SHELL := /bin/bash -o pipefail
lib-compilers: ## compile the library's test programs with clang 16 to 19 and load them (root; fetches the compilers once) [RECORD=file]
	@{ echo "make lib-compilers: commit $(VERSION), kernel $$(uname -r), $$(date -u +%F)"; bin=$$(test/vm/vm.sh clangs) && \
		PATH="$$bin:$$(scripts/find-go.sh):$$PATH" go test ./lib/test -count=1 -v -run TestCompilers -compilers; } 2>&1 | grep -v '^=== ' | tee $(or $(RECORD),/dev/null)

test-vm-all: build ## run the tests on every kernel of test/vm/kernels
	test/vm/vm.sh all

## measuring

# SECTION=forwarding,reaction measures only these; QUICK=1 is a short look that leaves the published results alone.
bench = bin/bench-$(1) -size $(if $(QUICK),quick,full) $(if $(SECTION),-section $(SECTION)) $(if $(AGAIN),-again) \
	-results $(if $(QUICK),.cache/bench/$(1).json,bench/results/$(1).json) -page $(if $(QUICK),.cache/bench/$(1).md,docs/bench-$(1).md)

# Results of a machine with more CPUs than two are kept apart, and have a page of their own.
larger = -queues $(shell n=1; while [ $$((2 * n)) -lt $(1) ]; do printf '%s,' $$n; n=$$((2 * n)); done; echo $$n) -dut-cpu $(shell expr $(1) / 2) \
	-results bench/results/router-$(1)cpus.json -page docs/bench-router-$(1)cpus.md

bin/bench-%: FORCE
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -o $@ ./bench/$*

bench-router: build bin/bench-router ## measure the router beside Linux and others (root) [QUICK=1] [SECTION=a,b] [AGAIN=1] [CPUS=16 on a larger machine]
	$(call bench,router) $(if $(CPUS),$(call larger,$(CPUS))) $(BENCH_ARGS)

bench-gateway: build bin/bench-gateway ## measure rules and sets beside Linux and others (root) [QUICK=1] [SECTION=a,b] [AGAIN=1]
	$(call bench,gateway) $(BENCH_ARGS)

bench-bridge: build bin/bench-bridge ## measure bridging beside Linux (root) [QUICK=1] [SECTION=a,b] [AGAIN=1]
	$(call bench,bridge) $(BENCH_ARGS)

bench-containers: ## of that, what concerns containers alone (root) [QUICK=1] [AGAIN=1]
	$(MAKE) --no-print-directory bench-bridge SECTION=containers,pairs,sizes,outside,rules,peers,starts,many

bench-nat: ## of bench-gateway, what concerns connections that are translated (root) [QUICK=1] [AGAIN=1]
	$(MAKE) --no-print-directory bench-gateway SECTION=translated,sessions,connections,published,conversations

bench-overlay: build bin/bench-overlay ## measure pods of two nodes as Flannel joins them beside Linux (root) [QUICK=1] [SECTION=a,b] [AGAIN=1]
	$(call bench,overlay) $(BENCH_ARGS)

bench-lib: build bin/bench-lib ## measure the function library beside plain eBPF and native code (root, clang-19 for the latter) [QUICK=1] [SECTION=a,b] [AGAIN=1]
	$(call bench,lib) $(BENCH_ARGS)

bench-page: bin/bench-router bin/bench-gateway bin/bench-bridge bin/bench-overlay bin/bench-lib ## make docs/bench-*.md and their plots from the results
	$(call bench,router) -render
	for n in $(patsubst bench/results/router-%cpus.json,%,$(wildcard bench/results/router-*cpus.json)); do \
		$(call bench,router) -render -results bench/results/router-$${n}cpus.json -page docs/bench-router-$${n}cpus.md || exit; done
	$(if $(wildcard $(if $(QUICK),.cache/bench,bench/results)/gateway.json),$(call bench,gateway) -render)
	$(if $(wildcard $(if $(QUICK),.cache/bench,bench/results)/bridge.json),$(call bench,bridge) -render)
	$(if $(wildcard $(if $(QUICK),.cache/bench,bench/results)/overlay.json),$(call bench,overlay) -render)
	$(if $(wildcard $(if $(QUICK),.cache/bench,bench/results)/lib.json),$(call bench,lib) -render)

bench-peers: ## fetch the peers' programs (xdp-tools, NetPIPE, Open vSwitch of Debian 13) into .cache/peers (root)
	bench/peers.sh .cache/peers

## installing

PREFIX ?= /usr/local
UNITDIR ?= /etc/systemd/system
DESTDIR ?=

SHARE = $(DESTDIR)$(PREFIX)/share

install: build ## install program, manual page, completions and systemd unit below PREFIX (root)
	install -D -m 0755 bin/shunt $(DESTDIR)$(PREFIX)/sbin/shunt
	install -d $(SHARE)/man/man8
	install -m 0644 docs/man/*.8 $(SHARE)/man/man8/
	install -d $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d $(DESTDIR)$(UNITDIR)
	bin/shunt completion bash >$(SHARE)/bash-completion/completions/shunt
	bin/shunt completion zsh >$(SHARE)/zsh/site-functions/_shunt
	bin/shunt completion fish >$(SHARE)/fish/vendor_completions.d/shunt.fish
	sed 's,@SBIN@,$(PREFIX)/sbin,' deploy/shunt.service >$(DESTDIR)$(UNITDIR)/shunt.service

deb: ## build a Debian package in bin/
	scripts/deb.sh $(VERSION)

uninstall: ## remove what install put there; a running shunt has to be stopped before
	rm -f $(DESTDIR)$(PREFIX)/sbin/shunt $(DESTDIR)$(UNITDIR)/shunt.service $(SHARE)/man/man8/shunt.8 $(SHARE)/man/man8/shunt-*.8 \
		$(SHARE)/bash-completion/completions/shunt $(SHARE)/zsh/site-functions/_shunt $(SHARE)/fish/vendor_completions.d/shunt.fish

FORCE:
.PHONY: FORCE help build generate manifest setup clean demo test test-unit diff hands killed diff-ci fuzz fuzz-lib fuzz-rig fuzz-million mutants rulesets test-docker test-flannel test-flannel-ci test-deploy test-k8s test-vm test-vm-ci test-vm-all test-vm-lib lib-compilers bench-router bench-gateway bench-bridge bench-containers bench-nat bench-overlay bench-lib bench-page bench-peers install deb uninstall
