# Every target works on a fresh machine: it creates .venv and installs what it needs there.
PYTHON ?= python3
DATA ?=
# The recipe reads it as a variable of the shell: a path may have quotes.
export DATA
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# A CUDA build of torch brings its own Triton; the CPU build needs one for the kernel tests.
TRITON := $(BIN)/python -c "import triton" 2>/dev/null || $(PIP) triton==3.6.0
# Empty where there is no NVIDIA GPU.
GPU := $(shell nvidia-smi -L 2>/dev/null | head -n 1)
WORKERS ?= 2
# Of the CUDA toolkit.
SANITIZER ?= compute-sanitizer
TOOL ?= memcheck

.PHONY: help demo test sanitizer check lint format types examples wheel bench clean

help:  ## print every target
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.demo: .venv/bin/python pyproject.toml
	$(PIP) -e '.[examples$(if $(GPU),$(comma)gpu)]'
	@touch $@

.venv/.test: .venv/bin/python pyproject.toml
	$(PIP) 'torch==2.13.*' -e '.[test,examples]'
	$(PIP) --no-deps torchrec==1.8.0
	$(TRITON)
	@touch $@

.venv/.dev: .venv/.test
	$(PIP) -e '.[dev]'
	@touch $@

comma := ,

demo: .venv/.demo  ## train a small HSTU recommender: synthetic data, or DATA=path/to/file
	$(BIN)/python -m examples.train_recommender $(if $(DATA),--data "$$DATA") $(ARGS)

test: .venv/.test  ## install what the tests need and run them
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

sanitizer: .venv/.test  ## every op and kernel under compute-sanitizer on a GPU, TOOL=memcheck (racecheck, initcheck)
	$(BIN)/python -m tests.kernels.memcheck $(ARGS)
	$(SANITIZER) --tool $(TOOL) --report-api-errors no --error-exitcode 9 $(BIN)/python -m tests.kernels.memcheck $(ARGS)

check: lint types test examples wheel  ## everything that CI runs

lint: .venv/.dev  ## formatting and lint rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: .venv/.dev  ## format the tree in place
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: .venv/.dev  ## mypy --strict and pyright
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

examples: .venv/.test  ## run every small example
	$(BIN)/python -m examples.pool_features
	$(BIN)/python -m examples.hstu_block
	$(BIN)/python -m examples.ranking_mlp
	$(BIN)/python -m examples.torchrec_model
	$(BIN)/python -m examples.read_parquet

wheel: .venv/.dev  ## build the wheel and the sdist into dist/
	rm -rf dist build
	$(BIN)/python -m build --outdir dist .

bench: .venv/.test  ## measure every op against its best alternative (on a GPU where there is one)
	$(BIN)/python -m bench.run $(if $(GPU),,--cpu) $(ARGS)

clean:  ## remove what the targets made
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
