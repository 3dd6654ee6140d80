# Works on a fresh machine that has Python 3.11 or newer with venv, and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
# Not for the system tests: they start programs that need the cores themselves.
PARALLEL := --numprocesses auto --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help install run demo check test coverage lint format alerts dashboards deploy graph bench clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED)  ## Install PhaseWatch and the tools of its developers into .venv

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than Python 3.11; give another one: make $(or $(MAKECMDGOALS),install) PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable . --group dev
	touch $@

run: $(INSTALLED)  ## Run the exporter (CONFIG=phasewatch.yml for a configuration of your own)
	$(BIN)/phasewatch serve $(if $(CONFIG),--config.file $(CONFIG))

demo: $(INSTALLED)  ## Watch simulated servers, without a GPU (DEMO=--with-prometheus for Prometheus as well)
	$(BIN)/phasewatch demo $(DEMO)

check: lint  ## Run lint, types, unit and recorded tests, in about a minute
	$(BIN)/pytest -W error $(PARALLEL) tests/unit tests/recorded

test: lint  ## Run everything that CI runs: lint, types, tests
	@scripts/debian-packages
	$(BIN)/pytest -W error $(PARALLEL) tests/unit tests/recorded tests/agreement
	$(BIN)/pytest -W error tests/system

coverage: $(INSTALLED)  ## Run the tests and tell which lines they reach, in twice the time
	@scripts/debian-packages
	$(BIN)/coverage run -m pytest -W error
	$(BIN)/coverage report --skip-covered --sort=cover

lint: $(INSTALLED)  ## Check style and types
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

format: $(INSTALLED)  ## Put the source into form
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

alerts: $(INSTALLED)  ## Write the generated alert rules anew, from alerts/objectives.yml and the thresholds
	$(BIN)/python -m alerts.generate

dashboards: $(INSTALLED)  ## Write the Grafana dashboards anew, from the modules in dashboards/
	$(BIN)/python -m dashboards.generate

deploy: $(INSTALLED)  ## Write the Kubernetes rules anew, from alerts/
	$(BIN)/python deploy/kubernetes/generate.py

graph: $(INSTALLED)  ## Draw the import graph of docs/architecture.md from the code
	$(BIN)/python scripts/import_graph.py

bench: $(INSTALLED)  ## Measure speed and memory (about a minute; MEMORY_SECONDS=600 for the long memory run)
	$(BIN)/python -m bench.bench

clean:  ## Remove everything that was installed or built
	rm -rf $(VENV) dist build .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
