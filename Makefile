# Every target sets up what it needs: Python 3.11 or newer, make and a package index are enough.
# `make PYTHON=/path/to/python3 ...` names the Python to use; otherwise the first that is new enough.

CANDIDATES := $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11 python)
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
READY := $(VENV)/.ready
# What `make test-all` needs besides (the extra test-all) is in an environment of its own: gigabytes
# that nothing else wants.
VENV_ALL := .venv-all
READY_ALL := $(VENV_ALL)/.ready
# An emulated aarch64, of Debian's packages: where there are none, the tests that run on it are skipped.
AARCH64 := $(VENV_ALL)/aarch64
READY_AARCH64 := $(AARCH64)/.ready
# What it imports is compiled when it is, which takes less than all that is installed.
PIP_ALL := $(VENV_ALL)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile
DEMO := build/demo
FAST := not slow and not long and not reference and not peers
PARALLEL := -m pytest -q -n auto --dist worksteal
PYTEST := $(PY) $(PARALLEL)
# Plain torch comes with CUDA's libraries, so it is installed first, from an index that is asked for
# nothing else. The release is that of the peers extra; only Linux has builds for CPUs by name.
TORCH := $(shell sed -n 's/^peers = .*"\(torch==[0-9.]*\)".*/\1/p' pyproject.toml)
ifeq ($(shell uname -s),Linux)
TORCH := $(TORCH)+cpu --extra-index-url https://download.pytorch.org/whl/cpu
endif
# Without a C compiler the zig extra brings a linker.
COMPILER := $(shell command -v cc || command -v gcc || command -v clang)
comma := ,
EXTRAS := dev$(if $(COMPILER),,$(comma)zig)
# The browser that looks at pages of pictures: where root runs this on Debian, it is installed.
READY_BROWSER := $(VENV_ALL)/.browser

# Where it is set, each of the hundreds of programs that tests start would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all surroundings lint format bench gpu-check explore fuzz clean setup

help:
	@echo "make demo      look at the sample model, convert it, compile it, and let it write a story"
	@echo "make test      the fast tests"
	@echo "make test-all  lint, then every test, torch and all; some need ../shared/reference"
	@echo "make lint      ruff and mypy"
	@echo "make format    format the code, apply safe fixes"
	@echo "make bench     decoding speed beside transformers"
	@echo "make gpu-check what only a GPU can show, in ten minutes; without one, build what is carried to it"
	@echo "make explore   the property tests on new examples; every family; all damage to recipes"
	@echo "make fuzz      fuzz each reader for a minute (needs the fuzz extra)"
	@echo "make setup     only make .venv, as the other targets do when it is needed"
	@echo "make clean     remove what make made, .venv and .venv-all included"

demo: $(READY)
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	@echo "# What is in the sample model, read from its headers:"
	$(BIN)/maxtool inspect-weights samples/fireside --depth 2
	@echo
	@echo "# The same model as a GGUF file, in half the bytes:"
	$(BIN)/maxtool convert samples/fireside -o $(DEMO)/fireside.gguf --dtype float16
	@echo
	@echo "# Compiled, and compared with its graph, computed by NumPy in float64:"
	$(BIN)/maxtool compile samples/fireside -o $(DEMO)/fireside --check
	@echo
	@echo "# What the compiled model writes:"
	$(PY) $(DEMO)/fireside/run.py --prompt "Once upon a time" --max-tokens 200

test: $(READY)
	$(PYTEST) --quick -m "$(FAST)"

# Programs and packages are downloaded while the processors lint.
test-all: $(READY)
	@$(MAKE) --no-print-directory --jobs=2 lint surroundings
	@python=$(PY); if [ -e $(READY_ALL) ]; then python=$(VENV_ALL)/bin/python; fi; \
	echo "$$python $(PARALLEL) --durations=10 --by-folder"; \
	$$python $(PARALLEL) --durations=10 --by-folder

surroundings:
	@if $(MAKE) --no-print-directory $(READY_ALL); then \
	$(MAKE) --no-print-directory $(READY_AARCH64) || echo "its tests are skipped" >&2; \
	$(MAKE) --no-print-directory $(READY_BROWSER) || echo "tests of pages are skipped" >&2; \
	else rm -f $(READY_ALL); \
	echo "$(VENV_ALL) could not be set up: tests that need its packages are skipped" >&2; fi

lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: $(READY)
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(READY_ALL)
	$(VENV_ALL)/bin/python benchmarks/decode.py

gpu-check: $(READY)
	$(PY) benchmarks/gpu_check/build.py build/gpu-check
	$(PY) build/gpu-check/check.py --output build/gpu-check-results

explore: $(READY_ALL)
	$(PYTEST) -m "$(FAST)" --hypothesis-profile=explore
	$(VENV_ALL)/bin/python $(PARALLEL) --everything -m explored
	$(VENV_ALL)/bin/python $(PARALLEL) --everything tests/variants/test_mutations.py tests/artifact/test_cuda_recipes.py tests/artifact/test_reproducible.py tests/serve/test_serving_command.py tests/graph tests/importers

fuzz: $(READY)
	@$(PY) -c "import atheris" 2>/dev/null || { \
	  echo "make fuzz needs the fuzz extra: $(PY) -m pip install -e '.[fuzz]'" >&2; exit 1; }
	@for target in tests/fuzz/fuzz_*.py; do \
	  echo "$(PY) $$target"; $(PY) $$target -max_total_time=60 -verbosity=0 || exit 1; \
	done

clean:
	rm -rf $(VENV) $(VENV_ALL) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find maxtool tests samples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

setup: $(READY)

# The stamp comes last, so an interrupted set-up starts over, in a new virtual environment: pip does
# not get past a package that it installed in part. One that no longer runs is made anew too.
$(READY): pyproject.toml
	@python=; for name in $(CANDIDATES); do \
	  if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	  then python=$$name; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "error: maxtool needs Python 3.11 or newer, and none of these is: $(CANDIDATES)" >&2; \
	  echo "  help: install one, or name it: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; \
	  exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$("$$python" --version), extras: $(EXTRAS). This happens once"; \
	echo "and downloads a few hundred megabytes."; \
	{ test -e $(READY) && $(PY) -c '' >/dev/null 2>&1; } || "$$python" -m venv --clear $(VENV) || { \
	  echo "error: $$python cannot make virtual environments" >&2; \
	  echo "  help: install its venv and pip packages (Debian: python3-venv)" >&2; \
	  exit 1; \
	}; \
	$(PY) -m pip install --quiet --disable-pip-version-check -e ".[$(EXTRAS)]"
	@touch $(READY)

$(READY_ALL): $(READY)
	@echo "Setting up $(VENV_ALL), extras: $(EXTRAS),test-all. This happens once and downloads"
	@echo "some 600 megabytes."
	@{ test -e $(READY_ALL) && $(VENV_ALL)/bin/python -c '' >/dev/null 2>&1; } || \
	  $(PY) -m venv --clear $(VENV_ALL)
	@$(PIP_ALL) --retries 0 --no-deps $(TORCH)
	@$(PIP_ALL) -e ".[$(EXTRAS),test-all]"
	@touch $(READY_ALL)

$(READY_AARCH64): $(READY_ALL) tests/aarch64/system.py
	@echo "Setting up $(AARCH64), Debian's Python for that machine and QEMU: some 100 megabytes"
	@echo "are downloaded, and nothing is installed outside the folder."
	@$(VENV_ALL)/bin/python tests/aarch64/system.py $(AARCH64)
	@touch $(READY_AARCH64)

$(READY_BROWSER): $(READY_ALL)
	@command -v chromium >/dev/null || { \
	  echo "Installing Debian's chromium: some 100 megabytes are downloaded"; \
	  apt-get update --quiet=2 && apt-get install --yes --quiet=2 chromium >/dev/null; \
	}
	@touch $(READY_BROWSER)
