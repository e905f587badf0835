# On a fresh machine: `make demo` and `make test`; `make test-fast` leaves out what takes long, `make test-integration`
# works with other programs, `make test-examples` runs the examples of the documentation, `make test-training` the scripts
# of training/ at a small size, `make test-lowest` tries the lowest versions of what it depends on, `make test-peers`
# compares with other packages, `make figures` draws every figure of the gallery and `make tables` writes the pages'
# tables, `make docs` builds the documentation, `make reproduce TABLE=casimac_1` measures a table of the papers again, and
# without TABLE all of them; `make robustness` draws random and odd inputs. Each makes its own virtual environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first imported, not all those that are installed.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile
ELSEWHERE := --ignore tests/integration --ignore tests/training
SEED ?= $(shell date +%s)
export TF_CPP_MIN_LOG_LEVEL ?= 3
# Loading TensorFlow takes four times as long in every process where compiled modules may not be kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo docs figures tables reproduce robustness lint clean
.PHONY: test test-fast test-integration test-examples test-training test-lowest test-peers

demo: $(VENV)/.installed
	$(BIN)/deepsimplex train --config configs/digits.yaml

figures: $(VENV)/.installed
	$(BIN)/python -m training.gallery
	$(BIN)/python -m training.unknown_pieces

# Of the pages, from training/results.
tables: $(VENV)/.installed
	$(BIN)/python -m training.pages

# Data sets are looked for in the folder that DEEPSIMPLEX_DATA names; an interrupted command goes on where it was.
reproduce: $(VENV)/.installed
	$(BIN)/python -m training.tables $(TABLE)

test: $(VENV)/.installed-test lint
	$(BIN)/python -m pytest -n 2 $(ELSEWHERE) -m "not examples"

# Other programs and processes: ONNX Runtime, LiteRT, TensorFlow alone, Ray, browsers, worker processes, scikit-learn's
# checks, the package as it is installed.
test-integration: $(VENV)/.installed-integration
	$(BIN)/python -m pytest -n 2 tests/integration

# The examples of the documentation's pages and of docstrings, the notebooks and the figures.
test-examples: $(VENV)/.installed-integration
	$(BIN)/python -m pytest -n 2 -m examples

# The papers' tables, benchmarks and searches for failures.
test-training: $(VENV)/.installed-integration
	$(BIN)/python -m pytest -n 2 tests/training -m "not examples"

test-fast: $(VENV)/.installed-test lint
	$(BIN)/python -m pytest -n 2 $(ELSEWHERE) -m "not slow and not examples"

# Random examples of the property tests, odd arguments, damaged files and killed writers: what is found becomes an example.
robustness: $(VENV)/.installed-integration
	$(BIN)/python -m pytest -n 2 -m hypothesis --hypothesis-profile random
	$(BIN)/python -m training.robustness.fuzz --seed $(SEED)
	$(BIN)/python -m training.robustness.damage --seed $(SEED)
	$(BIN)/python -m training.robustness.kills --seed $(SEED)

# With the lowest versions of the packages that pyproject.toml names: what users may have installed.
test-lowest: $(VENV)-lowest/.installed
	$(VENV)-lowest/bin/deepsimplex --help > /dev/null
	$(VENV)-lowest/bin/python -m pytest -n 2 -m "not slow" -W default
	$(VENV)-lowest/bin/python -m pytest -n 2 tests/test_readme.py -k README -W default

# The packages that results are compared with, among them torch.
test-peers: $(VENV)-peers/.installed
	$(VENV)-peers/bin/python -m pytest -m peers -W default

# Strict: a warning or a dead link is an error.
docs: $(VENV)/.installed-docs build/notebooks/.executed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo build/site/index.html

build/notebooks/.executed: $(wildcard notebooks/*.py) | $(VENV)/.installed-docs
	$(BIN)/python -m training.notebooks
	@touch $@

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) $(VENV)-lowest $(VENV)-peers build *.egg-info

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
		{ echo "deepsimplex needs Python 3.11 to 3.13; name one with: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --editable '.[test]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-integration: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --editable '.[test,integration]'
	@touch $@ $(VENV)/.installed-test $(VENV)/.installed

$(VENV)-lowest/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet uv
	$(VENV)-lowest/bin/uv pip install --quiet --python $(VENV)-lowest --resolution lowest-direct --editable '.[test,integration]'
	@touch $@

$(VENV)-peers/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-peers
	$(VENV)-peers/bin/python -m pip install --quiet --editable '.[test,integration,peers]'
	@touch $@

$(VENV)/.installed-docs: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --editable '.[docs]'
	@touch $@ $(VENV)/.installed
