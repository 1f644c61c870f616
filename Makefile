# Two commands are all a newcomer needs: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test rehearse setup format lint types pytest clean

run: setup  ## Train GEQ on the bundled digits and write its report.
	$(BIN)/opteq train

test: setup  ## Every check: format, lint, types, tests, side by side.
	$(MAKE) --jobs=3 lint types pytest

rehearse: setup  ## Every experiment of the papers end to end, with models and data made small.
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup -m rehearsal tests/papers

setup: $(STAMP)  ## Make .venv with the package (editable) and all that development needs.

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=24"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $(STAMP)

format: setup  ## Rewrite the code in the project's format.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/pyright

pytest: setup
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis runs
