# `make run` shows what is here, `make serve` serves it, `make test` proves it. All make their own environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
# What an extra requires: `pip install -e '.[extra]'` would compile the native part once more.
INSTALL = $(BIN)/python packaging/requirements.py $(1) > $(VENV)/$(1).txt && $(PIP) -r $(VENV)/$(1).txt
CPP := src/samebits/kernels/cpp
CLIENTS_VENV := .venv-clients
OLDER_CLIENTS := $(addprefix tests/clients/test_,instructor_client.py litellm_client.py reasoning_clients.py)
TRITON_VENV := .venv-triton
TRITON_PYTEST := PYTHONPATH=src $(TRITON_VENV)/bin/python -m pytest -n 2 tests/triton
NAGA := tests/webgpu/naga
SECONDS ?= 60
# Test processes. Twice the two cores they are made for: tests of servers, clusters and other processes mostly wait.
WORKERS ?= 4
# Nothing but slow tests: read, they would cost each process of `make quick` a second or two.
SLOW_FILES := native scale webgpu server/test_server_schema.py server/test_server_page.py
ROOMS := $(filter-out clients triton,$(sort $(notdir $(patsubst %/,%,$(dir $(wildcard tests/*/test_*.py))))))
TORCH ?= torch==2.13.0
TRITON ?= triton==3.6.0
NVRTC ?= nvidia-cuda-nvrtc==13.*
NATIVE := pyproject.toml CMakeLists.txt $(wildcard $(CPP)/*.cpp $(CPP)/*/*.cpp $(CPP)/*/*.h src/samebits/loaders/cpp/*)

.PHONY: run serve test quick clients fuzz test-triton test-triton-interpreted test-triton-compiled lint types docs man golden format native-test native-test-arm native-test-windows asan tsan wheels cross-wheels site clean

run: $(VENV)/.core
	@echo '$$ samebits run smollm2 "Why is the sky blue?" --temp 0'
	@$(BIN)/samebits run smollm2 "Why is the sky blue?" --temp 0 --max-tokens 48
	@echo; echo '$$ samebits tour'
	@$(BIN)/samebits tour

# The page is at http://127.0.0.1:8000; "Prove it" is one of its views.
serve: $(VENV)/.core
	@$(BIN)/samebits serve

# The default model, and the translator of shaders, are fetched where the network allows; tests that need them are
# skipped with a reason elsewhere.
test: $(VENV)/.dev lint types
	-@$(BIN)/samebits pull
	-@[ -d $(NAGA)/node_modules ] || ! command -v npm >/dev/null || npm ci --silent --ignore-scripts --prefix $(NAGA)
	@$(BIN)/pytest -n $(WORKERS) --junitxml build/tests.xml

# While you change things: lint, and the tests without the marker `slow`. `make quick ROOM=scheduler` runs all of one
# folder of tests, slow ones included.
quick: $(VENV)/.dev
ifdef ROOM
	@[ -n "$(filter $(ROOM),$(ROOMS))" ] || { echo "no tests/$(ROOM); ROOM is one of: $(ROOMS)"; exit 2; }
	@$(BIN)/ruff check $(wildcard src/samebits/$(ROOM)) tests/$(ROOM)
	@$(BIN)/ruff format --check $(wildcard src/samebits/$(ROOM)) tests/$(ROOM)
	@$(BIN)/pytest -n 2 tests/$(ROOM)
else
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pytest -n 2 -m "not slow" $(SLOW_FILES:%=--ignore tests/%)
endif

# Clients that people use, unchanged, against a server with the default model; their warnings are theirs. A
# client is skipped in the environment that does not have it, and tried in the other.
clients: $(VENV)/.clients $(CLIENTS_VENV)/.ready
	-@$(BIN)/samebits pull
	@$(BIN)/pytest -n 0 -W default tests/clients
	@$(CLIENTS_VENV)/bin/python -m pytest -n 0 -W default $(OLDER_CLIENTS)

# Every target in tests/fuzz, two at a time: make fuzz SECONDS=600
fuzz: $(VENV)/.dev
	@$(BIN)/python tests/fuzz/run_all.py --seconds $(SECONDS)

# The GPU kernels without a GPU, in an environment that has torch: in Triton's interpreter, and compiled for GPUs.
# Runs from the source tree, without the native part.
test-triton: test-triton-interpreted test-triton-compiled

test-triton-interpreted: $(TRITON_VENV)/.ready
	@TRITON_INTERPRET=1 $(TRITON_PYTEST)

test-triton-compiled: $(TRITON_VENV)/.ready
	@$(TRITON_PYTEST)

lint: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.dev
	@$(BIN)/mypy

docs: $(VENV)/.dev
	@$(BIN)/python -m samebits.cli.ops_docs docs/ops.md
	@$(BIN)/python -m samebits.cli.request_docs docs/requests.md
	@$(BIN)/python -m samebits.cli.receipt_docs docs/receipt.schema.json
	@$(BIN)/python tests/verify/defects_page.py docs/defects.md

# The manual page, which `man -l docs/samebits.1` shows.
man: $(VENV)/.core
	@$(BIN)/python -m samebits.cli.man_page docs/samebits.1

golden: $(VENV)/.core
	@$(BIN)/samebits golden make golden --small --force

# Every instruction set against the others: those of this CPU, and of emulated ones of aarch64 where qemu is found, with
# a cross compiler on another architecture.
native-test: $(VENV)/.core
	@$(BIN)/python tests/native/native_bits.py

# Those of aarch64 alone, on emulated CPUs: needs Debian's g++-aarch64-linux-gnu and qemu-user, or likewise.
native-test-arm: $(VENV)/.core
	@$(BIN)/python tests/native/native_bits.py --emulated

# Those of the Windows wheel, as programs for Windows under wine: needs Debian's wine and wine64.
native-test-windows: $(VENV)/.core
	@$(call INSTALL,wheels)
	@$(BIN)/python tests/native/native_bits.py --windows

# The same kernels, with spoiled data, and the team of threads, under sanitizers.
asan: $(VENV)/.core
	@$(BIN)/python tests/native/native_bits.py --sanitize address,undefined

tsan: $(VENV)/.core
	@$(BIN)/python tests/native/native_bits.py --sanitize thread

# Wheels of this architecture and the sdist, into dist/, each tried in an environment of its own.
wheels: $(VENV)/.core
	@$(call INSTALL,wheels)
	@$(BIN)/python packaging/build_wheels.py

# Wheels for Windows and macOS, into dist/, by PyPI's ziglang: examined, and never installed.
cross-wheels: $(VENV)/.core
	@$(call INSTALL,wheels)
	@$(BIN)/python packaging/cross_build.py

# The pages of docs/ as a site with search, into build/site.
site: $(VENV)/.core
	@$(call INSTALL,site)
	@$(BIN)/mkdocs build --strict

format: $(VENV)/.dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

$(BIN)/python:
	@echo "making the environment $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python $(NATIVE)
	@$(BIN)/python packaging/install.py
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "installing the test tools"
	@$(call INSTALL,dev)
	@touch $@

$(VENV)/.clients: $(VENV)/.dev
	@echo "installing clients"
	@$(call INSTALL,clients)
	@touch $@

# A layer over the first environment for clients that need older packages than our tools; pip names those that clash.
$(CLIENTS_VENV)/.ready: $(VENV)/.clients
	@echo "installing clients that need older packages, into $(CLIENTS_VENV)"
	@$(BIN)/python packaging/layer.py $(CLIENTS_VENV)
	@$(BIN)/python packaging/requirements.py older-clients > $(CLIENTS_VENV)/requirements.txt
	@$(CLIENTS_VENV)/bin/python -m pip install -qq --disable-pip-version-check -r $(CLIENTS_VENV)/requirements.txt
	@touch $@

# torch first: its own requirements must not choose another Triton
$(TRITON_VENV)/.ready: pyproject.toml
	@echo "making the environment $(TRITON_VENV)"
	@$(PYTHON) -m venv $(TRITON_VENV)
	@$(PYTHON) -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
		tools = [d for d in p["optional-dependencies"]["dev"] if d.startswith(("pytest", "hypothesis"))]; \
		print(*p["dependencies"], *tools, sep="\n")' > $(TRITON_VENV)/requirements.txt
	@$(TRITON_VENV)/bin/python -m pip install -qq --disable-pip-version-check '$(TORCH)'
	@$(TRITON_VENV)/bin/python -m pip install -qq --disable-pip-version-check '$(TRITON)' '$(NVRTC)' -r $(TRITON_VENV)/requirements.txt
	@touch $@

clean:
	rm -rf $(VENV) $(CLIENTS_VENV) $(TRITON_VENV) $(NAGA)/node_modules build dist
