# Everything there is to do with this repository. `make run` and `make test` are all a newcomer needs.

CARGO ?= cargo

.PHONY: help run run-cluster release test test-fast lint bench bench-cassandra bench-cluster bench-compare bench-instructions \
	bench-migrate bench-mongo soak soak-namespaces tools clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

run: need-cargo ## a shop with 10,000 products at http://127.0.0.1:8080
	$(CARGO) run --profile quick --package mobimir --no-default-features -- demo

run-cluster: tools ## the same shop on MongoDB and Cassandra, which it starts; `mobimir lab down` ends them
	scripts/run-cluster

release: need-cargo ## the whole program for a server, stripped, and its debug information beside it, in target/dist
	$(CARGO) build --release --package mobimir
	scripts/split-debug-info "$${CARGO_TARGET_DIR:-target}/release/mobimir" "$${CARGO_TARGET_DIR:-target}/dist"

test: tools ## all tests, with everything they need installed first (docs/testing.md)
	scripts/test

test-fast: tools ## the tests that need no server
	scripts/test fast

lint: need-cargo ## formatting and lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- --deny warnings
	$(CARGO) clippy --package mobimir --no-default-features -- --deny warnings

bench: bench-tools ## all figures in one piece, in about 80 minutes, recorded in docs/benchmarks; ONLY="mongo start" measures those sections
	$(CARGO) build --release --package mobimir --package mobimir-bench
	$(CARGO) run --release --package mobimir-bench -- --record docs/benchmarks $(addprefix --section ,$(ONLY))

bench-instructions: bench-tools ## how many instructions the hot operations take
	$(CARGO) build --release --package mobimir --package mobimir-bench
	$(CARGO) run --release --package mobimir-bench -- --instructions

bench-compare: need-cargo ## this build and another, asked in turns: make bench-compare OTHER=/path/to/mobimir
	@test -n "$(OTHER)" || { echo "name the other build: make bench-compare OTHER=/path/to/mobimir" >&2; exit 1; }
	$(CARGO) build --release --package mobimir --package mobimir-bench
	$(CARGO) run --release --package mobimir-bench -- --compare $(OTHER)

bench-mongo: tools ## what the ports on MongoDB add to the bare driver, and what stripes give a hot product
	$(CARGO) run --release --package mobimir-bench -- --mongo

bench-cassandra: tools ## what the ports on Cassandra add to the bare driver, on a ring of three nodes
	$(CARGO) run --release --package mobimir-bench -- --cassandra

bench-cluster: tools ## a shop on MongoDB and Cassandra: the highest rate within the limits, and whose processors it takes
	$(CARGO) build --release --package mobimir --package mobimir-bench
	$(CARGO) run --release --package mobimir-bench -- --cluster

bench-migrate: tools ## what it costs to move data from MongoDB to Cassandra: rate, memory, writes that are mirrored, a target that hangs
	$(CARGO) run --release --package mobimir-bench -- --migrate

soak: tools ## the tests that take long: more crashes, more random histories, every fault in every phase of a migration, a shop of a million products, and as root servers that lose each other
	MOBIMIR_CRASH_ROUNDS=300 MOBIMIR_PLANTED_SEEDS=2000 MOBIMIR_MIGRATION_SEEDS=100000 MOBIMIR_CONFORMANCE_CASES=1000 MOBIMIR_LONG_HISTORY=100000 PROPTEST_CASES=10000 MOBIMIR_LAG_S=100 MOBIMIR_OWN_WRITES_READS=100000 MOBIMIR_NODES_PER_DC=3 MOBIMIR_ROLES_LONG=1 MOBIMIR_OUTBOX_ENTRIES=200000 scripts/test
	for phases in DualWrite,Backfill,Verify Handover ReadTarget,WayBack; do \
		MOBIMIR_SUITE_POLICY=default MOBIMIR_MIGRATION_FAULTS=$$phases MOBIMIR_MIGRATION_LONG=1 \
			$(CARGO) test --workspace --test suite -- migration:: --nocapture || exit 1; done
	MOBIMIR_SIMULATION_SEEDS=100000 $(CARGO) test --release --package mobimir-simulator --test invariants -- --nocapture
	$(MAKE) soak-namespaces
	$(CARGO) test --workspace --test suite -- partitions::data_centres:: --ignored --test-threads=1 --nocapture
	$(CARGO) test --release --package mobimir-migrate --test model -- --ignored --nocapture
	$(CARGO) build --release --package mobimir --package mobimir-bench
	$(CARGO) run --release --package mobimir-bench -- --only sizes --large
	$(CARGO) run --release --package mobimir-bench -- --migrate --part memory --large

soak-namespaces: tools ## servers, instances and clocks of their own in network namespaces, for MOBIMIR_NAMESPACES_S seconds, as root (MOBIMIR_NETEM=off where the kernel has no netem)
	@test "$$(id -u)" = 0 || { echo "network namespaces need root: sudo make soak-namespaces" >&2; exit 1; }
	@scripts/install-test-tools ip tc faketime
	MOBIMIR_NAMESPACES_S=$${MOBIMIR_NAMESPACES_S:-300} \
		$(CARGO) test --workspace --test suite -- partitions::namespaces:: --ignored --nocapture --test-threads=1

tools: need-cargo ## what the tests need besides Rust: a C compiler, Chromium and its driver, nginx, Java 17, Maven, pip
	@scripts/install-test-tools

bench-tools: need-cargo
	@scripts/install-test-tools valgrind wrk
.PHONY: bench-tools

need-cargo:
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust 1.89 or newer from https://rustup.rs" >&2; exit 1; }
.PHONY: need-cargo

clean: ## what was built
	$(CARGO) clean
