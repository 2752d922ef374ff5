# Entry points for people and CI; `make help` lists them. Programs and jars are kept in ~/.cache/tailrace (TAILRACE_CACHE).
PYTHON ?= python3.11
VENV := .venv/bin
READY := .venv/.ready
PYTEST := PYTHONPATH=tests:operator $(VENV)/python -m pytest
# Bytecode is kept, but beside the environment, not the sources: without it every process of a test and of the demo
# compiles all that it imports (2 CPU seconds for a driver, one for capture, one for each Python worker).
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/pycache
SOURCES := spark_app tests tools $(wildcard operator/tailrace_operator)

.DEFAULT_GOAL := help
.PHONY: help setup check lint types imports unit test integration soak bench demo clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-15s %s\n", $$1, $$2}'

setup: ## Make .venv, fetch PostgreSQL, Spark's jars and the S3 test server, and make Spark start sooner
	@command -v $(PYTHON) >/dev/null || { echo "setup: $(PYTHON) is missing (apt-get install python3 python3-venv), or set PYTHON=..."; exit 1; }
	@$(PYTHON) tools/bootstrap.py
	@touch $(READY)

# Every other target sets the project up by itself, once: nothing is started while the stamp is newer than these.
$(READY): pyproject.toml constraints.txt tools/bootstrap.py tools/maven.py spark_app/tailrace/artifacts.py \
		$(wildcard operator/tailrace_operator/__init__.py)
	@$(MAKE) --no-print-directory setup

lint types imports unit integration soak bench demo: $(READY)

# Only tests and the one-node cluster need Kubernetes' programs: a build of minutes, once per version.
.PHONY: kubernetes node
integration soak: kubernetes node
kubernetes: $(READY)
	@$(PYTHON) tools/bootstrap.py kubernetes helm

node: $(READY)
	@$(PYTHON) tools/bootstrap.py node

.PHONY: crds manifests
crds: $(READY) ## Write the CRDs from the models, the reference, and Argo CD's settings
	@PYTHONPATH=spark_app:operator:tools $(VENV)/python tools/make_crds.py
	@PYTHONPATH=spark_app:operator:tools $(VENV)/python tools/make_reference.py
	@PYTHONPATH=spark_app:operator:tools $(VENV)/python tools/make_argocd.py

manifests: crds kubernetes ## Write the CRDs and, from the chart, the plain manifests
	@PYTHONPATH=spark_app:operator:tools $(VENV)/python tools/make_manifests.py

check: lint types imports unit ## Ruff, mypy, import contract and unit tests (under 2 minutes)

lint: ## Ruff: rules and format of imports
	$(VENV)/ruff check $(SOURCES)

types: ## Mypy, strict
	$(VENV)/mypy $(SOURCES)

imports: ## The import contract between the layers
	@PYTHONPATH=spark_app:operator $(VENV)/lint-imports
ifneq ($(wildcard operator/tailrace_operator/__init__.py),)
	@PYTHONPATH=spark_app:operator $(VENV)/lint-imports --config tools/operator-imports.toml
endif

unit: ## Tests without servers
	$(PYTEST) tests/unit -n 2

test: check integration ## Everything: check, then tests against PostgreSQL, Spark and S3

# Two files at a time, the long ones first: a proof leaves a fifth of the machine idle while it waits for a state.
WAITING := $(wildcard $(addprefix tests/integration/test_,kube_api.py crds.py chart*.py operator_*.py))
CLUSTERED := $(wildcard tests/integration/test_cluster_*.py)
WORKING := $(wildcard $(addprefix tests/integration/test_,proof_*.py ddl_*.py run_*.py))
WORKING += $(filter-out $(WORKING) $(WAITING) $(CLUSTERED),$(wildcard tests/integration/test_*.py))
# A whole cluster waits for pods two fifths of its time: the tests that talk to an API server alone run beside it, and
# tell their results at the end.
integration: ## Tests against real servers
	@$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder --durations 20 $(WORKING); status=$$?; \
	told=$$(mktemp); $(PYTEST) --durations 10 $(WAITING) >$$told 2>&1 & beside=$$!; trap 'kill $$beside' INT TERM; \
	$(PYTEST) --durations 10 $(CLUSTERED) || status=1; \
	wait $$beside || status=1; cat $$told; rm $$told; exit $$status

soak: ## The long proving runs
	$(PYTEST) -s tests/soak

bench: ## Measure throughput and lag
	$(VENV)/python -m tools.bench

CLUSTER := @PYTHONPATH=spark_app:tools $(VENV)/python -m cluster
.PHONY: cluster cluster-status cluster-down
cluster: kubernetes node ## Tailrace on a one-node Kubernetes of its own (root), or on that of KUBECONFIG
	$(CLUSTER) up

cluster-status: ## What runs there
	$(CLUSTER) status

cluster-down: ## Remove it
	$(CLUSTER) down

demo: ## Replicate a sample database on this machine
	$(VENV)/python -m tailrace.demo

clean: ## Remove what builds and tests left in the tree (not the cache, not .venv)
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
