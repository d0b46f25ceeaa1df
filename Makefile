# Every target does its own set-up: `make demo` or `make test` on a fresh machine is enough.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
REMOTE := .venv/.remote
# The versions of Spark that are tested beside the one of requirements.lock, each in an environment of its own.
SPARKS := 4.1 4.2
# Two processes with a Spark session each; tests are taken up in the order that tests/conftest.py gives them.
PARALLEL := -n 2 --dist loadgroup --no-loadscope-reorder
# Where random tests of joins are, which try the more the longer they may.
SEARCHED := $(addprefix tests/,batch metadata placement ordering adapt runtime spilling)
BENCHES := $(addprefix joins/,band3 images3 placements orders auto similarity) \
  $(addprefix system/,overhead state kernel adaptation decisions cost_model latency)
PAPERS := diffusion/comparison mjoin/figures spilling/figures
# Python workers of Spark must be the ones of this environment; bind to loopback so that no host name is looked up.
SECONDS ?= 600
export PYSPARK_PYTHON := $(CURDIR)/.venv/bin/python
export SPARK_LOCAL_IP := 127.0.0.1
# Where Python is told to keep nothing that it compiles, each process of a test run would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup java postgres browser demo demo-auctions demo-kafka test test-core test-slow test-versions fuzz chaos check bench papers docs lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(STAMP): requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) scripts/venv.py .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

$(REMOTE): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[cloud,hdfs]'
	@touch $@

.venv-%/.installed: requirements.lock pyproject.toml
	@test -x .venv-$*/bin/python || $(PYTHON) scripts/venv.py .venv-$*
	sed -e 's/^pyspark==.*/pyspark==$*.*/' -e '/^py4j==/d' requirements.lock > .venv-$*/requirements.txt
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check -r .venv-$*/requirements.txt
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

java:
	@sh scripts/java.sh

postgres:
	@sh scripts/postgres.sh

setup: java $(STAMP)  ## make .venv with the pinned dependencies, find or install Java

demo: setup  ## three camera streams joined by image similarity, under two minutes
	$(BIN)/python examples/demo.py

demo-auctions: setup  ## a join with no window whose streams say what can no longer come, about three minutes
	$(BIN)/python examples/auctions.py

demo-kafka: setup  ## three Kafka topics joined into a fourth, by a broker of its own, about two minutes; needs Maven
	$(BIN)/python examples/kafka.py

check: $(STAMP)  ## lint, types and the layering contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: setup check  ## everything CI runs: check, core tests, Spark tests
	@# Exit code 1: all ran, some failed. These run once more, alone; what passes then depended on timing, and is named.
	$(BIN)/python -m pytest $(PARALLEL) || { test $$? = 1 && echo "Failed tests, once more and alone:" && \
	  $(BIN)/python -m pytest -v --last-failed --last-failed-no-failures none; }

test-core: $(STAMP)  ## the tests that need no JVM, without the long ones
	$(BIN)/python -m pytest $(PARALLEL) -m "not spark and not long and not slow"

browser:
	@sh scripts/browser.sh

test-slow: setup postgres browser $(REMOTE)  ## the exhaustive variants
	$(BIN)/python -m pytest $(PARALLEL) -m slow
	SEARCH=20 $(BIN)/python -m pytest $(PARALLEL) -m "not spark and not slow" $(SEARCHED)
	$(MAKE) test-versions

test-versions: java $(SPARKS:%=.venv-%/.installed)  ## the Spark tests on older versions of Spark, and Delta where it fits
	for v in $(SPARKS); do \
	  .venv-$$v/bin/python -m pytest $(PARALLEL) -m "spark and not slow" || exit 1; \
	  .venv-$$v/bin/python -m pytest -m slow tests/spark/test_delta.py || exit 1; \
	done

fuzz: setup  ## random joins for SECONDS=600 seconds, against brute force and Spark; SEED=n begins there
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(FUZZ)

chaos: setup  ## joins of all kinds with kills, damage and neighbours for SECONDS=900 seconds; SEED=n runs that round
	$(BIN)/python -m tests.chaos --seconds $(if $(filter file,$(origin SECONDS)),900,$(SECONDS)) $(if $(SEED),--seed $(SEED))

bench: setup  ## the benches, with tables, CSV and PNG under bench/results/
	for b in $(BENCHES); do $(BIN)/python bench/$$b.py || exit 1; done

papers: setup  ## the figures of the papers again, with tables, CSV and PNG under bench/results/
	for p in $(PAPERS); do $(BIN)/python papers/$$p.py || exit 1; done

docs: $(STAMP)  ## the pages as a site with search, in site/; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lock:  ## write requirements.lock anew from pyproject.toml
	$(PYTHON) scripts/lock.py

clean:  ## remove the environment and every cache
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis bench/results demo-output site
