# Each target does all of its own set-up: a .venv with pinned dependencies, and a RabbitMQ where it needs one.
.DEFAULT_GOAL := help
.PHONY: help setup test test-spark demo demo-spark matrix suites check coverage pictures bench bench-spark constraints lowest clean

PYTHON := .venv/bin/python
# Commands are started by the hundred: without it, each would compile all of its modules anew.
unexport PYTHONDONTWRITEBYTECODE
ARGS :=
# Most of a test's time is waiting: several run at a time, and share a broker.
PROCESSES := 6
UPGRADE :=
BROKERS := 3.10 4.0 4.3
SUITES := bookworm trixie forky

help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make .venv with the pinned dependencies and this package
	@.ci/setup.sh

test: ## run all tests but those of the Spark job on one private RabbitMQ (ARGS="-k name" for some)
	@.ci/setup.sh --broker --peers
	@$(PYTHON) -m pytest -n $(PROCESSES) --dist worksteal --ignore=tests/spark $(ARGS)

test-spark: ## run the tests of the Spark job on one private RabbitMQ
	@.ci/setup.sh --broker --java
	@$(PYTHON) -m pytest tests/spark $(ARGS)

demo: ## see a message fail, come back, be set aside and be sent back, on a private RabbitMQ
	@.ci/setup.sh --broker
	@$(PYTHON) -m redrive.cli demo $(ARGS)

demo-spark: ## see failed messages by the thousand drained, planned, sent back and counted, on Spark and a private RabbitMQ
	@.ci/setup.sh --broker --java
	@$(PYTHON) -m redrive.cli spark demo $(ARGS)

matrix: ## run the contract, integration and interop tests on each RabbitMQ in containers (BROKERS="4.3" for one)
	@.ci/setup.sh --peers
	@REDRIVE_TEST_PROCESSES=$(PROCESSES) tests/brokers/matrix.sh $(BROKERS) -- $(ARGS)

suites: ## run make test on other releases of Debian, in containers (SUITES="trixie", or "ubuntu:24.04"; takes long)
	@REDRIVE_TEST_PROCESSES=$(PROCESSES) tests/brokers/suites.sh $(SUITES) -- $(ARGS)

check: ## check style and types
	@.ci/setup.sh
	@.venv/bin/ruff check --no-cache src tests
	@.venv/bin/ruff format --check src tests
	@.venv/bin/mypy

coverage: ## run the unit tests, and see that no branch of the topology is left out
	@.ci/setup.sh
	@.venv/bin/coverage erase
	@.venv/bin/coverage run -m pytest -q -n 2 tests/unit tests/typing
	@.venv/bin/coverage combine --quiet
	@.venv/bin/coverage report --include='src/redrive/topology/*' --fail-under=100

pictures: ## take the README's pictures anew, of real commands on a private RabbitMQ
	@.ci/setup.sh --broker
	@$(PYTHON) tests/pictures.py docs/pictures

bench: ## measure redrive beside its peers on a private RabbitMQ
	@.ci/setup.sh --broker
	@test -x .cache/bench/bin/python || .venv/bin/uv venv --quiet .cache/bench
	@. .ci/uv.sh; export VIRTUAL_ENV=$(CURDIR)/.cache/bench; .venv/bin/uv pip install --quiet --require-hashes --no-deps -r benchmarks/lock.txt \
		&& .venv/bin/uv pip install --quiet --no-deps --no-build-isolation -e .
	@.cache/bench/bin/python -m benchmarks $(ARGS)

bench-spark: ## measure the Spark job beside the broker's shovel on a private RabbitMQ (ARGS="--count 500000")
	@.ci/setup.sh --broker --java
	@$(PYTHON) -m benchmarks.spark_job $(ARGS)

constraints: ## write the pinned dependencies anew (UPGRADE=1 for newer ones)
	@.ci/setup.sh
	@UPGRADE=$(UPGRADE) .ci/constraints.sh

lowest: ## run the unit and contract tests with the oldest dependencies that pyproject.toml allows
	@.ci/setup.sh --broker
	@.venv/bin/uv venv --quiet --clear .cache/lowest
	@. .ci/uv.sh; export VIRTUAL_ENV=$(CURDIR)/.cache/lowest; .venv/bin/uv pip install --quiet --require-hashes -r .ci/lowest.txt \
		&& .venv/bin/uv pip install --quiet --no-deps --no-build-isolation -e .
	@.cache/lowest/bin/python -m pytest tests/unit tests/contract $(ARGS)

clean: ## delete .venv and what the tools leave behind
	@rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage dist build
