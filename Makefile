# A thin front for CMake. `make help` lists the targets.
BUILD ?= build
CMAKE_FLAGS ?=
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
PYTHON = $(BUILD)/venv/bin/python
# make DEVICE=cuda: with the cuda device, its compiler taken from PyPI if there is none; else it is built where nvcc is.
DEVICE ?=
ifeq ($(DEVICE),cuda)
CMAKE_FLAGS += -DLILY_CUDA=ON
endif
CTEST = ctest --test-dir $(BUILD) --output-on-failure

.PHONY: all everything help setup setup-test demo serve test test-all nightly lint clean install

all: $(BUILD)/build.ninja  ## build/lily
	@cmake --build $(BUILD) -j $(JOBS) --target lily

everything: $(BUILD)/build.ninja  ## build/lily, the tools, the tests, the benchmarks
	@cmake --build $(BUILD) -j $(JOBS)

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BUILD)/build.ninja: CMakeLists.txt
	@command -v cmake >/dev/null && command -v ninja >/dev/null || \
	  { echo "cmake or ninja is missing: run 'make setup' once (apt or Homebrew)" >&2; exit 1; }
	@if [ "$(DEVICE)" = cuda ]; then tools/cuda.sh $(BUILD); fi
	@cmake -S . -B $(BUILD) -G Ninja -DLILY_PYTHON=$(abspath $(PYTHON)) $(CMAKE_FLAGS)

setup:  ## install what a build needs (apt or Homebrew)
	@tools/setup.sh $(if $(filter cuda,$(DEVICE)),cuda,build)

setup-test:  ## install what the tests need too
	@tools/setup.sh test

$(PYTHON): tests/requirements.txt
	python3 -m venv $(BUILD)/venv
	$(BUILD)/venv/bin/pip install --quiet --disable-pip-version-check -r tests/requirements.txt
	@touch $@

$(BUILD)/venv/gateways: tests/requirements-all.txt $(PYTHON)
	$(BUILD)/venv/bin/pip install --quiet --disable-pip-version-check -r tests/requirements-all.txt
	@touch $@

demo: setup  ## install, build, ask the demo model one question over HTTP
	@$(MAKE) --no-print-directory all
	@tools/demo.sh $(BUILD)/lily

serve: all  ## the API on http://127.0.0.1:8080 with the demo model
	$(BUILD)/lily serve

test: setup-test  ## tests, at most 15 minutes on 2 cores
	@$(MAKE) --no-print-directory $(PYTHON)
	@$(MAKE) --no-print-directory everything
	$(CTEST) -LE 'all|nightly'

test-all: setup-test  ## with gateways, sanitizers and fuzzing, at most 90 minutes
	@$(MAKE) --no-print-directory $(BUILD)/venv/gateways
	@$(MAKE) --no-print-directory everything lint
	$(CTEST) -LE nightly
	tools/sanitize.sh
	tools/fuzz.sh 60

nightly: test-all  ## with the full-size model (20 GB of disk)
	$(CTEST) -L nightly

lint:  ## layers, file sizes, private paths, static analysis
	tools/lint.sh

install: all  ## into CMAKE_INSTALL_PREFIX
	cmake --install $(BUILD)

clean:  ## remove the build folder
	rm -rf $(BUILD)
