# make study   sets up .venv if need be and runs the main study on its embedded default
# make slots   sets it up with what text needs and gives words their slots
# make studies sets it up with what the report needs, runs every study of theory against measurement, and reports
# make test    sets up .venv with the development tools, lints, and runs the tests
# make test-full  adds the long checks

PYTHON ?= python3
VENV ?= .venv
WORKDIR ?= runs/gradient_norms
SLOTS ?= runs/slot_filling
STUDIES ?= runs/studies
BIN := $(VENV)/bin
SETUP := setup.cfg pyproject.toml

.PHONY: study slots studies test test-full lint format clean

study: $(VENV)/.installed
	$(BIN)/python -m experiments.gradient_norms --workdir=$(WORKDIR)

slots: $(VENV)/.installed-text
	$(BIN)/python -m experiments.slot_filling --workdir=$(SLOTS)

studies: $(VENV)/.installed-report
	$(BIN)/python -m launch.studies --workdir=$(STUDIES)

test: lint
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not full"

test-full: lint
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("rnnjax needs Python 3.11 or newer: make PYTHON=python3.12, for example")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(SETUP) | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check -e .
	touch $@

$(VENV)/.installed-text: $(SETUP) | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[text]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-report: $(SETUP) | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[report]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-dev: $(SETUP) | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/.installed $(VENV)/.installed-text $(VENV)/.installed-report

clean:
	rm -rf $(VENV) build dist *.egg-info
