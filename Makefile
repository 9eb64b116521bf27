# What a newcomer needs. `make help` lists it. `make demo` and `make test` look first for all that they use
# (tests/setup.sh), so that no other command comes before them.
CARGO ?= $(or $(shell command -v cargo),$(wildcard $(HOME)/.cargo/bin/cargo),cargo)
PREFIX ?= /usr/local
VENV := .venv
PYTHON := $(VENV)/bin/python3
# Written when the environment is whole. One that was left half made is made again.
READY := $(VENV)/ready
BIN := target/release/prezero
# As root the benchmarks of leases take pages of a pool too, and give them back.
RESERVE := $(if $(filter 0,$(shell id -u)),--reserve)
# What other people's Python tests need.
MODULES := numpy scipy pytest hypothesis memray matplotlib
# What `prezero bench real` measures. PyTorch is gigabytes: its rows are left out, unless it is there.
MEASURED := scipy pandas opencv-python-headless pillow scikit-learn xarray dask polars pyarrow
SOAK ?= 10m
FUZZ ?= 3600
# Where cargo puts things may be set from outside; the programs are always found here.
export CARGO_TARGET_DIR := $(CURDIR)/target
# What runs in other people's programs is built in a profile of its own.
LIBRARIES := prezero-preload prezero-lease-shim prezero-pinned prezero-numpy

.DEFAULT_GOAL := help

# Each recipe uses all CPUs as it is, and what is looked for first is to come first.
.NOTPARALLEL:

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

build: needs-build ## build prezero, prezerod, prezero-bench and their libraries
	$(CARGO) build --release
	$(CARGO) build --profile library $(LIBRARIES:%=-p %)
	install -m755 target/library/*.so target/release
	ln -sf libprezero.so target/release/libprezero.so.0
	@touch target/built

# What was built of these sources needs no Rust to be installed: root, by sudo, has none.
built:
	@[ -e target/built ] && [ -z "$$(find .cargo Cargo.toml Cargo.lock bench crates -type f -newer target/built -print -quit)" ] || \
	    $(MAKE) --no-print-directory build

# The command alone, without `top` and what packages call, beside the library: in a folder of its own, so that `make build` finds
# no half of anything.
demo: needs-demo $(READY) ## run a NumPy program without and with prezero
	@[ -e target/demo/prezero ] || echo "demo: builds the command and its library first, about a minute on two cores"
	@$(CARGO) build --profile library -p prezero-preload
	@$(CARGO) build --profile demo -p prezero-cli --bin prezero --no-default-features
	@install -m755 target/library/libprezero.so target/demo
	@echo; echo "== without prezero"; $(PYTHON) bench/demo.py
	@echo; echo "== with prezero: prezero run -- $(PYTHON) bench/demo.py"
	@target/demo/prezero run -- $(PYTHON) bench/demo.py

# A step that fails keeps no other from running, and the last lines name what could not be had.
each = @tests/each.sh "$$STEPS" $(1)
test: export STEPS = $(TESTS)
test-long: export STEPS = $(LONG)

# Left out of a check: what races real threads for seconds, and three of four histories of the models.
RACES := --skip tests::threads

check: lint ## what a laptop runs: lint, unit and model tests
	PROPTEST_CASES=64 $(CARGO) test --quiet --workspace --lib --bins -- $(RACES)

# A line with & builds or waits, and needs no idle CPU and no broker: it runs beside the others.
define TESTS
& RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(CURDIR)/target/loom $(CARGO) test -p prezero -p prezero-pool --lib --release
& tests/public.py
& tests/crate.sh
& tests/book.sh
& tests/wheel.sh
& $(CARGO) test --workspace --doc --no-fail-fast
& tests/docs.sh target/release
& tests/install.sh
& $(PYTHON) tests/handler.py target/release
& $(PYTHON) tests/tensors.py target/release
$(CARGO) test --workspace --all-targets --no-fail-fast
$(PYTHON) -m pip install --quiet --disable-pip-version-check $(MODULES)
tests/programs/matrix.py --prezero $(BIN) --python $(PYTHON)
$(BIN) bench real --only toarray,bincount --seconds 0.1 --runs 1 --peers glibc --python $(PYTHON)
tests/fuzz/fuzz.py --prezero $(BIN) --seconds 30
tests/library.sh target/release
tests/system/claim.sh target/release
tests/system/user.sh target/release
tests/system/pinned.py target/release
tests/system/doors.py target/release
tests/system/hosts.sh target/release
tests/system/attack.py target/release
tests/system/beside.py target/release
tests/system/busy.py target/release
tests/system/containers.sh target/release
tests/system/systemd.sh target/release
tests/system/live.sh target/release
tests/seeds.sh target/release
tests/report.sh target/release
tests/try.sh target/release
tests/examples.sh target/release
tests/system/deb.sh
endef

test: says-test needs-test build $(READY) ## unit, property, model and end-to-end tests (half an hour on two cores)
	$(call each,test)
says-test:
	@echo "test: builds everything and runs every test, about half an hour on two cores; what it installs first stands in the next lines"
	@echo "test: for a first look there is make check, which takes some minutes"

define LONG
$(PYTHON) -m pip install --quiet --disable-pip-version-check $(MODULES) chdb ray
tests/programs/matrix.py --prezero $(BIN) --python $(PYTHON) --scale long --json target/matrix-long.json
$(PYTHON) -m pip install --quiet --disable-pip-version-check $(MEASURED)
$(BIN) bench real --only photo,blocks,ndimage,opencv,pillow,cnn,embedding,join,sklearn,dask,polars,pyarrow --seconds 0.1 --runs 1 --peers glibc --python $(PYTHON)
tests/fuzz/fuzz.py --prezero $(BIN) --seconds 3600
tests/soak/soak.py --prezero $(BIN)
tests/system/libvirt.sh target/release
tests/system/giant.py target/release
tests/system/wipe.py target/release
tests/system/attack.py target/release --seconds 30 --p99 150
tests/sanitize.sh
tests/aarch64.sh --python
tests/system/pages.py
tests/wheel.sh --portable
tests/wheel.sh --aarch64
tests/image.sh
tests/crate.sh --long
tests/system/newcomer.sh
tests/system/newcomer.sh --test
tests/system/newcomer.sh --suite trixie
tests/examples.sh target/release --long
tests/book.sh --install
tests/release.sh
endef

test-long: needs-long build $(READY) ## other people's programs and tests in full, an hour of fuzzing, soak, sanitizers (hours)
	$(call each,test long)

matrix: needs-test build $(READY) ## other people's programs without and with prezero; writes the table into docs/guarantees.md
	$(PYTHON) -m pip install --quiet --disable-pip-version-check $(MODULES) chdb ray
	tests/programs/matrix.py --prezero $(BIN) --python $(PYTHON) --all --runs 3 --json bench/matrix.json
	tests/programs/matrix.py --table bench/matrix.json --into docs/guarantees.md

soak: build ## real programs side by side with faults injected, SOAK=10m, 2h, ...
	tests/soak/soak.py --prezero $(BIN) --time $(SOAK)

fuzz: build ## malloc and mm calls against a model of every byte, FUZZ=3600 seconds
	tests/fuzz/fuzz.py --prezero $(BIN) --seconds $(FUZZ)

bench: needs-bench build $(READY) ## every benchmark against five allocators (an hour or more, on a quiet machine)
	$(BIN) bench grid --idle all
	$(BIN) bench numpy --python $(PYTHON)
	$(CARGO) build --release -p prezero --example rounds
	PYTHONPATH=bindings/python $(BIN) bench doors --python $(PYTHON)
	$(BIN) bench pair
	$(BIN) bench waste
	$(BIN) bench disturb
	$(BIN) bench scrub
	$(BIN) bench seeds
	$(BIN) bench lease $(RESERVE)
	$(BIN) bench start $(RESERVE)
	$(BIN) bench fill $(RESERVE)
	for each in busy fork grow parts short single small steady thin verify; do $(BIN) bench $$each || exit 1; done
	$(PYTHON) -m pip install --quiet --disable-pip-version-check $(MEASURED)
	$(CARGO) build --release --locked --manifest-path bindings/rust/numeric/Cargo.toml --target-dir target/doors
	$(BIN) bench real --python $(PYTHON) --rust target/doors/release/numeric

lint: needs-lint ## formatting, clippy, the layers and the lines of each crate, the lists of tests and constants, the pages, as CI runs them
	tests/each.sh --test
	tests/layers.py --test
	tests/layers.py
	tests/ratchet.py --test
	tests/ratchet.py
	tests/listed.py
	tests/constants.py --check
	tests/fields.py --test
	tests/fields.py
	tests/prose.py --test
	tests/prose.py
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

setup: ## everything that tests and benchmarks use, at once (Debian packages: asks for root)
	@tests/setup.sh --strict build lint python deb test bench

setup-long: ## and those that only test-long uses
	@tests/setup.sh --strict build lint python deb test bench long

install: built ## install into PREFIX (/usr/local), stripped; builds what is not built yet
	packaging/install.sh "$(DESTDIR)" "$(PREFIX)"

uninstall: ## remove what make install put into PREFIX
	packaging/uninstall.sh "$(DESTDIR)" "$(PREFIX)"

deb: needs-deb build ## a Debian package, in target/debian
	packaging/deb.sh

wheel: needs-build ## the Python wheel for glibc 2.28 and later, in target/wheel
	packaging/wheel.sh

book: needs-build ## the pages as a site, in target/book/html; brings mdBook by cargo
	tests/book.sh --install

release: needs-deb ## all that a release consists of, in target/release-VERSION: TAG=v0.1.0
	packaging/release.sh $(TAG)

seeds: ## the four posts' experiments as static programs, in target/seeds, for a guest
	$(MAKE) -C bench/seeds OUT=$(CURDIR)/target/seeds

$(READY):
	@tests/setup.sh python
	rm -rf $(VENV)
	python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check numpy
	touch $@

needs-build:
	@tests/setup.sh build
needs-lint:
	@tests/setup.sh build lint
needs-demo:
	@tests/setup.sh build python
needs-test:
	@tests/setup.sh build python test
needs-long:
	@tests/setup.sh build python test long
needs-bench:
	@tests/setup.sh build python test bench
needs-deb:
	@tests/setup.sh build deb

clean: ## remove what was built
	rm -rf target $(VENV)

.PHONY: help build built demo check test test-long matrix soak fuzz bench lint setup setup-long install uninstall deb wheel book release seeds clean \
    says-test needs-build needs-lint needs-demo needs-test needs-long needs-bench needs-deb
