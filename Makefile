# Everything a person or a machine does with this project. Needs Python 3.11+, make and a package index.
PYTHON ?= python3
VENV ?= .venv
ENGINES := $(wildcard tests/integration/test_nvflare_*.py tests/integration/test_flower.py \
  tests/integration/test_deployment_guide.py)
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
# Small matrices: more BLAS threads than one cost several times what they gain.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
# Other people's data (see CONTRIBUTING.md); tests that need them are skipped where they are not.
ifneq ($(wildcard ../shared/data),)
export FEDDBN_DATA ?= $(abspath ../shared/data)
endif

.PHONY: help demo test check format bench bench-quick clean
help:
	@echo "make demo         simulate ten sites, learn, compare, write demo/report.html"
	@echo "make test         checks and all tests"
	@echo "make check        ruff, mypy, import layers"
	@echo "make format       let ruff format the code"
	@echo "make bench        the measurements behind the documentation's tables (long)"
	@echo "make bench-quick  the same with few repetitions"
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

$(VENV)/.test-installed: pyproject.toml | $(BIN)/python
	@echo "Installing feddbn and what its tests need into $(VENV) (once, some minutes) ..."
	@$(PIP) install --editable '.[all,test,check]'
	@touch $@ $(VENV)/.demo-installed

$(VENV)/.bench-installed: pyproject.toml | $(BIN)/python
	@echo "Installing feddbn and what its benchmarks need into $(VENV) (once, some minutes) ..."
	@$(PIP) install --editable '.[all,bench]'
	@touch $@ $(VENV)/.demo-installed

demo: $(VENV)/.demo-installed
	@$(BIN)/feddbn demo --out demo

check: $(VENV)/.test-installed
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check --quiet src tests
	$(BIN)/mypy
	$(BIN)/lint-imports

# The engines are many processes with time limits of their own: their tests run one after another in one process, beside
# all other tests, so that they do not wait for one another and the running NVFlare federation is started once.
test: check
	@$(BIN)/python -m pytest $(ENGINES) >$(VENV)/engines.log 2>&1 & engines=$$!; \
	$(BIN)/python -m pytest $(addprefix --ignore=,$(ENGINES)); rest=$$?; \
	wait $$engines; engines=$$?; cat $(VENV)/engines.log; exit $$((rest + engines))

format: $(VENV)/.test-installed
	$(BIN)/ruff check --fix --quiet src tests || true
	$(BIN)/ruff format src tests

bench: $(VENV)/.bench-installed
	$(BIN)/python benchmarks/demo_table.py 10
	$(BIN)/python benchmarks/fdbnl_objective.py
	$(BIN)/python benchmarks/run.py --full

bench-quick: $(VENV)/.bench-installed
	$(BIN)/python benchmarks/demo_table.py 2
	$(BIN)/python benchmarks/run.py --quick

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
