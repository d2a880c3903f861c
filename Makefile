# Two commands: `make run` and `make test`. If constraints.txt or pyproject.toml has changed, both first set up .venv,
# `make run` with the packages of a run, `make test` with all packages of the tests. TORCH=cpu: PyTorch without CUDA.
# `make quick` is `make test` without whole runs, for use during development.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := build/peers
# an environment for tests also suffices for a run
RUNS := $(if $(wildcard $(STAMP)),$(STAMP),$(VENV)/.installed-run)

export FLWR_TELEMETRY_ENABLED := 0
export RAY_USAGE_STATS_ENABLED := 0
export NO_MKDOCS_2_WARNING := 1
# Python caches bytecode in .venv, not beside the sources, even if PYTHONDONTWRITEBYTECODE is set: otherwise each process
# that a test starts would compile PyTorch again, 3 s of CPU
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache

# window files of the two data sets for `make results`; `fedge datasets download motionsense` and `prepare motionsense`
# make the first
MOTIONSENSE ?= data/motionsense.npz
HHAR ?= data/hhar-9users.npz
MNIST ?= data/mnist.npz
# x (N, 3, 32, 32) uint8, y, split, classes, for `make ten-by-ten`
PICTURES ?= data/cifar10-images.npz
# 28 × 28 images, at least 26,000, for `make feature-skew`: x (N, 28, 28) uint8 and y (N,)
IMAGES ?= data/mnist.npz
CIFAR10 ?= data/cifar10.npz

.PHONY: ten-by-ten docs notebooks results run test extended quick quick-tests mutants bench bench-full bench-peers soak image-root audit hashes install format check types tests clean dist newcomer pythons matrix lint-deploy faults results-quick results-methods results-draws results-rivals results-devices results-revive results-precision results-kernel results-depth draws-data feature-skew levels

run: $(RUNS)
	PATH="$(CURDIR)/$(BIN):$$PATH" SEED=$${SEED:-42} $(BIN)/flwr run .

# tests in parallel: each process imports torch once, and takes over tests that another has not started. Whole runs are
# idle at times, so they get two processes more than there are cores (tests/conftest.py)
SIDE_BY_SIDE := --dist worksteal

# the checks use the time in which tests are idle
test: $(STAMP)
	$(MAKE) --no-print-directory --jobs 2 check types tests

# ten leaves of ten clients, six methods, on PICTURES, a file of images (studies/protocols/prepare.py)
ten-by-ten: $(STAMP)
	test -f data/cifar10.npz || $(BIN)/python -m studies.protocols.prepare $(PICTURES) data/cifar10.npz
	$(BIN)/fedge sweep studies/protocols/ten-by-ten.toml

# a table of a paper, studies/tables/NAME, cut or with SETTINGS=as-published, and its section of docs/tables-of-papers.md;
# if runs diverged, the section is still written, and the command fails. Repeat the command to resume after a stop. MNIST
# and PICTURES (CIFAR-10) need their own split
SETTINGS ?= cut
table-%: $(STAMP)
	$(BIN)/python -m studies.tables.data studies/tables/$*/$(SETTINGS)*.toml --mnist $(MNIST) --cifar10 $(PICTURES) --hhar $(HHAR)
	code=0; $(BIN)/fedge sweep studies/tables/$*/$(SETTINGS)*.toml --workers 1 || code=$$?; \
		$(BIN)/python -m studies.tables.page $* && exit $$code

# the same for a question that no paper answers
question-%: $(STAMP)
	$(MAKE) --no-print-directory table-$* SETTINGS=study

quick: $(STAMP)
	$(MAKE) --no-print-directory --jobs 2 check types quick-tests

install: $(STAMP)

$(STAMP): EXTRAS := dev
$(VENV)/.installed-run: EXTRAS := ray
$(STAMP) $(VENV)/.installed-run: constraints.txt pyproject.toml hatch_build.py $(wildcard fedge/native/src/*)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Fedge needs Python 3.10 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) tools/install.py $(EXTRAS)
	touch $@

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy

# the first line compiles the modules of tests once, beside mypy, where otherwise each of the processes would
tests: $(STAMP)
	$(BIN)/python -m pytest --collect-only -qq > /dev/null 2>&1 || true
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -q -n auto $(SIDE_BY_SIDE)

# tests that repeat another one's case on Ray, and long ones: minutes in total
extended: $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -q -n auto $(SIDE_BY_SIDE) -m "extended and not soak"

quick-tests: $(STAMP)
	$(BIN)/python -m pytest -q -n logical --maxprocesses 4 $(SIDE_BY_SIDE) -m "not soak and not extended and not whole_runs and not slow" --ignore=tests/runs

# mutation tests: small changes of code that affects results, and those that no test notices: make mutants NUMBER=200
mutants: $(STAMP)
	$(BIN)/python -m tools.mutants --number $(or $(NUMBER),50)

bench: $(STAMP)
	$(BIN)/python -m benchmarks.all

bench-full: $(STAMP)
	$(BIN)/python -m benchmarks.all --full

# Fedge compared with other simulators, in a separate environment (benchmarks/peers); minutes
bench-peers: $(PEERS)/.installed
	$(PEERS)/bin/python -m benchmarks.peers

$(PEERS)/.installed: constraints.txt pyproject.toml $(wildcard fedge/native/src/* benchmarks/peers/*.txt)
	VENV=$(PEERS) $(PYTHON) tools/install.py ray
	$(PEERS)/bin/python -m pip install --quiet -c constraints.txt -r benchmarks/peers/requirements.txt
	$(PEERS)/bin/python -m pip install --quiet --no-deps --ignore-requires-python -r benchmarks/peers/requirements-alone.txt
	touch $@

# deployments with one fault each, and their table in docs/reliability.md: a quarter of an hour
faults: $(STAMP)
	$(BIN)/python -m tools.faults --into docs/reliability.md

# linters for the files of deploy/, in a separate environment; needs the network once. DL3008 is ignored: the compiler is
# that of the image's Debian release
LINT := build/lint
lint-deploy: $(LINT)/.installed
	$(LINT)/bin/hadolint --ignore DL3008 deploy/Dockerfile
	$(LINT)/bin/kubernetes-validate --strict deploy/kubernetes/leaf-servers.yml deploy/kubernetes/superlink.yml
	$(LINT)/bin/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yml deploy/superlink.yml
	$(LINT)/bin/shellcheck deploy/slurm/leaf-servers.sh

$(LINT)/.installed: deploy/lint.txt
	$(PYTHON) -m venv $(LINT)
	$(LINT)/bin/python -m pip install --quiet -r deploy/lint.txt
	touch $@

# the image's root file system, built by the steps of its Dockerfile without a container daemon, and runs in it as its
# user; needs root, mmdebstrap and the network: make image-root INTO=/tmp/fedge-image
image-root: $(STAMP)
	$(BIN)/python -m tools.image_root $(INTO) $(IMAGE_ROOT) --run

# known vulnerabilities of the packages in constraints.txt; uses a separate environment (.audit), and the network or a
# copy of OSV's database: make audit OSV=all.zip
audit: $(STAMP)
	@$(BIN)/python -m tools.audit $(OSV)

# constraints-hashes.txt, after a change of constraints.txt; needs the network
hashes: $(STAMP)
	@$(BIN)/python -m tools.audit --hashes

# 1,000 rounds on both engines, 50 kills, faults before every file operation of eight runs; prints its figures
soak: $(STAMP)
	FEDGE_DAY=$$(($$(date +%s) / 86400)) PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -m soak -s

# all studies and the second half of docs/results.md: 680 runs, about forty minutes on two cores;
# repeat the command to resume after a stop
results: $(STAMP)
	mkdir -p data/study
	$(BIN)/hhar thin $(MOTIONSENSE) data/study/motionsense.npz --keep-every 4 --mean-of 4
	$(BIN)/hhar thin $(HHAR) data/study/hhar.npz --keep-every 2 --mean-of 4
	$(BIN)/hhar synthesize data/study/synthetic.npz --small --users 24 --rate-hz 12.5
	$(BIN)/fedge sweep studies/*.toml
	$(BIN)/python -m studies.page

# a part of studies/draws, with the present method, for a check in a quarter of an hour on two cores; MNIST is the output
# of `fedge datasets prepare mnist --users 24 --per-user 250`
results-quick: $(STAMP) draws-data
	$(BIN)/fedge sweep studies/quick/*.toml
	$(BIN)/python -m studies.draws_part --studies studies/quick --pages

# client methods (Ditto, pFedMe, FedRep) and families of models compared with Fedge: 80 runs
results-methods: $(STAMP)
	mkdir -p data/study
	$(BIN)/hhar thin $(MOTIONSENSE) data/study/motionsense.npz --keep-every 4 --mean-of 4
	$(BIN)/fedge sweep studies/methods/*.toml

# gain from asynchrony on a virtual clock: 106 runs, about two hours on two cores
results-devices: $(STAMP)
	mkdir -p data/study
	$(BIN)/hhar thin $(MOTIONSENSE) data/study/motionsense.npz --keep-every 4 --mean-of 4
	$(BIN)/hhar thin $(MOTIONSENSE) data/study/motionsense-half.npz --keep-every 2 --mean-of 4
	$(BIN)/fedge sweep studies/devices/*.toml
	$(BIN)/python -m studies.devices_part

# FedRevive's claim on images: 48 runs, about an hour on two cores; CIFAR10: x (N, 3, 32, 32) uint8 and y (N,), at least 12,000
results-revive: $(STAMP)
	$(BIN)/python -m studies.revive $(IMAGES) $(CIFAR10)
	$(BIN)/fedge sweep studies/revive/*.toml
	$(BIN)/python -m studies.devices_part --studies studies/revive --pages docs/fedrevive.md

# the same clients on trees of depth 1, 2 and 3, with virtual time and energy: 15 runs, minutes on two cores
results-depth: $(STAMP)
	mkdir -p data/study
	$(BIN)/hhar thin $(MOTIONSENSE) data/study/motionsense.npz --keep-every 4 --mean-of 4
	$(BIN)/fedge sweep studies/depth/motionsense.toml
	$(BIN)/python -m studies.depth_part

# cost in accuracy of bf16 factors: 30 runs, a quarter of an hour on two cores
results-precision: $(STAMP)
	mkdir -p data/study
	$(BIN)/hhar thin $(HHAR) data/study/hhar-long.npz --keep-every 4
	$(BIN)/hhar thin $(MOTIONSENSE) data/study/motionsense.npz --keep-every 4 --mean-of 4
	$(BIN)/hhar thin $(HHAR) data/study/hhar.npz --keep-every 2 --mean-of 4
	$(BIN)/fedge sweep studies/precision/*.toml

# accuracy with the native step and with PyTorch: 20 runs, minutes on two cores
results-kernel: $(STAMP)
	mkdir -p data/study
	$(BIN)/hhar thin $(MOTIONSENSE) data/study/motionsense.npz --keep-every 4 --mean-of 4
	$(BIN)/hhar thin $(HHAR) data/study/hhar.npz --keep-every 2 --mean-of 4
	$(BIN)/fedge sweep studies/kernel/*.toml

# all draws: ten of each of five data sets, with groups and without: 1,090 runs, forty minutes on two cores
results-draws: $(STAMP) draws-data
	$(BIN)/fedge sweep studies/draws/*.toml
	$(BIN)/python -m studies.draws_part

# all rivals, with and without the number of groups, with one setting of studies/PROTOCOL.md: 1,370 runs
results-rivals: $(STAMP) draws-data
	$(BIN)/fedge sweep studies/rivals/*.toml
	$(BIN)/python -m studies.draws_part --studies studies/rivals

draws-data: $(STAMP)
	mkdir -p data/study
	$(BIN)/hhar thin $(MOTIONSENSE) data/study/motionsense.npz --keep-every 4 --mean-of 4
	$(BIN)/hhar thin $(HHAR) data/study/hhar.npz --keep-every 2 --mean-of 4
	$(BIN)/hhar synthesize data/study/synthetic.npz --small --users 24 --rate-hz 12.5
	$(BIN)/hhar thin $(MNIST) data/study/mnist.npz

# level and power of the closed test under the real null, users trained once: 1,000 deals a shape, about an hour on two cores
levels: $(STAMP) draws-data
	$(BIN)/hhar synthesize data/study/surplus.npz --small --users 30 --rate-hz 12.5
	$(BIN)/python -m benchmarks.grouping.levels data/study/motionsense.npz --shapes 3x3,3x4,4x4,6x3,6x4,10x2 --seeds 3004
	$(BIN)/python -m benchmarks.grouping.levels data/study/motionsense.npz --shapes 6x4 --planted large --seeds 3004
	$(BIN)/python -m benchmarks.grouping.levels data/study/hhar.npz --shapes 3x3 --seeds 3004
	$(BIN)/python -m benchmarks.grouping.levels data/study/surplus.npz --shapes 6x4 --planted surplus --deals 200 --seeds 3004
	$(BIN)/python -m benchmarks.grouping.levels data/study/motionsense.npz --shapes 3x4,4x4,6x3,6x4 --deals 200 --seeds 3005 \
		--planted lone-rotate,lone-labels,lone-gain,half-rotate,half-labels,half-gain,four-rotate,four-labels,four-gain,apart-rotate,apart-labels,apart-gain
	$(BIN)/python -m benchmarks.grouping.levels data/study/motionsense.npz --shapes 6x3,6x4,10x2 --deals 200 --seeds 3005 \
		--planted pair-rotate,pair-labels,pair-gain
	$(BIN)/python -m benchmarks.grouping.levels data/study/motionsense.npz --shapes 3x3 --deals 200 --seeds 3005 \
		--planted lone-rotate,lone-labels,lone-gain,apart-rotate,apart-labels,apart-gain
	$(BIN)/python -m benchmarks.grouping.levels data/study/motionsense.npz --shapes 10x2 --deals 200 --seeds 3005 \
		--planted lone-rotate,lone-labels,lone-gain,half-rotate,half-labels,half-gain

# the table of CLoVE's authors for MNIST in four rotations, as far as it can be repeated; hours on two cores
feature-skew: $(STAMP)
	$(BIN)/python -m benchmarks.feature_skew $(IMAGES) --out data/feature-skew.jsonl

# the site, into site/: strict, so a warning, or a link or anchor without a target, is an error
docs: $(STAMP)
	$(BIN)/python -m mkdocs build

# docs/notebooks, executed and saved with their outputs
notebooks: $(STAMP)
	$(BIN)/python -m tools.notebooks

# files for a package index, checked; a tag must match the version (CONTRIBUTING.md): the source distribution, a wheel for
# any system, and on x86-64 Linux one with the native step for all such systems (tools/manylinux.py)
dist: docs
	$(BIN)/python -m tools.tag_check
	rm -rf dist
	FEDGE_WHEEL=index $(BIN)/python -m hatchling build -d dist
	$(BIN)/python -m tools.manylinux dist
	$(BIN)/python -m twine check --strict dist/*

# the steps of a new user: a fresh environment, the wheel, an empty folder
newcomer:
	PYTHON=$(PYTHON) bash tests/newcomer.sh

# the tests without whole runs on Python 3.10 to 3.13, those that are installed
pythons:
	$(PYTHON) -m tools.pythons

# the newest Flower, in an environment on top of .venv (docs/flower-versions.md)
matrix: $(STAMP)
	$(BIN)/python -m tools.matrix

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .audit site .mypy_cache .pytest_cache .ruff_cache .hypothesis
