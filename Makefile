# The one place for commands; `make help` lists them. Needs Python 3.11 or newer and nothing else
# for `demo` and `up`; the tests also need what `.ci/run` installs when it is missing.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PROTOC := $(BIN)/python -m grpc_tools.protoc -I proto
PROTOS := $(wildcard proto/packhorse/wire/v1/*.proto)
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Where an environment forbids bytecode, as some images do, each start compiles all sources anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo up test check format unit contract integration e2e screenshots proofs chaos bench benchmarks bench-compare bench-full \
	bench-pipeline profile-import profile-distribute proto openapi clients tables docs migration dev-kafka constraints clean

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "packhorse needs Python 3.11 or newer; name one with make PYTHON=…" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.embedded: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing packhorse into $(VENV) …"
	@$(PIP) install -c constraints.txt -e '.[embedded,kafka]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing packhorse with its development tools into $(VENV) …"
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.embedded

$(VENV)/.jars: services/packhorse_services/pipeline/engine/ivy.xml $(VENV)/.dev
	@echo "Fetching the pipeline's jars …"
	@$(BIN)/packhorse-pipeline jars
	@touch $@

$(VENV)/.tools: $(VENV)/.dev
	@echo "Making what the tests run: servers, and clients in other languages …"
	@$(BIN)/python -m tests.harness.tools
	@touch $@

setup: $(VENV)/.dev $(VENV)/.jars $(VENV)/.tools ## Create .venv with everything that tests and checks need

demo: $(VENV)/.embedded ## Distribute real content to 3 subscribers, verify it, and end
	@$(BIN)/packhorse demo $(ARGS)

up: $(VENV)/.embedded ## Start the embedded stack and stay (ARGS="--data DIR --subscribers N …")
	@$(BIN)/packhorse up $(ARGS)

test: $(VENV)/.dev $(VENV)/.jars $(VENV)/.tools ## Run the whole test suite: real Postgres, real Kafka, real S3 server, Spark
	pytest -n 4 --dist loadfile --no-loadscope-reorder -m 'not depth' --proofs changed $(ARGS)

unit: $(VENV)/.dev ## Run the tests that need no server
	pytest -n 3 --dist loadfile --proofs changed tests/unit $(ARGS)

contract: $(VENV)/.dev ## Run one suite a port against every backend
	pytest tests/contract $(ARGS)

integration: $(VENV)/.dev ## Run the tests of one part against real servers
	pytest tests/integration $(ARGS)

e2e: $(VENV)/.dev ## Run the programs as processes, over HTTP
	pytest tests/e2e $(ARGS)

screenshots: docs ## Write pictures of the console's pages into the site: build/site/screenshots/index.html
	python -m tests.harness.screenshots build/site/screenshots

proofs: $(VENV)/.dev $(VENV)/.jars ## Show that the checkers catch builds that are broken on purpose
	pytest -n 2 --dist loadfile --no-loadscope-reorder -m proof $(ARGS)

chaos: export PYTEST_ADDOPTS = -o faulthandler_timeout=0
chaos: $(VENV)/.dev $(VENV)/.jars ## Kill, pause and cut during 20,000 packages (long; test runs a short version)
	TEST_CHAOS_PACKAGES=$${TEST_CHAOS_PACKAGES:-20000} TEST_CRASH_STRIDE=1 \
		TEST_LARGE_MIB=1024 TEST_CHAOS_REQUESTS=10000 TEST_CHAOS_JOBS=20000 \
		TEST_SIMULATOR_SEEDS=100 TEST_FILTERED_PAGES=20000 \
		pytest -m 'not proof' tests/chaos tests/unit/topology/test_simulator.py $(ARGS)
	TEST_ARCHIVE_KILLS=20 TEST_SPARK_EXAMPLES=20 TEST_SPARK_AS_IN_PRODUCTION=1 \
		pytest -m 'spark and not proof' tests/spark tests/e2e $(ARGS)
	pytest -m 'depth and not spark' tests $(ARGS)
	TEST_E2E_JOURNAL=kafka pytest tests/e2e/test_main_job.py tests/e2e/test_operating.py \
		tests/e2e/test_staging.py tests/e2e/test_subscribers.py $(ARGS)
	TEST_DEPTH=full pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'not proof' \
		$$(grep -rlE --include='test_*.py' 'harness.(depth|gaps) import|hypothesis import.* given|hypothesis.stateful import' tests) $(ARGS)
	$(MAKE) proofs

check: $(VENV)/.dev ## Format, lint, types, import rules, module lengths, generated code, figures
	ruff format --check
	ruff check
	mypy
	lint-imports
	@git ls-files '*.py' | grep -v '_pb2' | xargs wc -l | awk '$$2 != "total" && $$1 > 300 \
		{ print $$2 ": " $$1 " lines (300 is the limit)"; long = 1 } END { exit long }'
	@generated=$$(mktemp -d) && trap 'rm -rf "$$generated"' EXIT \
		&& $(PROTOC) --python_out="$$generated" --mypy_out="$$generated" $(PROTOS) \
		&& for file in $$(cd "$$generated" && find . -type f); do \
			cmp "$$generated/$$file" "shared/$$file" || { echo "run make proto" >&2; exit 1; }; done
	@python -m tests.harness.figures

format: $(VENV)/.dev ## Format the code and mend what ruff can mend
	ruff format
	ruff check --fix

bench: export BENCH_LINES = build/bench.jsonl
bench: $(VENV)/.dev ## Measure the main figures with their anchors into build/bench.jsonl (10 minutes)
	@mkdir -p build && rm -f $(BENCH_LINES)
	python -m tests.bench.importing --packages 6000 --rounds 2 --nodes 1
	python -m tests.bench.importing --packages 2000 --rounds 2 --nodes 11 --only kafka,sql,copy
	python -m tests.bench.publish 600
	python -m tests.bench.urgent 15000
	python -m tests.bench.waiting 40
	python -m tests.bench.distance 10000
	python -m tests.bench.journal_append 4000
	python -m tests.bench.kafka_journal 4000
	python -m tests.bench.deduplication 3000
	python -m tests.bench.queues 100000
	python -m tests.bench.queue_fill 15000
	python -m tests.bench.console 50000
	python -m tests.bench.announcements 10
	python -m tests.bench.joining 5000
	python -m tests.bench.folder_import 5000
	python -m tests.bench.blobs_s3
	python -m tests.bench.topology 50 10
	python -m tests.bench.jobs 1500 100000
	python -m tests.bench.idle 3 15

benchmarks: $(VENV)/.dev ## Make the tables of docs/benchmarks.md from build/bench.jsonl
	python -m tests.bench.page build/bench.jsonl

bench-compare: $(VENV)/.dev ## Measure another commit and this tree in turns: BASE=main (ARGS="--rounds 5 --bench 'publish 500'")
	python -m tests.bench.compare $(BASE) $(ARGS)

bench-full: $(VENV)/.dev ## Measure them at the sizes of the targets (an hour)
	python -m tests.bench.importing --packages 100000 --rounds 5
	python -m tests.bench.journal_append 100000
	python -m tests.bench.kafka_journal 100000
	python -m tests.bench.publish 20000
	python -m tests.bench.folder_import 100000
	python -m tests.bench.queues 1000000
	python -m tests.bench.queue_fill 100000
	python -m tests.bench.announcements 60
	python -m tests.bench.topology 100 60
	python -m tests.bench.jobs 10000 1000000

profile-import: $(VENV)/.dev ## Write a flame graph of a subscriber that imports: build/profiles/import.svg
	python -m tests.bench.importing --packages 30000 --nodes 1 --rounds 1 --only profile

profile-distribute: $(VENV)/.dev ## Write a flame graph of a publisher with 32 clients: build/profiles/distribute.svg
	python -m tests.bench.publish 20000 build/profiles/distribute.svg

bench-pipeline: $(VENV)/.dev $(VENV)/.jars ## Measure the pipeline's tasks (ARGS="1000000" for the size of the targets)
	python -m tests.bench.pipeline $(ARGS)

proto: $(VENV)/.dev ## Generate the messages' code from proto/
	$(PROTOC) --python_out=shared --mypy_out=shared $(PROTOS)

migration: $(VENV)/.dev ## Write the next migration from the described tables: make migration NAME="what it does"
	@python -m tests.harness.schema "$(NAME)"

openapi: $(VENV)/.dev ## Write openapi/*.yaml from the running code
	python -m tests.harness.openapi

clients: $(VENV)/.dev ## Write the clients to install into dist/clients: npm tarball, jar, Go module
	@rm -rf dist/clients
	@python -m tests.harness.client_packages dist/clients
	@ls -l dist/clients

tables: $(VENV)/.dev ## Write the columns in docs/tables.md from the schemas of the pipeline, and the notebook
	python -m tests.harness.table_page
	python -m tests.harness.table_notebook

docs: $(VENV)/.dev ## Build the documentation as static files: build/site/index.html
	@python -m docs.site.build $(ARGS)

dev-kafka: $(VENV)/.dev ## Start a real Kafka broker on this machine and print its address
	python -m tests.harness.kafka up $(ARGS)

constraints: $(BIN)/python ## Pin the newest versions that work together, names and versions only
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && $(PYTHON) -m venv "$$fresh" \
		&& "$$fresh/bin/python" -m pip install --quiet '.[dev]' \
		&& "$$fresh/bin/python" -m pip freeze --exclude packhorse | grep -E '^[A-Za-z0-9._-]+==' > constraints.txt

clean: ## Remove the environment and everything generated
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
