# `make check` is exactly what CI runs, once the environment is there (python3 bootstrap.py --dev).
# The tools of .venv are used unless another environment is active.
ifndef VIRTUAL_ENV
export PATH := $(CURDIR)/.venv/bin:$(PATH)
endif

.PHONY: check check-long lint format-check types imports lock-check contract-check test fix serve benchmark growth openapi lock lock-upgrade

check: lint format-check types imports lock-check contract-check test

# What takes minutes: fuzzing the whole contract, storms, growth.
check-long: check
	pytest -m slow
	$(MAKE) growth

lint:
	ruff check .

format-check:
	ruff format --check .

types:
	mypy

imports:
	lint-imports

test:
	pytest

fix:
	ruff check --fix .
	ruff format .

serve:
	sizing serve

# How much of the server's throughput POST /sizing leaves to others, as a ratio; -m benchmarks.sizing --profile says why.
benchmark:
	python -m benchmarks.sizing

# One estimate, and the queries of GET /benchmark-runs on both databases, among a million runs as against ten thousand;
# half an hour.
growth:
	python -m benchmarks.evidence
	python -m benchmarks.growth
	python -m benchmarks.growth --postgres

# The contract is committed, so that a change of it is seen in review.
openapi:
	sizing openapi > openapi/openapi.json

contract-check:
	sizing openapi | diff openapi/openapi.json - || { echo "the contract has changed: make openapi, and look at it" >&2; exit 1; }

# One set of versions for every Python that pyproject.toml allows, each file with its hash, no registry's address.
COMPILE = uv pip compile pyproject.toml --quiet --universal --generate-hashes --group build --custom-compile-command "make lock"
COMPILE_DEV = $(COMPILE) --group dev --constraint requirements.lock

lock:
	$(COMPILE) --output-file requirements.lock
	$(COMPILE_DEV) --output-file requirements-dev.lock

lock-upgrade:
	$(COMPILE) --upgrade --output-file requirements.lock
	$(COMPILE_DEV) --upgrade --output-file requirements-dev.lock

# Resolved again, the pins staying where they are: a newer release changes nothing, a change in pyproject.toml does.
# Hashes are left out, since files (a wheel for another platform) may be added to a release later; pip checks them.
lock-check:
	@mkdir -p build/lock && cp requirements.lock requirements-dev.lock build/lock/
	@$(COMPILE) --output-file build/lock/requirements.lock
	@$(COMPILE_DEV) --output-file build/lock/requirements-dev.lock
	@for file in requirements.lock requirements-dev.lock; do \
		grep -v -e --hash= $$file > build/lock/committed; \
		grep -v -e --hash= build/lock/$$file | diff build/lock/committed - \
			|| { echo "$$file does not match pyproject.toml: make lock" >&2; exit 1; }; \
	done
