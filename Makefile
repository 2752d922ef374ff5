# Entry points for people and CI; `make help` lists them. Programs and jars are kept in ~/.cache/tailrace (TAILRACE_CACHE).
PYTHON ?= python3.11
VENV := .venv/bin
READY := .venv/.ready
SOURCE ?= postgresql
TARGET ?= delta
READY_DEMO := $(addprefix .venv/.ready-demo-,$(sort $(SOURCE) $(filter postgresql,$(TARGET))))
PYTEST := PYTHONPATH=tests:operator $(VENV)/python -m pytest
# Bytecode is kept, but beside the environment, not the sources: without it every process of a test and of the demo
# compiles all that it imports (2 CPU seconds for a driver, one for capture, one for each Python worker).
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/pycache
SOURCES := spark_app tests tools $(wildcard operator/tailrace_operator)

.DEFAULT_GOAL := help
.PHONY: help setup check lint types imports unit test integration soak bench bench-product demo clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-15s %s\n", $$1, $$2}'

setup: | python ## Make .venv, fetch PostgreSQL and Spark's jars, and make Spark start sooner
	@$(PYTHON) tools/bootstrap.py
	@touch $(READY) .venv/.ready-demo-postgresql

.PHONY: python
python:
	@command -v $(PYTHON) >/dev/null || { echo "setup: $(PYTHON) is missing (apt-get install python3 python3-venv), or set PYTHON=..."; exit 1; }

# Every other target sets the project up by itself, once: nothing is started while the stamp is newer than these.
MADE_FROM := pyproject.toml constraints.txt tools/bootstrap.py tools/maven.py tools/servers.py tools/mysql_packages.py spark_app/tailrace/spark/artifacts.py \
		$(wildcard operator/tailrace_operator/__init__.py)
$(READY): $(MADE_FROM)
	@$(MAKE) --no-print-directory setup

# The demo needs less: its own servers, no test tools, no object storage.
$(READY_DEMO): .venv/.ready-demo-%: $(MADE_FROM) | python
	@$(PYTHON) tools/bootstrap.py demo-$*
	@touch $@

lint types imports unit integration soak bench bench-product: $(READY)
demo: $(READY_DEMO)

# Only tests and the one-node cluster need the S3 server, MySQL and Kubernetes' programs: builds of minutes, once per version.
.PHONY: s3 mysql kubernetes node browser azurite duckdb-readers bqemulator fakesnow
integration soak: s3 mysql kubernetes node browser bqemulator fakesnow
soak: azurite duckdb-readers
azurite duckdb-readers bqemulator fakesnow: $(READY)
	@$(PYTHON) tools/bootstrap.py $@

# What is missing is said before anything is set up.
.PHONY: live-bigquery asked-bigquery
asked-bigquery:
	@test -n "$$TAILRACE_LIVE_BIGQUERY" || { echo "live-bigquery: set TAILRACE_LIVE_BIGQUERY=project:dataset:location and Google's credentials (GOOGLE_APPLICATION_CREDENTIALS)"; exit 1; }
live-bigquery: asked-bigquery ## Run the tests that every target passes against BigQuery itself
	@$(MAKE) --no-print-directory $(READY)
	@TAILRACE_TURN=all .venv/bin/python -m pytest tests/integration/targets/test_conformance.py -k bigquery

.PHONY: live-snowflake asked-snowflake
asked-snowflake:
	@test -n "$$TAILRACE_LIVE_SNOWFLAKE" || { echo "live-snowflake: set TAILRACE_LIVE_SNOWFLAKE=account:user:database:schema:warehouse:role:path of the private key"; exit 1; }
live-snowflake: asked-snowflake ## Run the tests that every target passes against Snowflake itself
	@$(MAKE) --no-print-directory $(READY)
	@TAILRACE_TURN=all .venv/bin/python -m pytest tests/integration/targets/test_conformance.py -k snowflake

s3: $(READY)
	@$(PYTHON) tools/bootstrap.py s3

mysql: $(READY)
	@$(PYTHON) tools/bootstrap.py mysql

kubernetes: $(READY)
	@$(PYTHON) tools/bootstrap.py kubernetes helm

node: $(READY)
	@$(PYTHON) tools/bootstrap.py node

browser: $(READY)
	@$(PYTHON) tools/bootstrap.py browser

.PHONY: crds manifests release
release: kubernetes ## Check that all versions agree, and build the wheel and the chart into dist/
	@PYTHONPATH=spark_app:tools $(VENV)/python tools/release.py

crds: $(READY) ## Write the CRDs from the models, the reference, the page of types, Argo CD's settings, the chart's README and the console's API
	@PYTHONPATH=spark_app:operator:tools $(VENV)/python tools/make_crds.py
	@PYTHONPATH=spark_app:operator:tools $(VENV)/python tools/make_reference.py
	@PYTHONPATH=spark_app:operator:tools $(VENV)/python tools/make_types.py
	@PYTHONPATH=spark_app:operator:tools $(VENV)/python tools/make_argocd.py
	@PYTHONPATH=spark_app:operator:tools $(VENV)/python tools/make_chart.py
	@PYTHONPATH=spark_app:operator:tools $(VENV)/python tools/make_console_api.py

manifests: crds kubernetes ## Write the CRDs and, from the chart, the plain manifests
	@PYTHONPATH=spark_app:operator:tools $(VENV)/python tools/make_manifests.py

check: QUICK := --quick
check: checked ## The quick loop: ruff, mypy, import contract, and the unit tests without the dearest files

# Mypy has one thread: it and the import contracts run beside the unit tests, and tell their results at the end.
.PHONY: checked
checked: lint
	@told=$$(mktemp); $(MAKE) --no-print-directory --keep-going types imports >$$told 2>&1 & beside=$$!; trap 'kill $$beside' INT TERM; \
	$(MAKE) --no-print-directory unit QUICK=$(QUICK); status=$$?; \
	wait $$beside || status=1; cat $$told; rm $$told; exit $$status

lint: ## Ruff: rules and format
	$(VENV)/ruff check $(SOURCES)
	$(VENV)/ruff format --check $(SOURCES)

# Its cache outlives a clone: it looks at content, so that only what changed and its importers are checked again.
types: ## Mypy, strict
	$(VENV)/mypy --cache-dir "$${TAILRACE_CACHE:-$$HOME/.cache/tailrace}/mypy" $(SOURCES)

imports: ## The import contract between the layers
	@PYTHONPATH=spark_app:operator $(VENV)/lint-imports
ifneq ($(wildcard operator/tailrace_operator/__init__.py),)
	@PYTHONPATH=spark_app:operator $(VENV)/lint-imports --config tools/operator-imports.toml
endif

# Tests wait for the disk as long as they work: their files are in memory where so many GiB of it are free.
IN_MEMORY = $(VENV)/python tools/in_memory.py
# Three processes on two cores, as some tests wait; the longest files first, each in one process (support/costs.py).
unit: ## Tests without servers
	$(IN_MEMORY) 2 env $(PYTEST) tests/unit -n 3 --dist loadfile --no-loadscope-reorder $(QUICK)

# The dearest unit tests run among those that wait for servers: alone they would take the cores one after the other.
test: QUICK := --quick
test: LATER = $(shell PYTHONPATH=tests $(VENV)/python -m support.costs)
test: checked integration ## Everything: the checks with all unit tests, then tests against PostgreSQL, Spark, S3 and Kubernetes

# Three files at a time on two cores (WORKERS), the longest first (support/costs.py): a proof leaves much of the machine
# idle while it waits for a state. A whole cluster waits for pods most of its time: its tests run beside all others, and tell their
# results at the end.
WORKERS ?= 3
CLUSTERED := $(wildcard tests/integration/cluster/test_*.py)
QUEUED := $(filter-out $(CLUSTERED),$(wildcard tests/integration/*/test_*.py tests/proof/test_*.py))
integration: ## Tests against real servers
	@told=$$(mktemp); $(PYTEST) $(CLUSTERED) >$$told 2>&1 & beside=$$!; trap 'kill $$beside' INT TERM; \
	$(IN_MEMORY) 12 env $(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(QUEUED) $(LATER); status=$$?; \
	wait $$beside || status=1; cat $$told; rm $$told; exit $$status

# With them, all cases of the tests of which `make test` runs one (a format, a product, a version), and many examples of
# what holds for all values.
CASES = $(shell grep -rlE 'import .*turns' tests/integration tests/proof)
PROPERTIES = $(shell grep -rlE '^ *@given' tests/unit)
soak: ## The long proving runs
	TAILRACE_TURN=all $(PYTEST) -s --hypothesis-profile=soak $(PROPERTIES) $(CASES) tests/soak

bench: ## Measure throughput and lag
	PYTHONPATH=tools $(VENV)/python -m bench

bench-product: ## Measure 200 tables with a row a second each, as a user runs them
	PYTHONPATH=tools $(VENV)/python -m bench.product

CLUSTER := @PYTHONPATH=spark_app:tools $(VENV)/python -m cluster
.PHONY: cluster cluster-status cluster-down
cluster: | python ## Tailrace on a one-node Kubernetes of its own (root), or on that of KUBECONFIG
	@$(PYTHON) tools/bootstrap.py cluster
	$(CLUSTER) up

cluster-status: ## What runs there
	$(CLUSTER) status

cluster-down: ## Remove it
	$(CLUSTER) down

demo: ## Replicate a sample database on this machine (SOURCE=mysql: out of MySQL; TARGET=iceberg, postgresql)
	PYTHONPATH=tools $(VENV)/python -m demo --source $(SOURCE) --target $(TARGET)

clean: ## Remove what builds and tests left in the tree (not the cache, not .venv)
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
