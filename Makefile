# Two commands are enough on a fresh machine: `make run` and `make test`.
# Both need python3 (3.10 or later), make and a C++ compiler.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# What trains heads. This release has a build for processors alone on some indexes; `TORCH=` leaves
# it out, and the tests that need it are skipped.
TORCH ?= torch==2.13.0

.PHONY: run test lint clean

run: $(VENV)/.installed
	$(BIN)/spec-cpu demo

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/.installed: pyproject.toml
	@echo "Installing into $(VENV). Building llama.cpp from source takes about 6 minutes on 2 cores;"
	@echo "pip keeps the result, so this happens once."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=23"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH) --editable ".[serve,test,docs,lint]"
	@touch $@

clean:
	rm -rf $(VENV)
