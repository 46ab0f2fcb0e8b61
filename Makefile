# rocketpy: `make run` builds and runs name server and broker, `make test` builds and tests. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# compat: a plain path entry; the default hook would cost every start some milliseconds.
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-build-isolation --config-settings editable_mode=compat
export ROCKETPY_WERROR ?=
PYTHON_SOURCES := rocketpy tests bench csrc docs/adr/index.py setup.py
WITHOUT_CORE := build/without-core
C_SOURCES := $(filter-out %/_driver.c,$(wildcard csrc/*/*.[ch] tests/csrc/*.[ch] bench/driver/*.[ch]))

.PHONY: help run run-cluster build test test-python test-spark spark-demo test-fault test-ha test-interop interop sanitize fuzz lint style types check coverage \
        bench bench-compare bench-spark bench-smoke docs clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

run: build  ## build, then run name server and broker with a store in your data directory; Ctrl-C stops
	@$(BIN)/rocketpy standalone

run-cluster: build  ## build, then run two masters with a slave each on this machine, synchronous; Ctrl-C stops all
	@$(BIN)/rocketpy cluster deploy/clusters/2m-2s-sync --set mappedFileSizeCommitLog=67108864

build: $(VENV)/.built  ## .venv with the commands rocketpy, mqnamesrv, mqbroker, mqadmin

$(VENV)/.python: setup.py pyproject.toml
	@sh deploy/prerequisites.sh $(PYTHON)
	@echo "creating $(VENV) and installing what rocketpy needs ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip setuptools wheel "cffi>=1.16"
	@touch $@

$(VENV)/.built: $(VENV)/.python $(wildcard csrc/*/*.[ch]) csrc/build_native.py
	@echo "building the compiled core ..."
	@$(INSTALL) --editable . > $(VENV)/build.log 2>&1 || { cat $(VENV)/build.log; exit 1; }
	@$(BIN)/python -m compileall -q rocketpy
	@touch $@

$(VENV)/.dev: $(VENV)/.built
	@$(INSTALL) --editable ".[dev]" > $(VENV)/build.log 2>&1 || { cat $(VENV)/build.log; exit 1; }
	@touch $@

test: $(VENV)/.dev  ## unit and property tests, and the whole broker in a small run; under ten minutes
	$(PYTEST) tests/unit tests/property tests/system

test-python: $(VENV)/.dev  ## client and admin tool, installed without the compiled core
	rm -rf build/lib $(WITHOUT_CORE)
	ROCKETPY_BUILD=python $(INSTALL) --quiet --no-deps --target $(WITHOUT_CORE) .
	PYTHONPATH=$(WITHOUT_CORE):. $(BIN)/python -P -m pytest tests/unit/native/test_door.py tests/unit/message \
	    tests/unit/remoting tests/unit/transport tests/unit/client tests/unit/admin tests/unit/namesrv tests/unit/config

$(VENV)/.spark: $(VENV)/.dev setup.py
	@echo "installing the extra spark (about 500 MB) ..."
	@$(INSTALL) --editable ".[spark]" > $(VENV)/build.log 2>&1 || { cat $(VENV)/build.log; exit 1; }
	@touch $@

test-spark: $(VENV)/.spark  ## the data source for PySpark on local[2], against a real broker (Java 17)
	@sh deploy/java_17.sh
	$(PYTEST) tests/spark

spark-demo: $(VENV)/.spark  ## a million messages: broker, DataFrame, windowed stream, Parquet, plots, in build/spark-demo
	@sh deploy/java_17.sh
	@$(BIN)/rocketpy pipeline demo build/spark-demo

test-fault: $(VENV)/.dev  ## killed processes, damaged files, full disks; minutes
	$(PYTEST) tests/fault $(AGAIN)

test-ha: $(VENV)/.dev  ## failover of real brokers with a real etcd (Debian: etcd-server; root for partitions)
	$(PYTEST) tests/ha

interop: $(VENV)/.dev  ## official Java and Go clients and mqadmin against rocketpy (Java 17, Maven, Go)
	$(PYTEST) tests/interop $(AGAIN)

test-interop: interop

sanitize:  ## the C core under address, undefined and thread sanitizers
	$(MAKE) -C tests/csrc sanitize

fuzz:  ## coverage-guided fuzzing of what parses foreign bytes; FUZZ_SECONDS each
	$(MAKE) -C tests/csrc fuzz

lint: $(VENV)/.dev  ## ruff and clang-format
	$(BIN)/ruff check $(PYTHON_SOURCES)
	$(BIN)/ruff format --check $(PYTHON_SOURCES)
	$(BIN)/clang-format --dry-run --Werror $(C_SOURCES)

style: $(VENV)/.dev  ## repair what lint reports
	$(BIN)/ruff check --fix $(PYTHON_SOURCES)
	$(BIN)/ruff format $(PYTHON_SOURCES)
	$(BIN)/clang-format -i $(C_SOURCES)

types: $(VENV)/.dev  ## mypy --strict
	$(BIN)/mypy

check: lint types test test-python sanitize  ## what CI runs beside interop

coverage: $(VENV)/.dev  ## line coverage of the unit and property tests
	$(BIN)/python -m pip install --quiet --disable-pip-version-check coverage
	$(BIN)/python -m coverage run --source rocketpy -m pytest tests/unit tests/property && $(BIN)/python -m coverage report

bench: $(VENV)/.dev  ## throughput and latency of rocketpy alone
	$(BIN)/python -m bench.compare --target rocketpy

bench-compare: $(VENV)/.dev  ## rocketpy and the official Java broker in turn: medians and ratios (Java 17, Maven)
	$(BIN)/python -m bench.compare --fill-page-cache

bench-spark: $(VENV)/.spark  ## Spark's sources beside the same work without Spark; half an hour (Java 17)
	$(BIN)/python -m bench.spark

bench-smoke: $(VENV)/.dev  ## every scenario briefly, rocketpy alone
	$(BIN)/python -m bench.compare --quick --target rocketpy

docs: $(VENV)/.built  ## generate the pages that are made from code: configuration, metrics, failover, the list of decisions
	$(BIN)/python -m rocketpy.config.reference > docs/configuration.md
	$(BIN)/python -m rocketpy.metrics.reference > docs/metrics.md
	$(BIN)/python -m rocketpy.failover.reference > docs/failover.md
	$(BIN)/python docs/adr/index.py > docs/adr/README.md

clean:  ## all that the other targets made
	rm -rf $(VENV) build dist *.egg-info rocketpy/native/_rocketpy*.so rocketpy/native/_rocketpy.c .pytest_cache .mypy_cache \
	    .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
