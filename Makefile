# The one command surface. `make` alone prints the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
IMAGE := run serve openai anthropic google local-models mirror otel
STAMP := .venv/.installed

.PHONY: chart docs dashboards bench-comparing bench-imports bench-reform bench-replay bench-metrics bench-traces help setup lock demo test test-slow lint format types schemas promises bench bench-gate bench-search bench-tailer bench-lanes bench-formation bench-context bench-gateway bench-inspector bench-peers bench-start screenshots eval-retrieval transcripts chaos canaries up down status doctor clean ci bench-forgetting notebook bench-scaling bench-tokens

help: ## print the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python >= 3.11 is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { echo "python3 -m venv does not work here: on Debian and Ubuntu install python3-venv"; exit 1; }
	@test -x $(BIN)/uv || $(BIN)/pip --disable-pip-version-check -q install --require-hashes --no-deps -r <(sed -n '/^uv==/,/^[^ ]/{/^uv==/p;/^ /p}' requirements.lock | sed '/^ *#/d;$$s/ *\\$$//')
	@VIRTUAL_ENV=.venv $(BIN)/uv pip sync --compile-bytecode --require-hashes requirements.lock
	@VIRTUAL_ENV=.venv $(BIN)/uv pip install -q --no-deps --no-build-isolation -e .
	@touch $@

setup: $(STAMP) ## install everything, pinned, into .venv

lock: setup ## resolve requirements.lock anew
	$(BIN)/uv pip compile pyproject.toml --extra all --group dev --universal --python-version 3.11 --generate-hashes --no-header -q -o requirements.lock
	$(BIN)/uv pip compile pyproject.toml $(addprefix --extra ,$(IMAGE)) -c requirements.lock --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -q -o requirements-runtime.lock
	$(BIN)/uv pip compile --group build -c requirements.lock --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -q -o requirements-build.lock

up: setup ## start MongoDB and Kafka locally (they stay up)
	@$(BIN)/eden up

down: ## stop what `up` started
	@if test -x $(BIN)/eden; then $(BIN)/eden down; fi

status: setup ## say what runs and where
	@$(BIN)/eden status

doctor: setup ## check versions, permissions, settings and topics
	@$(BIN)/eden doctor

demo: setup ## a conversation becomes memory: LLM=openai|anthropic|google|local|URL CONVERSATION=file CAP=usd KEEP=1
	@$(BIN)/eden demo $(if $(LLM),--llm '$(LLM)') $(if $(CONVERSATION),--conversation '$(CONVERSATION)') \
		$(if $(CAP),--cap $(CAP)) $(if $(KEEP),--keep) $(if $(YES),--yes)

test: setup ## run the suite against real servers, JOBS=4 files at a time
	@$(BIN)/python -m tests.servers
	@$(BIN)/pytest -n $${JOBS:-4} --dist loadfile --no-loadscope-reorder --max-worker-restart 4 || { test $$? = 1 && \
		echo "--- what failed beside others, once more by itself" && $(BIN)/pytest --last-failed --last-failed-no-failures none; }

test-slow: setup ## run the tests that take minutes, too: more kills and faults, benchmarks in short, more examples
	@EDEN_TEST_EXAMPLES=200 $(BIN)/pytest -n $${JOBS:-4} --dist loadfile -m 'slow or hypothesis'

lint: setup ## ruff and the import contract
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports

format: setup ## let ruff write the files
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

types: setup ## pyright, strict
	@$(BIN)/pyright

.eden/chart/.installed: $(wildcard tools/chart/*) | setup
	@command -v go >/dev/null || { echo "KEDA's schemas are fetched as a Go module: install Go"; exit 1; }
	@tools/chart/install.sh .eden/chart $(BIN)
	@touch $@

chart: .eden/chart/.installed ## render the Helm chart and hold it against Kubernetes' and KEDA's schemas (Linux x86-64, with Go)
	@$(BIN)/pytest -q tests/contract/test_chart.py

schemas: setup ## export the JSON Schemas and the AsyncAPI document
	@$(BIN)/eden schemas export

promises: setup ## write tests/contract/promises.json: the names that others rely on
	@$(BIN)/python -W ignore -m tests.contract.promises

dashboards: setup ## write Grafana's dashboards anew from tests/dashboards
	@$(BIN)/python -W ignore -m tests.dashboards.export

bench-metrics: setup ## what metrics cost, and how long one page of them takes
	@$(BIN)/python -W ignore -m tests.bench.metrics

bench-traces: setup ## what traces cost, every one of them and one in ten
	@$(BIN)/python -W ignore -m tests.bench.traces

bench: bench-tailer bench-lanes bench-formation bench-context bench-gateway bench-search bench-metrics bench-traces bench-replay bench-reform bench-imports bench-forgetting bench-comparing bench-inspector bench-start bench-scaling bench-tokens ## all benchmarks

bench-gate: setup ## every benchmark in short beside the accepted figures: ONLY='formation tokens' TIMES=3; ACCEPT=figure REASON=why
	@$(BIN)/python -W ignore -m tests.bench.gate $(if $(ACCEPT),--accept '$(ACCEPT)' --because '$(REASON)',$(if $(ONLY),--only $(ONLY)) $(if $(TIMES),--times $(TIMES)))

bench-tailer: setup ## the tailer against its bounds
	@$(BIN)/python -m tests.bench.tailer
	@$(BIN)/python -m tests.bench.tailer_pairs

bench-formation: setup ## the whole of formation against a model server; HOT=1: one hot scope
	@$(BIN)/python -m tests.bench.formation $(if $(HOT),--hot)
	$(if $(HOT),,@$(BIN)/python -m tests.bench.formation_pace)
	$(if $(HOT),,@$(BIN)/python -W ignore -m tests.bench.formation_backfill)

bench-scaling: setup ## 1, 2 and 4 processes beside a simulation, processes that come and go, what higher rates need
	@$(BIN)/python -W ignore -m tests.bench.scaling
	@$(BIN)/python -W ignore -m tests.bench.scaling_rebalances
	@$(BIN)/python -W ignore -m tests.bench.scaling_simulation

bench-tokens: setup ## prompt tokens at full price and from each provider's cache
	@$(BIN)/python -W ignore -m tests.bench.tokens

bench-context: setup ## contexts: warm, cold, committed write to fresh in another process, new author to withdrawn
	@$(BIN)/python -m tests.bench.context

bench-gateway: setup ## the gateway against the provider itself: first byte, tokens
	@$(BIN)/python -m tests.bench.gateway

bench-start: setup ## how soon help, the library and `eden run` are there
	@$(BIN)/python -W ignore -m tests.bench.start

bench-search: setup ## searching 1,000 to 100,000 facts, warm and after a change, against numpy and $$text
	@$(BIN)/python -m tests.bench.search

bench-replay: setup ## rebuilding memory against a bulk upsert of the same documents
	@$(BIN)/python -W ignore -m tests.bench.replay

bench-forgetting: setup ## a user of 100,000 messages forgotten beside live traffic, and an attack undone
	@$(BIN)/python -W ignore -m tests.bench.forgetting

bench-imports: setup ## importing 100,000 mem0 items with local embeddings
	@$(BIN)/python -W ignore -m tests.bench.imports

bench-reform: setup ## live windows beside a reform, its rate, and how well its cost is estimated
	@$(BIN)/python -W ignore -m tests.bench.reform
	@$(BIN)/python -W ignore -m tests.bench.reform_delays
	@$(BIN)/python -W ignore -m tests.bench.reform_rate

bench-comparing: setup ## two memories of 100,000 facts in one scope compared by meaning
	@$(BIN)/python -W ignore -m tests.bench.comparing

bench-lanes: setup ## the lanes against their bound, and what the runtime costs per record
	@$(BIN)/python -m tests.bench.lanes

walks: setup ## how many functions of ours lie between an entry and a driver's call: NAMES=1 lists them
	@$(BIN)/python -W ignore -m tests.bench.walks $(if $(NAMES),--names)

.eden/peers/.installed: tests/bench/peers.requirements.txt | setup
	@$(BIN)/uv venv -q --allow-existing --python $(BIN)/python .eden/peers
	@VIRTUAL_ENV=.eden/peers $(BIN)/uv pip sync -q --require-hashes $<
	@touch $@

bench-peers: setup .eden/peers/.installed ## beside mem0 and Graphiti, which it installs into .eden/peers
	@$(BIN)/python -W ignore -m tests.bench.peers

bench-inspector: setup ## the inspector's pages over 100,000 facts beside 1,000
	@$(BIN)/python -W ignore -m tests.bench.inspector

screenshots: setup ## take the pictures of docs/inspector.md, with Debian's Chromium
	@$(BIN)/python -W ignore -m tests.transcripts.screenshots

eval-retrieval: setup ## how well search ranks: R@10 and nDCG@10 by setting and language, update pairs
	@$(BIN)/python -m tests.evals.retrieval

transcripts: setup ## draw README's picture and that of a trace, from real runs
	@$(BIN)/python -W ignore -m tests.transcripts.picture
	@$(BIN)/python -W ignore -m tests.transcripts.traces

notebook: setup ## run docs/notebooks/growth.ipynb on servers of its own, and keep what it shows
	@PYTHONPATH=$(CURDIR) PYTHONWARNINGS=ignore $(BIN)/jupyter-execute --inplace docs/notebooks/growth.ipynb

canaries: setup ## unique words said, formed, killed -9 and forgotten, then looked for everywhere: SEEDS=20
	EDEN_TEST_CANARY_SEEDS=$${SEEDS:-20} $(BIN)/pytest -q tests/integration/system/test_canaries.py

docs: setup ## the site of these pages, in .eden/site; strict: a link that leads nowhere fails
	@$(BIN)/sphinx-build -W --keep-going -q -b html docs .eden/site && echo ".eden/site/index.html"

chaos: setup ## faults from a seed under load, tailer, stages, formation, rebuilding and reforms, imports: ROUNDS=200 SEED=1
	@status=0; for part in tailer stages formation rebuild reform imports; do \
		$(BIN)/python -m tests.chaos.$$part --faults $${ROUNDS:-200} --seed $${SEED:-1} || status=1; \
	done; exit $$status

clean: ## stop the servers and remove everything that make created
	@if test -x $(BIN)/eden; then $(BIN)/eden down; fi
	@rm -rf .venv .eden .pytest_cache .ruff_cache .hypothesis .import_linter_cache
