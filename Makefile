# Two commands: `make run` shows what is here, `make test` proves it. Both make their own environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
CPP := src/samebits/kernels/cpp
NATIVE := pyproject.toml CMakeLists.txt $(wildcard $(CPP)/*.cpp $(CPP)/*/*.cpp $(CPP)/*/*.h)

.PHONY: run test lint types docs golden format native-test asan tsan clean

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

# Every instruction set against the others: those of this CPU, and aarch64's where a cross compiler and qemu are found.
native-test: $(VENV)/.core
	@$(BIN)/python tests/native/native_bits.py

# The same kernels, with spoiled data, and the team of threads, under sanitizers.
asan: $(VENV)/.core
	@$(BIN)/python tests/native/native_bits.py --sanitize address,undefined

tsan: $(VENV)/.core
	@$(BIN)/python tests/native/native_bits.py --sanitize thread

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
