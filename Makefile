# Everything a person or a machine does with this project. Needs Python 3.11+, make and a package index.
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= logical
# What `make test` takes; pyproject.toml says what the marks mean.
QUICK := smoke or not slow
LINTED := src tests benchmarks reproduction examples tools deploy docs/conf.py docs/_ext
COVERED := feddbn.federation feddbn.privacy feddbn.core.designs
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS)
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
# Small matrices: more BLAS threads than one cost several times what they gain.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
# Tests start hundreds of interpreters: each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE
# Other people's data (see CONTRIBUTING.md); tests that need them are skipped where they are not.
ifneq ($(wildcard ../shared/data),)
export FEDDBN_DATA ?= $(abspath ../shared/data)
endif

.PHONY: help demo try docs test test-all pool coverage check format bench bench-quick mutants lock clean
help:
	@echo "make demo         simulate ten sites, learn, compare, write demo/report.html"
	@echo "make try          run three sites and a masked study on this machine, and open the report"
	@echo "make test         checks and the tests that guard a promise (four to eight minutes on two cores)"
	@echo "make test-all     that, then the rest: platforms, R, containers, documentation, benchmarks, slow statistics"
	@echo "make docs         run the tutorials and build the documentation site, offline: out/docs/index.html"
	@echo "make coverage     how much of federation, privacy and the designs the tests of their parts run"
	@echo "make check        ruff, mypy, import layers"
	@echo "make format       let ruff format the code"
	@echo "make bench        the measurements behind the documentation's tables (long)"
	@echo "make bench-quick  the same with few repetitions"
	@echo "make mutants      take each guard of a site out alone, and say which no test notices (an hour; ONLY=few-rows: some)"
	@echo "make lock         write requirements.lock: the versions the tests ran with, and their hashes"
	@echo "make clean        remove the virtual environment and caches"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "feddbn needs Python 3.11 or newer, but '$(PYTHON)' is" \
	  "$$($(PYTHON) --version 2>&1); try: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo-installed: pyproject.toml | $(BIN)/python
	@echo "Installing feddbn into $(VENV) (once) ..."
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.try-installed: pyproject.toml | $(BIN)/python
	@echo "Installing feddbn and what a federation needs into $(VENV) (once) ..."
	@$(PIP) install --editable '.[privacy]'
	@touch $@ $(VENV)/.demo-installed

$(VENV)/.test-installed: pyproject.toml tests/support/vantage6.txt | $(BIN)/python
	@echo "Installing feddbn and what its tests need into $(VENV) (once, some minutes) ..."
	@$(PIP) install --editable '.[all,test,check]'
	@$(PIP) install --no-deps --upgrade --target $(VENV)/vantage6 -r tests/support/vantage6.txt
	@touch $@ $(VENV)/.demo-installed $(VENV)/.try-installed

$(VENV)/.docs-installed: pyproject.toml | $(BIN)/python
	@echo "Installing feddbn and what its documentation needs into $(VENV) (once, some minutes) ..."
	@$(PIP) install --editable '.[all,docs]'
	@touch $@ $(VENV)/.demo-installed

$(VENV)/.bench-installed: pyproject.toml | $(BIN)/python
	@echo "Installing feddbn and what its benchmarks need into $(VENV) (once, some minutes) ..."
	@$(PIP) install --editable '.[all,bench]'
	@touch $@ $(VENV)/.demo-installed

demo: $(VENV)/.demo-installed
	@$(BIN)/feddbn demo --out demo

# Options go into TRY, such as TRY="--no-open --keep kept".
try: $(VENV)/.try-installed
	@$(BIN)/feddbn federation try $(TRY)

check: $(VENV)/.test-installed
	$(BIN)/ruff check $(LINTED)
	$(BIN)/ruff format --check --quiet $(LINTED)
	$(BIN)/mypy
	$(BIN)/lint-imports

# The checks run beside the tests, and one pool of workers takes all tests (tests/conftest.py says which stay together).
test: $(VENV)/.test-installed
	@$(MAKE) --no-print-directory --keep-going -j2 check pool

# Its tests write to memory where 2 GB of it are offered as a folder: nobody waits for a disk.
pool: export PYTEST_DEBUG_TEMPROOT ?= $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 2000000 {print $$6}')
pool: $(VENV)/.test-installed
	$(PYTEST) -m "$(QUICK)"

# What `make test` left out, and the laws again with ten times the examples. Of reproduction/requirements.txt only pooch:
# lingam would take numpy and scipy back to versions that nothing else was tested with.
test-all: test
	$(PYTEST) -m "not ($(QUICK)) or hypothesis" --hypothesis-profile=thorough
	@$(PIP) install "$$(grep '^pooch' reproduction/requirements.txt)"
	$(PYTEST) reproduction/tests
	$(DOCTEST)

# The examples in docstrings.
DOCTEST = $(BIN)/python -m pytest -q -W ignore::feddbn.errors.ResultWarning --doctest-modules --doctest-ignore-import-errors src/feddbn

# Tutorials that changed run when the site is built; a warning, such as a link that leads nowhere, is an error.
docs: $(VENV)/.docs-installed
	FEDDBN_DOCS_CACHE=$(abspath out/docs-cache) $(BIN)/python -m sphinx -q -W --keep-going -b html docs out/docs
	@echo "open out/docs/index.html"

coverage: $(VENV)/.test-installed
	$(BIN)/python -m pytest -q -m "not slow" --cov-branch --cov-report=term-missing:skip-covered \
	  $(addprefix --cov=,$(COVERED)) tests/unit tests/contract tests/property tests/redteam

format: $(VENV)/.test-installed
	$(BIN)/ruff check --fix --quiet $(LINTED) || true
	$(BIN)/ruff format $(LINTED)

bench: $(VENV)/.bench-installed
	$(BIN)/python benchmarks/demo_table.py 10
	$(BIN)/python benchmarks/run.py --full
	$(BIN)/python -m benchmarks truth
	$(BIN)/python -m benchmarks replicate

# About an hour: ONLY=few-rows takes some guards out, not all.
mutants: $(VENV)/.test-installed
	$(BIN)/python tools/mutate_guards.py --only "$(ONLY)"

bench-quick: $(VENV)/.bench-installed
	$(BIN)/python benchmarks/demo_table.py 2
	$(BIN)/python benchmarks/run.py --quick
	$(BIN)/python -m benchmarks truth --kind clean --seeds 2

# Every file of every version has its hash, so the lock serves all systems; what is resolved is held to what is installed here.
# The old files are out of the way first: uv would keep their hashes, also where some are missing.
COMPILE = $(VENV)-lock/bin/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links
lock: $(VENV)/.test-installed
	@$(PYTHON) -m venv --clear $(VENV)-lock && $(VENV)-lock/bin/python -m pip -qq install uv
	@$(PIP) freeze --exclude-editable | grep '==' > $(VENV)-lock/installed.txt
	$(COMPILE) --extra all --constraint $(VENV)-lock/installed.txt --output-file $(VENV)-lock/requirements.lock pyproject.toml
	echo 'vantage6-algorithm-tools==4.15.2' > $(VENV)-lock/vantage6.txt
	$(COMPILE) --python-version 3.11 --extra privacy --extra sql --output-file $(VENV)-lock/vantage6.lock pyproject.toml $(VENV)-lock/vantage6.txt
	echo 'setuptools>=70.1' | $(COMPILE) --output-file $(VENV)-lock/build.lock -
	@mv $(VENV)-lock/requirements.lock requirements.lock && mv $(VENV)-lock/build.lock deploy/build.lock && \
	  mv $(VENV)-lock/vantage6.lock deploy/vantage6/requirements.lock

clean:
	rm -rf $(VENV) $(VENV)-lock .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage
