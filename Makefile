PYTHON ?= python3
SEEDS ?= 500
MINUTES ?= 10
SEED ?= 1
ENGINE_SEEDS ?= 50
PROFILE_SEEDS ?= 50
PROFILES := restores relaxed losses retention identity sessions
KEEP ?= 0
PROVIDER ?= source

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-for-demo
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup venv check test e2e sim soak demo bench bench-guard chart proto fmt clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv and install Shardlog with its tools (only when something changed)

$(STAMP): pyproject.toml constraints.txt
	@$(MAKE) --no-print-directory venv
	@echo "setup: installing Shardlog and its tools into $(VENV), once: 1.1 GB, some minutes"
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@ $(DEMO_STAMP)

$(DEMO_STAMP): pyproject.toml constraints.txt
	@$(MAKE) --no-print-directory venv
	@echo "demo: installing Shardlog into $(VENV), once: about 110 MB"
	@$(PIP_INSTALL) -e '.[node]'
	@touch $@

venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "setup: Python 3.11 or newer is needed ($(PYTHON) is not): make PYTHON=python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "setup: $(PYTHON) cannot make a virtual environment: apt-get install python3-venv" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)

check: setup ## Lint, format check, types and import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: setup ## All tests, then SEEDS simulated runs (some on the engine, some by profile), mutants, exploration
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder --durations 15
	$(BIN)/shardlog sim run --seeds $(SEEDS)
	$(BIN)/shardlog sim run --seeds $(ENGINE_SEEDS) --engine
	for each in $(PROFILES); do $(BIN)/shardlog sim run --profile $$each --seeds $(PROFILE_SEEDS) || exit; done
	$(BIN)/shardlog sim mutants
	$(BIN)/shardlog sim explore

e2e: setup ## On a real Kubernetes, built from source once: PROVIDER=kind for kind, KEEP=1 keeps it
	KEEP=$(KEEP) PROVIDER=$(PROVIDER) $(BIN)/pytest e2e --timeout 1800 --durations 10

sim: setup ## Simulated runs only: make sim SEEDS=100000
	$(BIN)/shardlog sim run --seeds $(SEEDS)

soak: setup ## Damage files of live nodes under load: make soak MINUTES=10 SEED=1
	@PYTHONPATH=tests $(BIN)/python -m faults.soak --minutes $(MINUTES) --seed $(SEED)

demo: $(DEMO_STAMP) ## Watch a real cluster lose its leader, grow, shrink, and lose no record
	@$(BIN)/shardlog demo

bench: setup ## Beside Kafka, NATS and etcd, into docs/benchmarks.md: QUICK=1 (10 of 60 minutes), ANYWAY=1
	@mkdir -p build/bench
	$(BIN)/python -m bench.compare build/bench --page $(if $(QUICK),--quick) $(if $(ANYWAY),--anyway)

bench-guard: setup ## Does the hot path cost more than it did? (BASELINE=1: what it costs now is right)
	@PYTHONPATH=tests $(BIN)/python -m bench.guard $(if $(BASELINE),--write)

chart: ## Copy crds/ into the chart
	rm -f charts/shardlog/files/crds/*.yaml
	cp crds/*.yaml charts/shardlog/files/crds/

proto: setup ## Make the Python code for shardlog/{transport,metadata}/proto/**/*.proto
	$(BIN)/python -m shardlog.transport.proto.regenerate
	$(BIN)/python -m shardlog.metadata.proto.regenerate

fmt: setup ## Format and fix what can be fixed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## Remove .venv, caches and build output
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
