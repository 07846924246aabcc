# Short names for the usual work; CMakePresets.json has the details.
#   make run             install what is missing, build, run the main job (ARGS="--ranks 4" adds to it)
#   make test            the same for the tests (ARGS="-R routing": only some of them)
#   make asan|ubsan|tsan the tests under a sanitizer; make coverage: which lines they reach
#   make fuzz            each fuzz target for FUZZ_SECONDS
#   make format|lint     clang-format in place; clang-tidy
#   make cuda            build the CUDA backend, on a machine with or without a GPU
#   make install         into PREFIX (default /usr/local)
PRESET = $(shell scripts/best_preset.sh)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 10
ARGS ?=

.PHONY: all run test asan ubsan asan-ubsan tsan coverage fuzz format lint cuda install clean deps dev-deps
all: deps
	@scripts/build.sh $(PRESET)

run: deps
	@scripts/build.sh $(PRESET)
	@build/$(PRESET)/bin/catamount run $(ARGS)

test: deps
	@scripts/build.sh $(PRESET)
	@scripts/run_tests.sh $(PRESET) $(ARGS)

asan ubsan asan-ubsan tsan: dev-deps
	@scripts/build.sh $@
	@scripts/run_tests.sh $@ $(ARGS)

coverage: dev-deps
	@scripts/build.sh coverage
	@scripts/coverage.sh

fuzz: dev-deps
	@scripts/build.sh fuzz
	@scripts/fuzz.sh $(FUZZ_SECONDS)

format: dev-deps
	@scripts/sources.sh | xargs clang-format -i

lint: dev-deps
	@scripts/lint.sh

cuda: deps
	@scripts/build.sh cuda

install: deps
	@scripts/build.sh $(PRESET)
	@cmake --install build/$(PRESET) --prefix $(PREFIX)

clean:
	rm -rf build

deps:
	@scripts/install_deps.sh
dev-deps:
	@scripts/install_deps.sh --dev
