# Each target does all of its own set-up: a .venv with those of the pinned dependencies that it needs, and a RabbitMQ if it
# needs one. What is missing, or will be installed, is said before anything is downloaded.
.DEFAULT_GOAL := help
.PHONY: help setup unit test test-times nightly mutants test-cluster test-spark torture demo demo-spark matrix suites check coverage pictures bench bench-spark constraints lowest clean

PYTHON := .venv/bin/python
# Commands are started by the hundred: without it, each would compile all of its modules anew.
unexport PYTHONDONTWRITEBYTECODE
ARGS :=
TESTS := tests/unit tests/contract tests/integration/test_recipes.py
# Most of a test's time is waiting: several run at a time, and share a broker.
PROCESSES := 8
# Each has three brokers of its own, which mostly wait for each other.
CLUSTER_PROCESSES := 2
# Each has a Java of its own, and most of such a test's time is processor.
SPARK_PROCESSES := 2
UPGRADE :=
BROKERS := 3.10 4.0 4.3
SUITES := bookworm trixie forky

help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make .venv with all pinned dependencies, Spark included, and this package
	@.ci/setup.sh

unit: ## run the tests that need no broker: a minute or so
	@.ci/setup.sh test
	@$(PYTHON) -P -m pytest -q -n 2 tests/unit $(ARGS)

test: ## run all tests but those of clusters, of the Spark job and of the night, on one private RabbitMQ (ARGS="-k name" for some)
	@.ci/setup.sh test --broker --peers
	@$(PYTHON) -P -m pytest -q -n $(PROCESSES) --dist worksteal --ignore=tests/spark --ignore=tests/cluster $(ARGS)

test-times: ## run them, and print what each file and the slowest tests cost
	@rm -f .cache/times.jsonl
	@mkdir -p .cache
	@$(MAKE) --no-print-directory test ARGS="--times .cache/times.jsonl $(ARGS)"; code=$$?; $(PYTHON) tests/times.py .cache/times.jsonl; exit $$code

nightly: ## run what takes minutes by nature, and all tests on each RabbitMQ: hours, in parts (PART=cluster for those of that name)
	@.ci/setup.sh test --broker --peers
	@$(PYTHON) tests/nightly.py $(PART)

mutants: ## change the rules in every small way, and list what no test notices: hours (ARGS="redrive.topology.decision*" for some)
	@.ci/setup.sh test
	@test -x .cache/mutants/bin/python || .venv/bin/uv venv --quiet .cache/mutants
	@. .ci/uv.sh; export VIRTUAL_ENV=$(CURDIR)/.cache/mutants; install_pinned mutants constraints.txt
	@.cache/mutants/bin/mutmut run $(ARGS); .cache/mutants/bin/mutmut results | sed '/: not checked$$/d'

test-cluster: ## run the tests of clusters on three private RabbitMQ nodes
	@.ci/setup.sh test --broker
	@$(PYTHON) -m pytest -n $(CLUSTER_PROCESSES) --dist worksteal tests/cluster $(ARGS)

test-spark: ## run the tests of the Spark job on one private RabbitMQ
	@.ci/setup.sh dev --broker --java
	@$(PYTHON) -m pytest -n $(SPARK_PROCESSES) --dist worksteal tests/spark $(ARGS)

torture: ## break the broker, the wire and the processes at random, and count each message (ARGS="--seed 7 --minutes 30 --nodes 3")
	@.ci/setup.sh test --broker
	@tests/torture/torture.sh $(ARGS)

demo: ## see a message fail, come back, be set aside and be requeued, on a private RabbitMQ
	@.ci/setup.sh demo --broker
	@$(PYTHON) -m redrive.cli demo $(ARGS)

demo-spark: ## see failed messages by the thousand drained, planned, requeued and counted, on Spark and a private RabbitMQ
	@.ci/setup.sh spark --broker --java
	@$(PYTHON) -m redrive.cli spark demo $(ARGS)

matrix: ## run the contract, integration, interop, web and cluster tests on each RabbitMQ in containers (BROKERS="4.3" for one)
	@.ci/setup.sh test --peers
	@REDRIVE_TEST_PROCESSES=$(PROCESSES) tests/brokers/matrix.sh $(BROKERS) -- $(ARGS)

suites: ## run make test on other releases of Debian, in containers (SUITES="trixie", or "ubuntu:24.04"; takes long)
	@REDRIVE_TEST_PROCESSES=$(PROCESSES) tests/brokers/suites.sh $(SUITES) -- $(ARGS)

check: ## check style and types
	@.ci/setup.sh dev
	@.venv/bin/ruff check --no-cache src tests benchmarks examples
	@.venv/bin/ruff format --check src tests benchmarks examples
	@.venv/bin/mypy
	@for example in examples/*/*.py; do echo $$example; .venv/bin/mypy $$example || exit 1; done

coverage: ## see that no branch of the topology and of the wire's bytes is left out by their tests
	@.ci/setup.sh test
	@.venv/bin/coverage erase
	@.venv/bin/coverage run -m pytest -q -n 2 tests/unit/amqp tests/unit/topology tests/unit/pubsub tests/security/test_hostile_frames.py
	@.venv/bin/coverage combine --quiet
	@.venv/bin/coverage report --fail-under=100

pictures: ## take the pictures of the README and the documentation anew, of real commands and of the console
	@.ci/setup.sh demo --broker
	@$(PYTHON) tests/pictures.py docs/pictures
	@.ci/setup.sh test --broker --peers
	@REDRIVE_TEST_NIGHTLY=1 REDRIVE_PICTURES=$(CURDIR)/docs/pictures $(PYTHON) -P -m pytest -q tests/web/test_incident.py

bench: ## measure redrive beside its peers on a private RabbitMQ
	@.ci/setup.sh demo --broker
	@test -x .cache/bench/bin/python || .venv/bin/uv venv --quiet .cache/bench
	@. .ci/uv.sh; export VIRTUAL_ENV=$(CURDIR)/.cache/bench; .venv/bin/uv pip install --quiet --require-hashes --no-deps -r benchmarks/lock.txt \
		&& .venv/bin/uv pip install --quiet --no-deps --no-build-isolation -e .
	@.cache/bench/bin/python -m benchmarks $(ARGS)

bench-spark: ## measure the Spark job beside the broker's shovel on a private RabbitMQ (ARGS="--count 1000000", ARGS="--incident 5000000")
	@.ci/setup.sh spark --broker --java
	@$(PYTHON) -m benchmarks.spark_job $(ARGS)

constraints: ## write the pinned dependencies again (UPGRADE=1 for newer ones)
	@.ci/setup.sh tools
	@UPGRADE=$(UPGRADE) .ci/constraints.sh

lowest: ## run the unit and contract tests and the recipes with the oldest dependencies that pyproject.toml allows (TESTS="tests/unit" for some)
	@.ci/lowest.sh --python >/dev/null
	@.ci/setup.sh demo --broker
	@.ci/lowest.sh -n 2 $(TESTS) $(ARGS)

clean: ## delete .venv and what the tools leave behind in this folder
	@rm -rf .venv .cache tests/interop/peers/node/node_modules tests/interop/peers/node/moleculer/node_modules tests/web/browser/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage dist build mutants
	@.ci/kept.sh
