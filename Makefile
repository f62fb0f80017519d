# The short front door. CMake builds, pytest and ctest test, this starts them.
#
#   make demo    set everything up in .venv and run 4 processes (no root needed)
#   make test    every test; the last line is "N passed, M failed, K skipped"
#   make soak    the tests with their full counts; writes tests/soak.json
#   make build   liboriel.so and the command in build/normal
#   make format  lay out all C, CUDA C and Python files
#   make clean   remove what these made

PYTHON := $(shell sh scripts/find_python.sh)
VENV := .venv/bin

.PHONY: demo test soak build format clean python

demo: python
	@$(PYTHON) scripts/setup.py demo
	@echo "[4/4] running 4 processes ..."
	@$(VENV)/oriel run --no-tag -n 4 -- $(VENV)/python examples/01_all_reduce/all_reduce.py

test: python
	@sh scripts/setup_debian.sh
	@$(PYTHON) scripts/setup.py test
	@$(VENV)/python tests/run

soak: python
	@sh scripts/setup_debian.sh
	@$(PYTHON) scripts/setup.py test
	@$(VENV)/python tests/run --soak

build: python
	@$(PYTHON) scripts/setup.py tools
	@PATH="$(CURDIR)/$(VENV):$$PATH" && cmake --preset normal && cmake --build build/normal

format: python
	@$(PYTHON) scripts/setup.py test
	@git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' | xargs $(VENV)/clang-format -i
	@$(VENV)/ruff format -q . && $(VENV)/ruff check -q --fix .

clean:
	rm -rf build .venv .setup

python:
	@test -n "$(PYTHON)" || { echo "oriel needs Python 3.11 or newer (and jax for it);" \
	    "install python3.11 or newer, for example: apt install python3 python3-venv"; exit 1; }
