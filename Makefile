# Every target works on a fresh machine with Python 3.11 or newer, pip and make: the rest goes into .venv.

PYTHON ?= python3
override PROMPT := $(value PROMPT)
export PROMPT
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
COMMAND := $(VENV)/.command
READY := $(VENV)/.ready
JUDGES := $(VENV)/judges/.ready

.DEFAULT_GOAL := help
.PHONY: help run test check lint types fix bench peers watch cluster scale session local fuzz soak reference clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

run: $(COMMAND) ## ask the agent what this project does, or PROMPT="..."; without a key on a small model of its own
	@$(BIN)/steersman -- "$${PROMPT:-What does this project do?}"

# The types are checked while the tests run: one core would wait for the other. What is wrong with them is told last.
test: lint $(JUDGES) ## everything that must hold: check, and the tests
	@$(MAKE) types >$(VENV)/types.txt 2>&1 & types=$$!; trap 'kill $$types' INT TERM; \
		$(BIN)/python -m pytest -n 4 --dist worksteal; tests=$$?; \
		wait $$types || { cat $(VENV)/types.txt; exit 1; }; exit $$tests

check: lint types ## format, lint, types and layers, without running tests

lint: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-logo

types: $(READY)
	@$(BIN)/python -m docs.blocks build/documents
	@$(BIN)/basedpyright

fix: $(READY) ## format and mend what ruff can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY) ## measure what the loop, telemetry, an answer over HTTP, and a start, cost against their floors
	@$(BIN)/python -m bench

peers: $(READY) ## measure against a hand-written loop and other libraries, on four protocols; QUICK=1 has shorter jobs
	@$(BIN)/python -m bench.peers $(if $(QUICK),--quick)

watch: $(READY) ## measure two servers on one store, with POSTGRES="host=..." on a database as well
	@$(BIN)/python -m bench.watch $(if $(POSTGRES),--postgres "$(POSTGRES)")

cluster: $(READY) ## PostgreSQL, Temporal, two servers and three workers here; DEMO=1 kills a worker and shows what happens
	@$(BIN)/python -m bench.cluster $(if $(DEMO),--demo)

scale: $(READY) ## measure what workers cost and how they scale, with SESSIONS=1000
	@$(BIN)/python -m bench.scaling $(if $(SESSIONS),--sessions $(SESSIONS))

session: $(READY) ## measure what a session costs against plain commits
	@$(BIN)/python -m bench.session

local: $(READY) ## measure how good and how fast the embedded model is
	@$(BIN)/python -m bench.local

fuzz: $(READY) ## the properties, with 500 new examples each, or EXAMPLES=..., and 100 times as many HTTP responses
	@STEERSMAN_SOAK=1 STEERSMAN_EXAMPLES=$(or $(EXAMPLES),500) $(BIN)/python -m pytest -n 2 -m fuzz --timeout 3600

reference: $(READY) ## write docs/reference from the code
	@$(BIN)/python -m docs.reference

soak: $(READY) ## the long tests
	@STEERSMAN_SOAK=1 $(BIN)/python -m pytest -n 2 -m 'soak and not fuzz' --timeout 3600

clean: ## remove the virtual environment and what tools left behind
	@rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis build dist
	@find . -name '*.egg-info' -prune -exec rm -rf {} +
	@find . -name __pycache__ -prune -exec rm -rf {} +

$(COMMAND): pyproject.toml
	@echo "Setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cli,local,prices]'
	@touch $(COMMAND)

$(READY): $(COMMAND)
	@echo "Adding what the tests need ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(READY)

# The JavaScript clients that judge the server's protocols; without npm the tests that need them are skipped.
$(JUDGES): tests/server/judges/package.json | $(READY)
	@mkdir -p $(VENV)/judges && cp $< $(VENV)/judges/
	@command -v npm >/dev/null && npm install --prefix $(VENV)/judges --no-audit --no-fund --silent >/dev/null 2>&1 \
		&& touch $@ || echo "Without npm: tests with JavaScript clients are skipped."
