# `make help` lists the targets. State lives in .local/.
.DEFAULT_GOAL := help
.PHONY: help venv up down status demo try instance image clean test nightly python-tests fast-tests slow-tests built-images platform-tests cluster-tests nights-tests lowest-tests lint ruff format-check types imports english format lock audit bench real
# With it set, every Airflow process would compile all that it imports again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .local/venv
# uv does not read what pip is told of a mirror.
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif
PYTHON := $(VENV)/bin/python

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

venv:
	@local/bootstrap.sh $(VENV) requirements-local.txt

up: venv  ## start the local platform: database, S3 server, model stand-in, Docker engine, Airflow; EXECUTOR=celery WORKERS=3
	@$(PYTHON) -m local up $(if $(EXECUTOR),--executor $(EXECUTOR)) $(if $(WORKERS),--workers $(WORKERS)) \
		$(if $(ENGINES),--engines $(ENGINES))

down:  ## stop the local platform; the data stays
	@if $(PYTHON) -c 'import psutil, skillopt_airflow' 2>/dev/null; then $(PYTHON) -m local down; \
	elif [ -e .local/postgres/postmaster.pid ] || [ -e .local/docker/dockerd.pid ]; then \
		echo "error: the platform may run, and its virtual environment is not whole: run \`make venv\` first" >&2; exit 1; \
	else echo "Nothing to stop: nothing runs, and the virtual environment is not whole"; fi

status: venv  ## what runs, and where
	@$(PYTHON) -m local status

demo: venv  ## start the platform and train the sample benchmark
	@$(PYTHON) -m local demo

try: venv  ## a few items without Airflow: BENCHMARK=name ITEMS=3 SKILL=path SPLIT=train SET='model.max_turns=3'
	@$(PYTHON) -m local try $(BENCHMARK) $(if $(ITEMS),--items $(ITEMS)) $(if $(SPLIT),--split $(SPLIT)) \
		$(if $(SKILL),--skill '$(SKILL)') $(foreach setting,$(SET),--set '$(setting)')

instance: venv  ## an instance of swebench: REPO=folder BASE=commit FIX=commit OUT=folder REQUIREMENTS=file PROBLEM=file
	@$(PYTHON) -m benchmarks.swebench.make_instance $(if $(REPO),--repo '$(REPO)') --base '$(BASE)' --fix '$(FIX)' --out '$(OUT)' \
		$(if $(REQUIREMENTS),--requirements '$(REQUIREMENTS)') $(if $(PROBLEM),--problem '$(PROBLEM)')

# Whoever only builds images needs a tenth of the packages.
IMAGE_VENV = $(if $(wildcard $(VENV)/lock-*),$(VENV),.local/image-venv)
image:  ## build an image: NAME=sandbox (as `make up` does), codex, claude_code, alfworld, gateway or airflow (BASE=image)
	@local/bootstrap.sh $(IMAGE_VENV) $(if $(filter $(VENV),$(IMAGE_VENV)),requirements-local.txt,docker/image-requirements.txt)
	@$(IMAGE_VENV)/bin/python -m local image $(NAME) $(if $(BASE),--base $(BASE))

clean: down  ## stop the platform and delete all its data; the virtual environments stay
	@if [ -d .local ]; then find .local -mindepth 1 -maxdepth 1 ! -name '*venv' -exec rm -rf {} +; fi

test: venv  ## lint beside the tests that need nothing but Python, then those with a Docker engine or the whole platform
	@$(MAKE) --no-print-directory -j 3 lint python-tests built-images
	@$(MAKE) --no-print-directory platform-tests

# `make nightly` runs all tests, with other random examples each time.
ifdef NIGHTLY
EXAMPLES := --hypothesis-profile=random
else
UNLESS_NIGHTLY := and not nightly
endif

nightly:  ## all tests, also those that take long: repetitions, full matrices, random examples, sixty nights, Celery hosts
	@$(MAKE) --no-print-directory NIGHTLY=1 test nights-tests cluster-tests lowest-tests

# Half as many again as processors, since a test waits for a server, another process or a time limit now and then.
PROCESSES = $$(( $$(getconf _NPROCESSORS_ONLN) * 3 / 2 ))
NEEDS_PYTHON = not engine and not platform and not provider and not nights and not cluster $(UNLESS_NIGHTLY)

# File by file, since a training that the tests of a file share would else be made by each process.
python-tests: venv  ## tests that need nothing but Python: the fast ones, then the slow ones
	$(PYTHON) -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder $(EXAMPLES) -m "$(NEEDS_PYTHON)"

fast-tests: venv  ## of these, the ones that take little time each
	$(PYTHON) -m pytest -n $(PROCESSES) --dist worksteal $(EXAMPLES) -m "not slow and $(NEEDS_PYTHON)"

# Its base is fetched from Debian and its packages from PyPI, for which all tests with an engine would wait.
built-images: venv
	$(PYTHON) -m pytest -m "engine $(UNLESS_NIGHTLY)" tests/local/test_image.py

# The files with tests of a kind, since merely importing all others takes a process a quarter of a minute.
MARKED = $$(grep -rlE --include='*.py' 'mark\.($(1))' tests | sort)

slow-tests: venv  ## and whole trainings in one process, servers, time limits
	$(PYTHON) -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder -m "slow and $(NEEDS_PYTHON)" $(call MARKED,slow)

# Four files at a time, whatever the processors: a test on the platform mostly waits, one task for the other.
platform-tests: venv  ## tests that need a Docker engine or the whole platform
	$(PYTHON) -m pytest -n 4 --dist loadfile --no-loadscope-reorder -m "(engine or platform) $(UNLESS_NIGHTLY)" $(call MARKED,engine|platform)

cluster-tests: venv  ## trainings over Celery workers on hosts of their own, with faults; needs root, not part of `make test`
	$(PYTHON) -m pytest -rP -m cluster $(call MARKED,cluster)

# The rollout program isn't among them: its image has a lock of its own.
LOWEST = .local/lowest-venv
lowest-tests: venv  ## the fast tests with the lowest versions that pyproject.toml allows
	rm -rf $(LOWEST)
	$(VENV)/bin/uv venv --quiet --python $(PYTHON) $(LOWEST)
	$(VENV)/bin/uv pip compile --quiet --resolution lowest-direct --all-extras pyproject.toml -o $(LOWEST)/lowest.txt
	$(VENV)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --compile-bytecode -r $(LOWEST)/lowest.txt
	PYTHONPATH=include $(LOWEST)/bin/python -m pytest -n $(PROCESSES) --dist worksteal --ignore tests/rollout \
		-m "not slow and $(NEEDS_PYTHON)"

nights-tests: venv  ## sixty nights of re-gating on the whole platform; not part of `make test`
	$(PYTHON) -m pytest -m nights

lint: ruff format-check types imports english  ## all static checks

ruff: venv
	$(VENV)/bin/ruff check

format-check: venv
	$(VENV)/bin/ruff format --check

types: venv
	$(VENV)/bin/mypy

imports: venv
	$(VENV)/bin/lint-imports

english: venv
	$(PYTHON) -m pytest -q tests/test_english.py

format: venv  ## format the code and fix what ruff can fix
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

COMPILE := $(VENV)/bin/uv pip compile --quiet --no-header --no-annotate --generate-hashes --no-emit-index-url --no-emit-find-links \
	--universal --python-version 3.11

lock: venv  ## make the locks from pyproject.toml: of production, with what the platform here and the tests add, of the images
	$(COMPILE) $(foreach extra,azure celery kubernetes office pictures,--extra $(extra)) pyproject.toml -o requirements.txt
	$(COMPILE) --all-extras -c requirements.txt pyproject.toml -o requirements-local.txt
	$(COMPILE) -c requirements.txt docker/sandbox-requirements.in -o docker/sandbox-requirements.txt
	$(COMPILE) -c requirements.txt docker/gateway-requirements.in -o docker/gateway-requirements.txt
	$(COMPILE) --no-deps docker/alfworld-requirements.in -o docker/alfworld-requirements.txt
	$(COMPILE) --no-deps -c requirements-local.txt docker/airflow-requirements.in -o docker/airflow-requirements.txt
	$(COMPILE) --no-deps docker/compiled-requirements.in -o docker/compiled-requirements.txt
	$(COMPILE) -c requirements-local.txt docker/image-requirements.in -o docker/image-requirements.txt
	$(COMPILE) -c requirements.txt examples/requirements.in -o examples/requirements.txt
	$(COMPILE) --no-deps bench/llama-requirements.in -o bench/llama-requirements.txt

LOCKS = $(wildcard requirements*.txt $(foreach folder,bench docker examples,$(folder)/*requirements*.txt))

audit: venv  ## look for known vulnerabilities in all locks: IGNORE=ID leaves one out
	$(VENV)/bin/pip-audit --vulnerability-service osv --disable-pip --progress-spinner off \
	  $(foreach one,$(IGNORE),--ignore-vuln '$(one)') $(foreach lock,$(LOCKS),--requirement $(lock))

bench: venv  ## make the tables of bench/results anew
	$(PYTHON) -m bench

real: venv  ## train examples/ledger with a real model: MODEL=/path/to/model.gguf SEEDS=2 SET='train.steps_per_epoch=2'
	@$(PYTHON) -m bench.real_model $(if $(MODEL),'$(MODEL)') $(if $(SEEDS),--seeds $(SEEDS)) \
		$(foreach setting,$(SET),--set '$(setting)')
