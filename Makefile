# SPDX-License-Identifier: Apache-2.0
# `make help` lists what there is to do. Every target sets up what it needs, so any of them can come first.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# A Python 3.11 or newer with its standard library; everything else runs on .venv, which set-up makes with it.
PYTHON ?= python3
CLANG ?= clang
LLVM_STRIP ?= llvm-strip
# More arguments for pytest: make test PYTEST='-k approval -x'
PYTEST ?=
# The stack that `make verify` looks at.
STACK ?= dev
OPTIONS ?=
# How many tests run side by side. Those that trace do not: each sees the whole machine.
LANES ?= 3
# Of `make test-failures`: which stacks, and which of the ways' turns (tests/engine/failures.py).
STACKS ?= dev staging prod
TURNS ?= 0 1 2 3 4 5 6 7 8 9

VENV := .venv/bin
DEPENDENCIES := .venv/dependencies
BPF_OBJECT := agent/gpuheap/tracer/gpuheap.bpf.o
BPF_ARCHITECTURE := $(subst x86_64,x86,$(subst aarch64,arm64,$(shell uname -m)))
C_FILES = $(shell find bench bpf tests -name '*.[ch]')

.PHONY: help setup bpf demo verify up down check test test-failures test-torch bench format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## find or build all that is needed (the first time builds for half an hour; once for each user)
	@$(PYTHON) -m localcloud.toolchain
	@if command -v $(CLANG) >/dev/null && [ -f /usr/include/bpf/bpf_helpers.h ]; then $(MAKE) bpf; fi

bpf: $(BPF_OBJECT) ## build the eBPF object
	@:

# The include path holds asm/: clang looks for it under the target's name, and `bpf` has no such folder.
$(BPF_OBJECT): $(wildcard bpf/*) Makefile
	@$(CLANG) -target bpf -mcpu=v3 -D__TARGET_ARCH_$(BPF_ARCHITECTURE) -I/usr/include/$(shell uname -m)-linux-gnu \
		-O2 -g -Wall -Wextra -Wno-unused-parameter -Werror -c bpf/gpuheap.bpf.c -o $@.unfinished
	@if command -v $(LLVM_STRIP) >/dev/null; then $(LLVM_STRIP) -g $@.unfinished; fi
	@mv $@.unfinished $@
	@echo "✓ $@"

demo: setup ## the whole stack on a local cloud, and a flame graph of a real process's GPU memory
	@$(VENV)/python -m localcloud.demo

verify: setup ## make verify STACK=prod: is the deployed stack as it should be? (OPTIONS=--json for programs)
	@$(VENV)/python -m verify --stack $(STACK) $(OPTIONS)

up: setup ## start the local cloud and keep it
	@$(VENV)/python -m localcloud up

down: ## stop the local cloud and remove what it holds
	@if [ -x $(VENV)/python ]; then $(VENV)/python -m localcloud down; fi

check: setup ## formatter, linter and type checker
	@$(VENV)/ruff format --check --quiet --output-format concise . || { echo "not formatted: run \`make format\`"; exit 1; }
	@$(VENV)/ruff check --quiet .
	@$(VENV)/clang-format --dry-run -Werror $(C_FILES)
	@$(VENV)/mypy --python-executable "$$(readlink -f $(DEPENDENCIES))/bin/python" \
		--cache-dir "$$(readlink -f $(DEPENDENCIES))/mypy-cache"

test: check ## check, and every test that this machine can run; says what it skips, and why
	@$(VENV)/pytest -n $(LANES) $(PYTEST)

test-failures: setup ## every creation of the example stacks fails in every way (hours; STACKS=dev TURNS=0: ten minutes)
	@for stack in $(STACKS); do for turn in $(TURNS); do \
		echo "$$stack, turn $$turn"; \
		GPUHEAP_FAILURES_STACK=$$stack GPUHEAP_FAILURES_TURN=$$turn $(VENV)/pytest -q tests/engine/test_failures.py || exit 1; \
	done; done

test-torch: setup ## install PyTorch into the cache (550 MB, once), and its tests; from then on `make test` has them, too
	@$(VENV)/python -m tests.torch.installation
	@$(VENV)/pytest $(PYTEST) tests/torch

bench: setup ## what tracing costs the traced programs, others, and the machine (root; some minutes)
	@$(VENV)/python -m bench

format: setup ## rewrite the files as the formatters want them
	@$(VENV)/ruff check --quiet --fix-only .
	@$(VENV)/ruff format --quiet .
	@$(VENV)/clang-format -i $(C_FILES)

clean: down ## remove what was made in this checkout; the user's cache stays (python3 -m localcloud.toolchain clean)
	@rm -rf .venv .cache build .localcloud $(BPF_OBJECT) agent/gpuheap/profile/assets
	@find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
