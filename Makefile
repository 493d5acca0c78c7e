# Every target sets up what it needs: .venv is made once, from requirements.lock, and again only when that changes.
# A Python 3.11 or newer, git, make and bash are all that must be there; PYTHON=... chooses another Python.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# A shim may be on the PATH and still not run, so a Python counts only if it starts.
PYTHON ?= $(or $(shell for p in python3.11 python3; do $$p -c "" 2>/dev/null && echo $$p && break; done),python3)
VENV := .venv
BIN := $(VENV)/bin
SMOKE := build/smoke

# DVC stages call `fedrepro` by name.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup repro test quick smoke bench lock readme clean

help: ## list the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 16

setup: $(VENV)/.stamp ## make .venv from requirements.lock

$(VENV)/.stamp: requirements.lock pyproject.toml
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "fedrepro needs Python 3.11 or newer, which '$(PYTHON)' is not: name one, as in 'make PYTHON=python3.11'." >&2; \
	  exit 2; }
	'$(PYTHON)' -m venv $(VENV)
	$(BIN)/pip install --require-hashes -r requirements.lock
	$(BIN)/pip install --no-deps --no-build-isolation -e .
	touch $@

repro: setup ## bring results up to date, write the page, compare with papers
	$(BIN)/dvc repro
	$(BIN)/fedrepro report
	$(BIN)/fedrepro show table flgames-2022 table1
	$(BIN)/fedrepro check

test: setup ## lint, run the tests
	$(BIN)/ruff check .
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

# tests/conftest.py chooses: a new test is in unless it is marked slow, so there is no list to keep.
quick: setup ## lint; first case of each test not marked slow; under 90 s
	$(BIN)/ruff check .
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder --quick --durations 5

# A copy of the sources without any result, budget `smoke`, no data folder: the whole pipeline from nothing.
# The copy comes first on PYTHONPATH, so that it runs its own sources and not those of this folder.
smoke: setup ## the whole pipeline from nothing, on embedded data, in minutes
	rm -rf $(SMOKE)
	mkdir -p $(SMOKE)
	git ls-files --cached --others --exclude-standard -- . ':!runs' ':!studies' ':!reports' ':!*dvc.lock' \
	  | while read -r file; do if [ -e "$$file" ]; then echo "$$file"; fi; done \
	  | tar -cf - -T - | tar -xf - -C $(SMOKE)
	sed -E -i.paper -e 's/budget: .*/budget: smoke/' -e 's/^sources: .*/sources: [digits, drawn]/' \
	  -e 's/^extractors: .*/extractors: [digits]/' $(SMOKE)/params.yaml
	cd $(SMOKE) && unset FEDREPRO_DATA_DIR && export PYTHONPATH="$$PWD" && dvc config core.no_scm true \
	  && dvc repro && fedrepro report && fedrepro show table flgames-2022 table1

bench: setup ## measure the workloads of benchmarks/
	for workload in W1 W2 W3 W4; do $(BIN)/fedrepro bench $$workload; done

# Versions that are locked already stay; `make lock UPGRADE=torch` takes the newest one of that package.
lock: setup ## renew requirements.lock after a change of pyproject.toml
	$(BIN)/pip install uv
	echo setuptools | $(BIN)/uv pip compile pyproject.toml - --extra test --output-file requirements.lock $(UPGRADE:%=--upgrade-package=%) \
	  --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
	  --no-annotate --no-header --no-emit-index-url --no-emit-find-links

# A page has a rendered file between <!-- NAME:begin --> and <!-- NAME:end -->.
readme: setup ## copy the rendered tables and summaries into README.md and docs/
	mkdir -p build
	{ echo '```text'; COLUMNS=80 $(BIN)/fedrepro show table flgames-2022 table1; echo '```'; } > build/table1.md
	for file in build/table1.md reports/summary.md reports/*/rendered/summary.md; do \
	  name=$$(basename "$$file" .md); \
	  case $$file in reports/summary.md) name=papers;; */summary.md) name=$$(cut -d/ -f2 <<< $$file);; esac; \
	  sed -E -i.old -e "/<!-- $$name:begin -->/,/<!-- $$name:end -->/{//!d;}" \
	    -e "/<!-- $$name:begin -->/r $$file" README.md docs/what-reproduces.md; \
	done
	rm README.md.old docs/what-reproduces.md.old

clean: ## remove what is cheap to make again (no results, data)
	rm -rf build .pytest_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
