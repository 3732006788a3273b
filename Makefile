# Everything runs in .venv, which the targets make and keep up to date themselves.
#   PYTHON=...  the interpreter to make .venv with (any Python >= 3.11)
#   SIZE=...    smoke, quick or full, for reproduce
#   ARGS=...    more arguments for test, bench, bench-check and lock
SIZE ?= quick
ARGS ?=
DEMO = combination-lock --horizon 20 --seed 1
DEMO_OUT = runs/demo

export PYTHON
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench bench-check torture torture-cluster compat reproduce lock clean

help: ## print this list
	@echo "make TARGET, where TARGET is one of"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: ## train on the combination lock and write its report to runs/demo
	@tools/venv.sh run
	.venv/bin/tasid train $(DEMO) --out $(DEMO_OUT) --overwrite
	.venv/bin/tasid report $(DEMO_OUT)

test: ## run the tests (ARGS='-k robust' for some of them)
	@tools/venv.sh dev
	.venv/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

lint: ## check style, formatting and types
	@tools/venv.sh dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

bench: ## run the benchmarks
	@if [ ! -f benchmarks/__main__.py ]; then \
	    echo "benchmarks/ holds no benchmarks yet: nothing to run."; \
	else \
	    tools/venv.sh dev && .venv/bin/python -m benchmarks $(ARGS); \
	fi

bench-check: ## fail if a ratio of times fell beyond noise (ARGS=--record writes them down)
	@tools/venv.sh dev
	.venv/bin/python -m benchmarks check $(ARGS)

torture: ## count which faults a run survives (ARGS='--size small' for a quick look)
	@tools/venv.sh dev
	.venv/bin/python -m benchmarks.torture $(ARGS)

torture-cluster: ## kill workers, nodes and drivers of a Ray cluster on this machine, and count
	@tools/venv.sh dev
	.venv/bin/python -m benchmarks.torture_cluster $(ARGS)

compat: ## Stable-Baselines3 on our Gymnasium ids, our learner in ViZDoom (installs torch into .venv-compat)
	@compat/run.sh

reproduce: ## make all figures and tables of the paper (SIZE=smoke, quick or full)
	@tools/venv.sh run
	.venv/bin/tasid reproduce all --size $(SIZE)

lock: ## resolve the lock files anew (ARGS=--upgrade for newer versions)
	@tools/venv.sh bare
	@test -x .venv/bin/uv || .venv/bin/python -m pip --disable-pip-version-check install --quiet uv
	@tools/lock.sh .venv/bin/uv $(ARGS)

clean: ## remove .venv, caches and builds; runs/ stays
	rm -rf .venv .venv.installing .venv-compat .venv-peers .venv-learners build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
