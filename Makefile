# felixlike. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help

BINARIES  := $(notdir $(wildcard cmd/*))
LINTER    := honnef.co/go/tools/cmd/staticcheck@v0.7.0
VULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.1.4

# A module of its own, which ./... leaves out.
OWN_MODULE := test/cluster/networkpolicyapi

# All but the tests that bring up whole clusters.
FAST = $(shell go list ./... | sed 's,^github.com/felixlike/felixlike,.,' | grep -Ev '/test/(chaos|cluster|e2e|property|scale)(/|$$)')

.PHONY: help demo quick test test-random test-chaos test-soak test-load test-fuzz vulncheck test-cluster test-conformance test-clusterpolicies check build image release manifests lint setup setup-demo bench bench-kernel bench-services bench-scale report-screenshots ui-screenshots microbench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what the tests need (Debian, root)
	@test/scripts/setup

setup-demo: ## install what the demo needs (Debian, root)
	@test/scripts/setup demo

build: ## build every binary into bin/
	@mkdir -p bin
	@go build -ldflags="-s -w $$(deploy/version --flags)" -o bin/ $(addprefix ./cmd/,$(BINARIES))

image: ## build the container image bin/felixlike-image.tar, without Docker or a registry (Debian, root)
	@deploy/image/build

release: ## write the files of a release to bin/release: make release VERSION=v0.1.0 [IMAGE=registry/felixlike] (Debian, root)
	@VERSION="$(VERSION)" IMAGE="$(IMAGE)" deploy/release/build

manifests: ## write what follows from deploy/base: felixlike.yaml and the chart
	@deploy/generate

demo: setup-demo build ## watch NetworkPolicy on real packets, under one backend after the other (fifteen seconds)
	@bin/felixctl lab demo

# The end-to-end tests build what they test: a cached result may be of another agent. make lint vets.
test: setup build ## run all tests: units, real kernel and Open vSwitch, truth tables, spoofing, properties (many minutes)
	@test/scripts/gotest -count=1 -vet=off -timeout 45m ./...

# The other targets draw the same at each run (internal/seeded).
test-random: setup build ## property tests with fresh seeds, for BUDGET seconds (600): finds what fixed seeds miss
	@test/scripts/test-random $(or $(BUDGET),600)

# The test's own binary, since go test would hold back its progress.
test-chaos: setup build ## all faults under traffic: FAULT=regexp, BACKEND=name, BUDGET=10m choose some (forty minutes; writes docs/results/reliability.md)
	@go test -c -o bin/chaos.test ./test/chaos
	@cd test/chaos && ../../bin/chaos.test -test.run '^TestChaos$$' -test.timeout 4h -all -fault '$(FAULT)' -backend '$(BACKEND)' -budget $(or $(BUDGET),4h) -report ../../docs/results/reliability.md

# An hour shows a leak of 10 MB, of five descriptors, or of five goroutines.
test-soak: setup build ## traffic and changes of policies for TIME (1h), BACKEND (nftables): memory, descriptors and goroutines must not grow
	@go test -c -o bin/chaos.test ./test/chaos
	@cd test/chaos && ../../bin/chaos.test -test.run '^TestSoak$$' -test.timeout 25h -soak $(or $(TIME),1h) -backend '$(BACKEND)'

test-load: setup build ## many changes, pods, policies and members: ROW=regexp, BACKEND (nftables), TIME and BUDGET (30m) choose (ten minutes)
	@go test -c -o bin/load.test ./test/load
	@cd test/load && ../../bin/load.test -test.run '^TestLoad$$' -test.timeout 2h -row '$(or $(ROW),.)' -backend '$(or $(BACKEND),nftables)' -for $(or $(TIME),0) -budget $(or $(BUDGET),30m)

# go test runs the seeds of all targets; this looks for other inputs.
test-fuzz: ## fuzz every parser and decoder, each for TIME (30s)
	@test/scripts/test-fuzz $(or $(TIME),30s)

vulncheck: ## known vulnerabilities in what felixlike calls (needs the network)
	@go run $(VULNCHECK) ./...

# Without root, a test that needs it skips itself and says so.
quick: ## the tests that need neither root nor a setup, in parallel (a minute at most; two cores)
	@test/scripts/within 60 test/scripts/gotest -short -p $(shell nproc) -exec "$(CURDIR)/test/scripts/unprivileged" $$(test/scripts/kinds ./... | sed -n 's/^light //p')

check: setup build ## formatting, vet, and the tests that need no cluster (five minutes at most)
	@test/scripts/within 300 bash -ec 'test/scripts/format; go vet ./...; test/scripts/gotest -short -timeout 5m $(FAST)'

lint: ## formatting, vet, staticcheck, and go.mod and manifests that are up to date
	@test/scripts/format
	@go vet ./...
	@for os in darwin windows; do GOOS=$$os GOGC=400 go vet -gcflags='all=-l -dwarf=false' ./cmd/felixctl || exit 1; done
	@go run $(LINTER) ./...
	@go mod tidy -diff
	@cd $(OWN_MODULE) && go vet ./...
	@deploy/generate --check

# The comparison with the version of 2026-11-22 is a report: later ones do more.
bench: setup build ## measure all backends: programming, enforcement, packets (a quarter of an hour; writes docs/results/benchmarks/w1), and the cost beside older versions
	@bin/felixctl bench run --profile w1 --rounds 3 --out docs/results/benchmarks/w1
	@test/scripts/bench-versions c2ec428b || [ $$? = 1 ]
	@test/scripts/bench-versions budget --backends nftables,nftables-maps,iptables-nft,openflow

# FLX_VM_SUITE=bookworm-backports measures that suite's kernel.
bench-kernel: setup ## measure changes (in instructions) and packets on the distribution's kernel and its Open vSwitch datapath, in a virtual machine (an hour under QEMU's emulation)
	@FLX_VM_ICOUNT=1 test/vm/bench run --profile w1-100 --only programming --rounds 1 --idle 1s --backends nftables,nftables-maps,iptables-nft,iptables-legacy
	@test/vm/bench

# SERVICES are numbers of Services. kube-proxy takes minutes for each change of 30,000.
SERVICES ?= 1000,10000
PROGRAMS ?= felixlike,nftables,iptables
bench-services: setup build ## measure serviceProxy beside kube-proxy in both modes, three rounds (half an hour, and some minutes to build kube-proxy)
	@PATH=$$PWD/bin:$$PATH go test ./test/servicesbench -run '^$$' -bench . -benchtime 3x -timeout 5h -services $(SERVICES) -programs $(PROGRAMS)

ALL_BACKENDS = nftables,nftables-maps,iptables-nft,iptables-legacy,openflow
bench-scale: setup build ## measure many policies at once and later changes: PROFILE (kube-burner), BACKEND (all, with commas between) (two minutes)
	@go test -c -o bin/load.test ./test/load
	@cd test/load && ../../bin/load.test -test.run '^TestBurst$$' -test.timeout 2h -burst $(or $(PROFILE),kube-burner) -backend $(or $(BACKEND),$(ALL_BACKENDS))

report-screenshots: build ## look at the page of a benchmark report: pictures in bin/screenshots (installs chromium)
	@test/scripts/report-screenshots

ui-screenshots: build ## look at the pages of felixctl ui: pictures in bin/screenshots (chromium, root)
	@test/scripts/ui-screenshots

microbench: setup ## run the Go benchmarks of the policy engine, the nftables driver and the table of Services
	@go test -run '^$$' -bench . -benchmem ./felixlike/policy/... ./tables/...
	@go test -run '^$$' -bench BenchmarkServices -benchmem ./felixlike/backend

clean: ## remove what was built, and whatever a crashed lab left
	@if [ -x bin/felixlab ]; then bin/felixlab lab down --all; fi
	@rm -rf bin

test-cluster: setup build ## install into a real cluster and use it: one backend, some minutes (docs/results/conformance.md says what it needs)
	@FELIXLIKE_CLUSTER_SUITE=$${FELIXLIKE_CLUSTER_SUITE:-full} test/scripts/gotest -count=1 -timeout 120m ./test/cluster/...

test-conformance: setup build ## all upstream specs, each backend with each mode of kube-proxy and without it (two hours and a half; writes docs/results/conformance)
	@FELIXLIKE_CLUSTER_SUITE=conformance test/scripts/gotest -count=1 -timeout 20h -run TestConformance ./test/cluster

test-clusterpolicies: setup build ## upstream's suite of ClusterNetworkPolicy, on each backend (half an hour; writes docs/results/conformance)
	@FELIXLIKE_CLUSTER_SUITE=clusterpolicies test/scripts/gotest -count=1 -timeout 4h -run TestClusterPolicies ./test/cluster

# PART is short (what continuous integration runs), all, or a regular expression for
# test/e2e. OPTIONAL=yes makes it no error that no machine can be had here.
PART ?= all
OPTIONAL ?= no
test-kernel: setup ## run tests on the kernel's Open vSwitch datapath, in a virtual machine (apt; minutes under QEMU's emulation)
	@if [ "$(OPTIONAL)" = yes ] && ! test/vm/setup; then echo "test-kernel: not run: no virtual machine can be set up here, see above"; \
	else test/vm/kernel "$(PART)"; fi
