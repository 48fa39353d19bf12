# Every target is one line in `make help`. A fresh machine needs Go 1.26 for `make run` and `make demo`; `make deps`,
# which `make test` runs first, gets the rest.

GOLANGCI_VERSION := v2.15.0
# Outside the work tree, one per version: building it takes minutes, and every clone can use it.
TOOLS := $(shell go env GOPATH)/remora-tools/$(GOLANGCI_VERSION)
LINT  := $(TOOLS)/golangci-lint
# What the chart's tests render and check it with.
HELM_VERSION        := v3.22.0
KUBECONFORM_VERSION := v0.8.0
HELM_TOOLS := $(shell go env GOPATH)/remora-tools/helm-$(HELM_VERSION)
export PATH := $(HELM_TOOLS):$(PATH)
# What make promtool checks the metrics page with: that of Prometheus 3.13.5.
PROMTOOL_VERSION := v0.313.5
PROMTOOL := $(shell go env GOPATH)/remora-tools/promtool-$(PROMTOOL_VERSION)/promtool
FUZZTIME  ?= 30s
DRAWS     ?= 1000
BENCHTIME ?= 1s
SOAK      ?= 30m
STREAM_LIMIT ?= off
# What property tests draw is the same in each run of `make test`; `make properties` draws anew.
RAPID_SEED ?= 1

.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: run
run: ## serve with the built-in defaults on 127.0.0.1:8080
	go run ./cmd/remora

.PHONY: demo
demo: ## a long conversation with tool calls, without network or key
	go run ./cmd/remora demo

.PHONY: check
check: fmt vet lint layout ## formatting, vet, lint and layout: what a review should not have to say

.PHONY: fmt
fmt: ## fail if a file is not formatted
	@out="$$(gofmt -s -l $$(git ls-files '*.go'))"; if [ -n "$$out" ]; then echo "gofmt -s -w $$out"; exit 1; fi

.PHONY: vet
vet: ## go vet
	go vet ./...

.PHONY: lint
lint: $(LINT) ## golangci-lint, in the version that .golangci.yml is written for
	$(LINT) run ./...

# A golangci-lint of the right version that is installed anyway is taken over; else it is built (about 3 minutes).
$(LINT):
	@mkdir -p $(TOOLS)
	@have="$$(PATH="$$PATH:$$(go env GOPATH)/bin" command -v golangci-lint || true)"; \
	if [ -n "$$have" ] && "$$have" version | grep -qF "version $(GOLANGCI_VERSION:v%=%)"; then \
		ln -sf "$$have" $@; \
	else \
		echo "build golangci-lint $(GOLANGCI_VERSION), about 3 minutes, once"; \
		GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION); \
	fi

.PHONY: layout
layout: ## arrows, names, documentation, and the largest parts: layout_test.go
	go test -count=1 -v .

$(HELM_TOOLS)/helm:
	@echo "build helm $(HELM_VERSION), some minutes, once"
	@GOBIN=$(HELM_TOOLS) go install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)

$(HELM_TOOLS)/kubeconform:
	@GOBIN=$(HELM_TOOLS) go install github.com/yannh/kubeconform/cmd/kubeconform@$(KUBECONFORM_VERSION)

# `go install` refuses modules with a replace directive; without service discovery, which it does not need here, it takes
# about 4 minutes of processor time.
$(PROMTOOL):
	@echo "build promtool $(PROMTOOL_VERSION), about 4 minutes, once"
	@dir="$$(mktemp -d)"; trap 'rm -rf "$$dir"' EXIT; cd "$$dir" && go mod init promtool 2>log && \
		{ go get github.com/prometheus/prometheus/cmd/promtool@$(PROMTOOL_VERSION) >>log 2>&1 || { cat log; exit 1; }; } && \
		CGO_ENABLED=0 go build -tags remove_all_sd -ldflags '-s -w' -o $@ github.com/prometheus/prometheus/cmd/promtool

.PHONY: deps
deps: $(HELM_TOOLS)/helm $(HELM_TOOLS)/kubeconform ## what the tests need besides Go: redis-server, node, curl, helm, a C compiler
	@missing=""; for need in redis-server:redis-server node:nodejs npm:npm curl:curl cc:gcc; do \
		command -v "$${need%%:*}" >/dev/null || missing="$$missing $${need##*:}"; done; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	else \
		echo "missing:$$missing (on Debian: sudo apt-get install$$missing)" >&2; exit 1; \
	fi
	@node -e 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)' || \
		{ echo "missing: Node.js 20 or newer for the SDK tests, here is $$(node --version)" >&2; exit 1; }
	@npm ls --prefix test/e2e/testdata/node >/dev/null 2>&1 || npm ci --silent --no-audit --no-fund --prefix test/e2e/testdata/node

.PHONY: generate
generate: ## write what lists layer kinds (config.yaml, docs/layers.md), the chart's copy of config.yaml and its schema's keys
	go test -trimpath -count=1 -run='^TestListsOfKinds$$' ./memory/layers -update
	go test -trimpath -count=1 -run='^TestCharts(Schema|Variables)$$' ./cmd/remora -update

# Packages whose tests run the binary, or commands: none of the product's goroutines run in their process, and the race detector
# would only slow down the upstream and the clients. Properties have half of their usual draws under it: `make properties` has more.
# The longest comes first, so that a core is not idle while it ends.
DRIVERS := ./test/e2e ./docs ./examples ./helm ./test/golden ./test/recall/... ./test/recallfit ./test/rehearsal ./test/replay ./test/soak

.PHONY: test
test: deps ## the whole suite in random order, with the race detector
	RAPID_SEED=$(RAPID_SEED) RAPID_CHECKS=50 go test -race -shuffle=on -timeout=30m $$(go list ./... | grep -vxF "$$(go list $(DRIVERS))")
	RAPID_SEED=$(RAPID_SEED) go test -shuffle=on -timeout=30m $(DRIVERS)

.PHONY: install-test
install-test: deps ## install, upgrade and uninstall the chart in a real control plane (builds Kubernetes once)
	helm/test/install.sh

.PHONY: promtool
promtool: $(PROMTOOL) ## promtool check metrics on the page of a real proxy after traffic (builds promtool once)
	PROMTOOL=$(PROMTOOL) go test -count=1 -v -run='^TestMetricsOfTraffic$$' ./cmd/remora

.PHONY: chaos
chaos: deps ## break everything under load: Redis, disks, upstream, the proxy itself; writes docs/reliability.md
	CHAOS=full go test -count=1 -timeout=30m ./test/chaos

.PHONY: soak
soak: deps ## 30 minutes of mixed load at half of the capacity: memory, goroutines and connections must not grow (SOAK=1m: shorter)
	go test -count=1 -v -timeout=2h -run='^TestSoak$$' ./test/soak -soak $(SOAK)

.PHONY: streams
streams: deps ## 2,000 open streams: memory of each, every event accounted for (STREAM_LIMIT: GOMEMLIMIT of the proxy)
	go test -count=1 -v -timeout=10m -run='^TestStreams$$' ./test/soak \
		-streams 2000 -stream-time 1m -stream-every 1s -stream-gogc "" -stream-limit $(STREAM_LIMIT)

.PHONY: bodies
bodies: deps ## 40 conversations of 5 MB at once: the most memory, the time, the processor time of each
	go test -count=1 -v -timeout=10m -run='^TestBodies$$' ./test/soak -bodies 40 -body-gogc ""

.PHONY: cluster
cluster: deps ## two proxies on a Redis Cluster of three masters, beside one Redis: spread, throughput, processor time
	go test -count=1 -v -timeout=10m -run='^TestCluster$$' ./test/soak -cluster-time 5s -cluster-rounds 6

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (30s)
	@for dir in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -r -n1 dirname | sort -u); do \
		for target in $$(grep -hoE '^func Fuzz\w+' $$dir/*_test.go | cut -d' ' -f2); do \
			echo "$$dir $$target"; go test -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=1s ./$$dir || exit 1; \
		done; \
	done

# What a hostile client or upstream reaches first: package and target.
FUZZ_FRONT := wire:FuzzParse wire:FuzzNames wire:FuzzSplice wire/sse:FuzzSSE wire:FuzzFold wire:FuzzUnclear memory/session:FuzzMerge memory/view:FuzzWindow memory/redact:FuzzText

.PHONY: fuzz-front
fuzz-front: ## splitter, member names, splice, SSE, fold, judged calls, merge, window and secrets for FUZZTIME each (30s)
	@for t in $(FUZZ_FRONT); do \
		echo "$$t"; go test -run='^$$' -fuzz="^$${t#*:}\$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=1s ./$${t%:*} || exit 1; \
	done

# Only the test functions that call rapid themselves: the others draw nothing, and `make test` runs them.
.PHONY: properties
properties: ## property tests with DRAWS (1,000) new draws each
	@names=$$(git grep -l pgregory.net/rapid -- '*/*_test.go' | xargs awk '/^func /{f = /^func (Test|Fuzz)/ ? $$2 : ""} \
		f && /rapid\./{sub(/\(.*/, "", f); print f; f = ""}' | sort -u | paste -sd'|'); \
	test -n "$$names" && RAPID_CHECKS=$(DRAWS) RAPID_NOFAILFILE=true go test -count=1 -run="^($$names)\$$" $$(git grep -l pgregory.net/rapid -- '*/*_test.go' | xargs -n1 dirname | sort -u | sed 's|^|./|')

.PHONY: bench
bench: ## Remora against a bare proxy, nginx and nothing: the table of docs/performance.md (BENCH=-quick: 2 minutes)
	go run ./test/bench $(BENCH)

.PHONY: replay
replay: ## agent sessions through the proxy: what each memory policy sends, costs and loses (REPLAY=-check: fail if a target is missed)
	go run ./test/replay $(REPLAY)

.PHONY: recall-fit
recall-fit: ## fit the weights of memory/index to generated conversations and to those of LOCOMO=files of LoCoMo's format; without files judge only
	go run ./test/recallfit $(if $(LOCOMO),-write memory/index/weights.go) $(LOCOMO)

.PHONY: recall
recall: ## long conversations, questions in new sessions: how much of what answers them reaches the model (RECALL='-file locomo.json')
	go run ./test/recall $(RECALL)

.PHONY: microbench
microbench: ## the benchmarks of all packages, BENCHTIME each (1s)
	go test -run='^$$' -bench=. -benchmem -benchtime=$(BENCHTIME) ./...

.PHONY: cover
cover: deps ## coverage by package, and cover.html for the lines
	go test -coverpkg=./... -coverprofile=cover.out ./...
	go tool cover -html=cover.out -o cover.html
