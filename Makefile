# Everything runs in .venv, which the targets make and keep up to date themselves.
#   PYTHON=...  the interpreter to make .venv with (any Python >= 3.11)
#   SIZE=...    smoke, quick or full, for reproduce
#   ARGS=...    more arguments for test, bench, reproduce and lock
SIZE ?= quick
ARGS ?=
DEMO = combination-lock --horizon 20 --seed 1
DEMO_OUT = runs/demo

export PYTHON
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench compat reproduce lock clean

help: ## print this list
	@echo "make TARGET, where TARGET is one of"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: ## train on the combination lock and write its report to runs/demo
	@tools/venv.sh run
	.venv/bin/tasid train $(DEMO) --out $(DEMO_OUT) --overwrite
	.venv/bin/tasid report $(DEMO_OUT)

test: ## run the tests (ARGS='-k robust' for some of them)
	@tools/venv.sh dev
	.venv/bin/python -m pytest -n 2 --dist loadfile $(ARGS)

lint: ## check style, formatting, types and the layers of imports
	@tools/venv.sh dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache

bench: ## run a benchmark (ARGS=--help lists them)
	@tools/venv.sh dev
	.venv/bin/python -m benchmarks $(ARGS)

reproduce: ## make the figures and tables of the paper (SIZE=smoke, quick or full)
	@tools/venv.sh run
	.venv/bin/python -m reproduction all --size $(SIZE) $(ARGS)

compat: ## train Stable-Baselines3 on our Gymnasium environments (installs torch into .venv-compat)
	@compat/run.sh

lock: ## resolve the lock files anew (ARGS=--upgrade for newer versions)
	@tools/venv.sh bare
	@test -x .venv/bin/uv || .venv/bin/python -m pip --disable-pip-version-check install --quiet uv
	@tools/lock.sh .venv/bin/uv $(ARGS)

clean: ## remove .venv, caches and builds; runs/ stays
	rm -rf .venv .venv.installing .venv-compat .venv-peers build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests reproduction benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
