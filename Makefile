# Two commands: `make run` shows what is here, `make test` proves it. Both make their own environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
CPP := src/samebits/kernels/cpp
NATIVE := pyproject.toml CMakeLists.txt $(wildcard $(CPP)/*.cpp $(CPP)/*/*.cpp $(CPP)/*/*.h)

.PHONY: run test lint types docs golden format clean

run: $(VENV)/.core
	@$(BIN)/samebits tour
	@echo; echo '$$ samebits chat "Why is the sky blue?"'
	@$(BIN)/samebits chat "Why is the sky blue?" --max-tokens 48

# The default model is fetched where the network allows; tests that need it are skipped with a reason elsewhere.
test: $(VENV)/.dev lint types
	-@$(BIN)/samebits pull
	@$(BIN)/pytest -n 2

lint: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.dev
	@$(BIN)/mypy

docs: $(VENV)/.core
	@$(BIN)/python -m samebits.cli.ops_docs docs/ops.md

golden: $(VENV)/.core
	@$(BIN)/samebits golden make golden --small --force

format: $(VENV)/.dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

$(BIN)/python:
	@echo "making the environment $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python $(NATIVE)
	@echo "building and installing samebits"
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "installing the test tools"
	@$(PIP) -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build
