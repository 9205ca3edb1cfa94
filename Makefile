# Baton. Two commands: `make up` starts everything, `make test` tests everything. `make help` lists the rest.

PYTHON ?= python3
VENV_PYTHON := .venv/bin/python
BATON := $(VENV_PYTHON) -m baton_cli
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install install-dev up test api-test node-clients soak chaos parity compose-test check format bench bench-peers \
	bench-routing bench-gateway clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null \
	  || sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1: \2/p' $(MAKEFILE_LIST)

install: ## Make .venv and install what runs (`up` does it too)
	@$(PYTHON) requirements/install.py runtime

install-dev: ## The same, with what tests and checks need
	@$(PYTHON) requirements/install.py dev

up: install ## Start the whole system (ARGS="--no-large" etc. go to `baton up`)
	@exec $(BATON) up $(ARGS)

test: install-dev ## Fetch the models and run all tests (ARGS="tests/unit/cli -x" etc. go to pytest)
	@$(BATON) models pull --defaults
	@$(VENV_PYTHON) -m pytest -n 2 --dist loadfile $(ARGS)

api-test: install-dev ## Ask every operation of the HTTP API what its document allows and what not (minutes)
	@$(VENV_PYTHON) -m pytest -m soak -s $(or $(ARGS),tests/pipeline/test_api_document.py)

node-clients: ## Fetch openai-node from npm for the tests that use it (skipped without it)
	@npm install --silent --no-audit --no-fund --prefix .node-clients openai@7.59.0

soak: install-dev ## The long tests of the running system: kills under load, many at once, both models
	@$(BATON) models pull --defaults
	@$(VENV_PYTHON) -m pytest -m soak $(or $(ARGS),tests/system)

chaos: install-dev ## Clients that leave, processes that are killed: hangs, lost rows, leaks? (ARGS="--requests 1000")
	@$(BATON) models pull --defaults
	@$(VENV_PYTHON) -m tests.chaos $(ARGS)

parity: install-dev ## The engine's tokens beside transformers': 100 prompts x 128, five ways (minutes)
	@$(BATON) models pull --defaults
	@$(VENV_PYTHON) -m pytest -m soak -s $(or $(ARGS),tests/engine_real)

compose-test: install-dev ## Build the images and test the system under `docker compose` (needs a Docker engine)
	@BATON_COMPOSE_TEST=1 $(VENV_PYTHON) -m pytest -rs -s $(or $(ARGS),tests/compose)

check: install-dev ## Lint, format check, types, import rules
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m pyright
	$(VENV_PYTHON) .venv/bin/lint-imports

format: install-dev ## Rewrite the tree as the checks want it
	$(VENV_PYTHON) -m ruff check --fix .
	$(VENV_PYTHON) -m ruff format .

bench: install-dev ## Measure what each stop adds, with an engine that answers at once
	@$(VENV_PYTHON) -m bench $(ARGS)

bench-peers: install-dev ## Measure the engine beside llama.cpp, vLLM and transformers (ARGS="--quick")
	@$(VENV_PYTHON) -m bench.peers $(ARGS)

bench-routing: install-dev ## Compare ways to choose a replica: simulated, and real ones (ARGS="--quick")
	@$(BATON) models pull --defaults
	@$(VENV_PYTHON) -m bench.routing $(ARGS)

bench-gateway: install-dev ## Measure edge and gateway beside LiteLLM's proxy, before the same upstream (ARGS="--quick")
	@$(VENV_PYTHON) -m bench.gateway $(ARGS)

clean: ## Remove what was built and cached here; models and state in BATON_HOME stay
	rm -rf .venv .node-clients build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
	find . -name '*.egg-info' -type d -not -path './.git/*' -prune -exec rm -rf {} +
