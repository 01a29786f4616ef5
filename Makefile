# The entry points. Each does all of its own set-up; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

target := $(abspath $(or $(CARGO_TARGET_DIR),target))
# This repository's own plugins are built without a question.
export ASP_TRUST_BUILDS ?= true
export ASP_FILTER_WASM ?= $(target)/wasm32-wasip1/wasm/asp_filter.wasm

.PHONY: help setup wasm build filter binaries run package release quick test bench chaos fuzz k8s check

help: ## Lists the targets
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9]+):.*## /  make \1\t/' | expand -t 16

setup: ## Installs what `make run` needs below .tools/
	@scripts/setup run

wasm: ## Builds the edge filter
	@scripts/setup wasm
	@scripts/build-wasm

# Side by side: what is downloaded waits for the network, and the end of each build has work for one core only.
build: ## Builds the filter and the binaries, and installs what `make run` needs below .tools/
	@scripts/setup wasm
	@$(MAKE) --no-print-directory -j3 setup filter binaries

# Cargo's own number of jobs counts, not make's.
filter:
	@env -u MAKEFLAGS scripts/build-wasm

binaries:
	env -u MAKEFLAGS cargo build --locked --release -p asp -p asp-runtime -p asp-launcher

run: build ## Starts everything on this machine, in the foreground
	@source .tools/env; exec $(target)/release/asp serve --dev --stack --primitives primitives

package: ## Packs the binaries as a Python wheel and npm packages, in target/packages/
	@scripts/setup package
	cargo build --locked --profile dist --features asp/kafka -p asp -p asp-runtime -p asp-launcher
	@scripts/package dist

# IMAGES=yes makes the images too, as root with buildah; BEFORE is the release before, a tarball, folder or binary.
release: ## Cuts VERSION and collects what is published of it in target/release-files/ (docs/release.md)
	@scripts/release cut $(VERSION)
	@$(MAKE) --no-print-directory package
	@scripts/setup run
	@scripts/build-wasm
	@source .tools/env; scripts/test-packages dist
	@if [[ -n "$(BEFORE)" ]]; then scripts/test-upgrade "$(BEFORE)" $(target)/dist/asp; fi
	@if [[ -n "$(IMAGES)" ]]; then scripts/images --profile dist --tag $(VERSION); fi
	@scripts/release files $(if $(IMAGES),--images)

quick: ## Builds the crate CRATE and its unit tests, runs these, and checks the prose: make quick CRATE=asp-call
	@if [[ -e .tools/env ]]; then source .tools/env; fi; exec scripts/quick $(CRATE)

# As in `build`, but the build stops soon if the set-up beside it fails. BESIDE is a command that runs beside the tests and
# counts as one.
test: ## Runs every test that proves safety, real Envoy and real clients included
	@scripts/setup packages
	@scripts/setup wasm
	@env -u MAKEFLAGS scripts/beside.py scripts/test build -- scripts/setup test
	@source .tools/env; scripts/test all $(BESIDE)

bench: ## Measures the edge, the whole path and the plugin runtime; the report is left below target/bench/
	@scripts/setup bench
	@scripts/build-wasm
	cargo build --locked --profile dist -p asp -p asp-runtime -p asp-launcher
	cargo build --locked --profile dist -p asp-bench
	@source .tools/env; export ASP_BIN=$(target)/dist/asp ASP_RUNTIME_BIN=$(target)/dist/asp-runtime; \
	  exec $(target)/dist/asp-bench $(BENCH_ARGS)

chaos: ## Breaks the plugin runtime in every way plugins can, and tries REST at length; CHAOS_ARGS for its flags
	@scripts/setup test
	@scripts/build-wasm
	cargo build --locked --release --workspace --features asp/kafka --all-targets
	@source .tools/env; ASP_REST_CASES=100 cargo test --locked --release --workspace --features asp/kafka --test e2e -- ::schemathesis
	@source .tools/env; ASP_CHAOS=1 cargo test --locked --release --workspace --features asp/kafka --test it -- redis::
	@source .tools/env; exec $(target)/release/asp-chaos $(CHAOS_ARGS)

fuzz: ## Fuzzes the parsers, FUZZ_SECONDS for each (60), and the states of the protocols, FUZZ_STATES_SECONDS (600)
	@filter/fuzz/run $(or $(FUZZ_SECONDS),60)
	@control-plane/gateway/fuzz/run $(or $(FUZZ_SECONDS),60)
	@control-plane/import/fuzz/run $(or $(FUZZ_SECONDS),60)
	@control-plane/server/fuzz/run $(or $(FUZZ_SECONDS),60)
	@scripts/setup test
	@scripts/build-wasm
	cargo build --locked --release --workspace --features asp/kafka --all-targets
	@source .tools/env; export ASP_BIN=$(target)/release/asp ASP_RUNTIME_BIN=$(target)/release/asp-runtime; \
	  ASP_FUZZ_SECONDS=$(or $(FUZZ_STATES_SECONDS),600) \
	  cargo test --locked --release --workspace --features asp/kafka --test e2e -- any_order --nocapture

k8s: ## Builds the images and starts what k8s/ renders on this machine, with podman, as root; K8S_ARGS for its flags
	@scripts/setup containers
	@scripts/build-wasm
	cargo build --locked --release --features asp/kafka -p asp -p asp-runtime -p asp-launcher
	@source .tools/env; .tools/kubernetes/bin/python -B tests/k8s/meshes.py
	@source .tools/env; exec .tools/kubernetes/bin/python -B tests/k8s/play.py $(K8S_ARGS)

check: ## Checks form: fmt, clippy, sizes, dependencies, prose, docs, licences, advisories
	@scripts/setup check
	@scripts/check
