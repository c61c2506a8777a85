# Aliases of ./spinney COMMAND, for those whose fingers type make.

.DEFAULT_GOAL := help

up: ## show Spinney at work, until Ctrl-C
	./spinney up

test: ## run all tests
	./spinney test

test-%: ## run the tests of one part: test-core, test-mobile, ...
	./spinney test $*

check: ## check format, lint, types, sanitizers, coverage
	./spinney check

bench: ## measure against the baseline
	./spinney bench all

dist: ## build source distribution, wheels and list of parts
	./spinney dist

soak: ## run the long tests and longer fuzzing
	./spinney soak

clean: ## remove what was built, .venv included
	rm -rf .venv .venv-pipeline .venv-pipeline.wheels build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis native/python/spinney/_core.abi3.so native/python/spinney/_core.stamp.json

help: ## list these targets
	@sed -n 's/^\([a-z%-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "  make %-8s %s\n", $$1, $$2 }'

.PHONY: up test check bench dist soak clean help
