# What a newcomer needs. `make help` lists it.
CARGO ?= cargo
PREFIX ?= /usr/local
VENV := .venv
PYTHON := $(VENV)/bin/python3
BIN := target/release/prezero
# As root the benchmarks of leases take pages of a pool too, and give them back.
RESERVE := $(if $(filter 0,$(shell id -u)),--reserve)
# What other people's Python tests need.
MODULES := numpy scipy pytest hypothesis
SOAK ?= 10m
FUZZ ?= 3600
# Where cargo puts things may be set from outside; the programs are always found here.
export CARGO_TARGET_DIR := $(CURDIR)/target
# What is preloaded is built in a profile of its own.
PRELOADED := prezero-preload prezero-lease-shim

.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

build: ## build prezero, prezerod, prezero-bench and their libraries
	$(CARGO) build --release
	$(CARGO) build --profile library $(PRELOADED:%=-p %)
	install -m755 target/library/*.so target/release

demo: build $(PYTHON) ## run a NumPy program without and with prezero
	@echo; echo "== without prezero"; $(PYTHON) bench/demo.py
	@echo; echo "== with prezero: $(BIN) run -- $(PYTHON) bench/demo.py"
	@$(BIN) run -- $(PYTHON) bench/demo.py

# Left out of a check: what races real threads for seconds, and three of four histories of the models.
RACES := --skip tests::threads --skip revoked_piece

check: lint ## what a laptop runs: lint, unit and model tests
	PROPTEST_CASES=64 $(CARGO) test --quiet --workspace --lib --bins -- $(RACES)

test: build $(PYTHON) ## unit, property, model and end-to-end tests
	$(CARGO) test --workspace
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(CURDIR)/target/loom $(CARGO) test -p prezero --lib --release
	$(PYTHON) -m pip install --quiet --disable-pip-version-check $(MODULES)
	tests/programs/matrix.py --prezero $(BIN) --python $(PYTHON)
	tests/fuzz/fuzz.py --prezero $(BIN) --seconds 60
	tests/library.sh target/release
	tests/system/claim.sh target/release
	tests/system/user.sh target/release
	tests/system/hosts.sh target/release
	tests/system/attack.py target/release
	tests/system/containers.sh target/release
	tests/system/systemd.sh target/release
	tests/system/live.sh target/release
	tests/seeds.sh target/release
	tests/report.sh target/release
	tests/try.sh target/release
	tests/docs.sh target/release
	tests/system/deb.sh

test-long: build $(PYTHON) ## other people's programs and tests in full, an hour of fuzzing, soak, sanitizers (hours)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check $(MODULES)
	tests/programs/matrix.py --prezero $(BIN) --python $(PYTHON) --scale long --json target/matrix-long.json
	tests/fuzz/fuzz.py --prezero $(BIN) --seconds 3600
	tests/soak/soak.py --prezero $(BIN)
	tests/system/libvirt.sh target/release
	tests/system/wipe.py target/release
	tests/system/attack.py target/release --seconds 30 --p99 50
	tests/sanitize.sh

matrix: build $(PYTHON) ## other people's programs without and with prezero; writes the table into docs/guarantees.md
	$(PYTHON) -m pip install --quiet --disable-pip-version-check $(MODULES)
	tests/programs/matrix.py --prezero $(BIN) --python $(PYTHON) --all --runs 3 --json bench/matrix.json
	tests/programs/matrix.py --table bench/matrix.json --into docs/guarantees.md

soak: build ## real programs side by side with faults injected, SOAK=10m, 2h, ...
	tests/soak/soak.py --prezero $(BIN) --time $(SOAK)

fuzz: build ## malloc and mm calls against a model of every byte, FUZZ=3600 seconds
	tests/fuzz/fuzz.py --prezero $(BIN) --seconds $(FUZZ)

bench: build $(PYTHON) ## every benchmark against five allocators (an hour or more, on a quiet machine)
	$(BIN) bench grid --idle all
	$(BIN) bench numpy --python $(PYTHON)
	$(BIN) bench pair
	$(BIN) bench waste
	$(BIN) bench disturb
	$(BIN) bench scrub
	$(BIN) bench seeds
	$(BIN) bench lease $(RESERVE)
	$(BIN) bench start $(RESERVE)
	$(BIN) bench fill $(RESERVE)
	for each in busy fork grow parts rounds short single small thin verify; do $(BIN) bench $$each || exit 1; done
	$(PYTHON) -m pip install --quiet --disable-pip-version-check scipy pandas
	$(BIN) bench real --python $(PYTHON)

lint: ## formatting, clippy, the layers of each crate, the lists of tests and constants, as CI runs them
	tests/layers.py --test
	tests/layers.py
	tests/listed.py
	tests/constants.py --check
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

setup: ## Debian packages that tests and benchmarks use (asks for root)
	tests/setup.sh

setup-long: ## and those that only test-long uses
	tests/setup.sh long

install: build ## install into PREFIX (/usr/local), stripped
	install -Dsm755 $(BIN) $(DESTDIR)$(PREFIX)/bin/prezero
	install -Dsm755 target/release/prezero-qemu $(DESTDIR)$(PREFIX)/bin/prezero-qemu
	install -Dsm755 target/release/prezerod $(DESTDIR)$(PREFIX)/bin/prezerod
	install -Dsm755 target/release/prezero-bench $(DESTDIR)$(PREFIX)/lib/prezero/prezero-bench
	install -Dsm755 target/release/libprezero.so $(DESTDIR)$(PREFIX)/lib/prezero/libprezero.so
	install -Dsm755 target/release/libprezero_lease_shim.so $(DESTDIR)$(PREFIX)/lib/prezero/libprezero_lease_shim.so
	install -Dm644 crates/prezero-preload/include/prezero.h $(DESTDIR)$(PREFIX)/include/prezero.h
	install -Dm644 crates/prezerod/include/prezero_lease.h $(DESTDIR)$(PREFIX)/include/prezero_lease.h
	install -Dm644 crates/prezerod/man/prezerod.8 $(DESTDIR)$(PREFIX)/share/man/man8/prezerod.8
	$(BIN) generate $(DESTDIR)$(PREFIX)/share
	target/release/prezero-bench generate $(DESTDIR)$(PREFIX)/share
	target/release/prezerod generate $(DESTDIR)$(PREFIX)/share
	for page in claim qemu; do \
	    install -Dm644 crates/prezero-cli/man/prezero-$$page.1 $(DESTDIR)$(PREFIX)/share/man/man1/prezero-$$page.1; \
	done
	install -Dm644 crates/prezerod/examples/charge.conf $(DESTDIR)$(PREFIX)/share/doc/prezero/charge.conf
	install -Dm644 crates/prezerod/prezerod.toml $(DESTDIR)$(PREFIX)/share/doc/prezero/prezerod.toml
	sed 's|/usr/local/|$(PREFIX)/|' bench/probes.bt > $(DESTDIR)$(PREFIX)/share/doc/prezero/probes.bt
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for unit in crates/prezerod/systemd/*; do \
	    sed 's|/usr/local/bin|$(PREFIX)/bin|' $$unit > $(DESTDIR)$(PREFIX)/lib/systemd/system/$${unit##*/}; \
	done

deb: build ## a Debian package, in target/debian
	packaging/deb.sh

seeds: ## the four posts' experiments as static programs, in target/seeds, for a guest
	$(MAKE) -C bench/seeds OUT=$(CURDIR)/target/seeds

$(PYTHON):
	python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check numpy

clean: ## remove what was built
	rm -rf target $(VENV)

.PHONY: help build demo check test test-long matrix soak fuzz bench lint setup setup-long install deb seeds clean
