PYTHON ?= python3
UV ?= uv
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCKED = $(UV) pip compile --quiet --universal --fork-strategy fewest --python-version 3.11 \
    --custom-compile-command "make lock"
# What only torch's wheels for graphics cards need: they name it themselves, and nobody else is made to install it.
CARDS := cuda-bindings cuda-pathfinder cuda-toolkit triton $(addprefix nvidia-,cublas cuda-cupti cuda-nvrtc \
    cuda-runtime cudnn-cu13 cufft cufile curand cusolver cusparse cusparselt-cu13 nccl-cu13 nvjitlink nvshmem-cu13 nvtx)
# One thread a process: pytest already starts one process a core. Compiled tests are kept, whatever the shell says.
TESTING := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 VECLIB_MAXIMUM_THREADS=1 POLARS_MAX_THREADS=1

PAPERS := dwf federated_kmeans dcfl.figures fkm fedfcm

.DEFAULT_GOAL := help
.PHONY: help install install-deep install-flower install-all install-with demo flower-demo test test-slow test-flower test-flower-faults test-all \
    bench ratios papers docs dist lock clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## Create .venv and install the locked packages and privfed itself, editable

$(STAMP): pyproject.toml requirements-dev.txt privfed/version.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "privfed needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -c "from privfed.numerics.kernels.dispatch import load; load()"  # Compiles it, once.
	touch $@

install-deep: ## The same, and torch and Opacus for privfed.deep (a large download)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "privfed needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements-deep.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -c "from privfed.numerics.kernels.dispatch import load; load()"  # Compiles it, once.
	touch $(STAMP)

install-flower: LOCK := requirements-flower.txt
install-flower: install-with ## The same as install, and Flower, to run over several machines

install-all: LOCK := requirements-all.txt
install-all: install-with ## The same, with all that install-deep and install-flower install, and Dask

install-with:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "privfed needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r $(LOCK)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -c "from privfed.numerics.kernels.dispatch import load; load()"  # Compiles it, once.
	touch $(STAMP)

demo: install ## Run the demonstration; its results go to demo/
	$(BIN)/python -m examples.demo demo/
	$(BIN)/privfed tradeoff digits --out demo/study

flower-demo: ## Three hospitals over Flower on this machine (after install-flower): a killed, a slow, a foreign node
	$(BIN)/python -m examples.three_hospitals.run

test: install ## Check style, types and imports and run the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(TESTING) $(BIN)/pytest -n auto -q

# pytest exits 5 where it finds no test at all; having no slow test is no failure.
test-slow: install ## Run the slow tests, and properties with all their examples
	$(TESTING) $(BIN)/pytest -n auto -q -m "(slow or hypothesis) and not flower and not faults" --hypothesis-profile=thorough --timeout=1200 || [ $$? -eq 5 ]

# One after the other: each starts a deployment of its own, with processes on this machine only.
test-flower: ## Fits over Flower deployments, and the commands of its page (after install-flower)
	$(TESTING) $(BIN)/pytest -p no:xdist -q -m "flower and not slow" --timeout=600 tests/nodes/flower tests/examples

test-flower-faults: ## Lose nodes and the server of a Flower deployment in each stage; takes an hour
	$(TESTING) $(BIN)/pytest -p no:xdist -q -m "faults or flower" --timeout=1800 tests/nodes/flower

test-all: test test-slow ## Run everything that test runs, and the slow tests

bench: install ## Run the benchmarks, one after the other
	$(BIN)/pytest benchmarks -m benchmark -s -p no:xdist --timeout=0 \
	    -o addopts="--import-mode=importlib --strict-markers --strict-config"

ratios: install ## Set eleven figures beside those of the last release, and fail where one takes 1.25 times as long
	$(TESTING) $(BIN)/python -m benchmarks.ratios

# A run that was broken off goes on where it was; after the last program the next one begins anew.
papers: install ## Run a part of the papers' studies, write docs/papers anew and fail where it changes (DATA=folder)
	failed=0; for one in $(PAPERS); do \
	    $(BIN)/python -m examples.$$one --page --out build/papers/$$one $(if $(DATA),--data $(DATA)) || failed=1; \
	done; test $$failed = 0 && rm -rf build/papers

docs: install ## Build the site into build/site, offline; any warning, and any request to elsewhere, is an error
	$(BIN)/python -m pip install --quiet -r requirements-docs.txt
	rm -rf docs/gallery docs/reference/generated build/doctrees build/site
	$(BIN)/sphinx-build -q -W --keep-going -d build/doctrees docs build/site
	! grep -rnE '<(script|link|img|iframe)[^>]+(src|href)="(https?:)?//' --include='*.html' build/site
	@echo "Open build/site/index.html."

# The bill of materials lies in the wheel, as PEP 770 asks: of all that an empty environment gets with it.
RELEASE := build/release
dist: ## Build the source distribution and the wheel, with a bill of materials, and run the wheel in an empty environment
	rm -rf dist $(RELEASE)
	$(PYTHON) -m venv $(RELEASE)/tools
	$(RELEASE)/tools/bin/python -m pip install --quiet build cyclonedx-bom wheel
	$(RELEASE)/tools/bin/python -m build --outdir dist > $(RELEASE)/build.log 2>&1
	$(PYTHON) -m venv --without-pip $(RELEASE)/empty
	$(RELEASE)/tools/bin/python -m pip --python $(RELEASE)/empty/bin/python install --quiet dist/*.whl
	$(RELEASE)/tools/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	    --output-file $(RELEASE)/privfed.cdx.json $(RELEASE)/empty/bin/python
	$(RELEASE)/tools/bin/wheel unpack --dest $(RELEASE)/wheel dist/*.whl
	cd $(RELEASE)/wheel/*/*.dist-info && mkdir sboms && cp ../../../privfed.cdx.json sboms
	$(RELEASE)/tools/bin/wheel pack --dest-dir dist $(RELEASE)/wheel/*
	cd $(RELEASE) && empty/bin/privfed tradeoff digits --seeds 1 --out digits

lock: ## Write the requirements-*.txt anew from pyproject.toml (needs uv; UV=path/to/uv)
	$(LOCKED) --group dev --output-file requirements-dev.txt pyproject.toml
	$(LOCKED) --group dev --extra flower --output-file requirements-flower.txt pyproject.toml
	$(LOCKED) --group dev --extra deep $(addprefix --no-emit-package ,$(CARDS)) \
	    --output-file requirements-deep.txt pyproject.toml
	# Versions in the file that is written are kept where they can be: Flower asks for older ones of a few.
	cp requirements-deep.txt requirements-all.txt
	$(LOCKED) --group dev --extra dask --extra deep --extra flower $(addprefix --no-emit-package ,$(CARDS)) \
	    --output-file requirements-all.txt pyproject.toml
	# Flower asks for an older packaging than the others: the site's lock leaves it as it is there.
	$(LOCKED) --no-emit-package packaging --group pyproject.toml:docs --constraint requirements-all.txt --output-file requirements-docs.txt

clean: ## Remove .venv and everything that was built or written by the tools
	rm -rf $(VENV) build dist demo *.egg-info docs/gallery docs/reference/generated
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -path ./.git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
