#!/usr/bin/env bash
# Installs what building and testing need and this machine lacks: Debian/Ubuntu packages, and the
# tests' Python packages in build/venv. Silent when nothing is missing.
#   install_deps.sh          what `make run` and `make test` need
#   install_deps.sh --dev    and what `make lint`, the sanitizers, fuzzing and coverage need
set -euo pipefail
cd "$(dirname "$0")/.."

dev=no
case "${1:-}" in
  "") ;;
  --dev) dev=yes ;;
  *) echo "usage: install_deps.sh [--dev]" >&2; exit 2 ;;
esac

packages=()
# need_command COMMAND PACKAGE: a program, from wherever it was installed.
need_command() { command -v "$1" >/dev/null || packages+=("$2"); }
# need_file PACKAGE PATH...: a library's header, in the distribution's folders or under /usr/local.
need_file() {
  local package=$1 path
  shift
  for path in "$@"; do
    compgen -G "/usr/include/$path" >/dev/null && return
    compgen -G "/usr/local/include/$path" >/dev/null && return
  done
  packages+=("$package")
}

need_command make make
need_command g++ g++
need_command cmake cmake
need_command ninja ninja-build
need_command ccache ccache
need_file libdnnl-dev oneapi/dnnl/dnnl.h
need_file libgtest-dev gtest/gtest.h
need_file libfmt-dev fmt/core.h
need_file nlohmann-json3-dev nlohmann/json.hpp
need_file libcli11-dev CLI/CLI.hpp
need_command python3 python3
python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv)
if [ "$dev" = yes ]; then
  need_command git git
  need_command clang++ clang
  need_command clang-format clang-format
  need_command clang-tidy clang-tidy
  need_command run-clang-tidy clang-tidy
  need_command gcovr gcovr
fi

install_packages() {
  if ! command -v apt-get >/dev/null; then
    echo "install_deps: this machine has no apt-get (only Debian and Ubuntu are automatic)." >&2
    echo "Please install the equivalents of: $*" >&2
    exit 1
  fi
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "install_deps: needs root or sudo to install: $*" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  echo "install_deps: installing Debian/Ubuntu packages: $*"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
    --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" >/dev/null
}

if [ ${#packages[@]} -gt 0 ]; then
  install_packages "${packages[@]}"
fi
# Some releases ship clang's sanitizer and fuzzer runtimes in a package of the compiler's version.
if [ "$dev" = yes ]; then
  runtime=$(clang++ -print-file-name=libclang_rt.fuzzer-"$(uname -m)".a)
  if [ ! -e "$runtime" ] && [ ! -e "$(clang++ -print-runtime-dir)/${runtime##*/}" ]; then
    install_packages "libclang-rt-$(clang++ -dumpversion | cut -d. -f1)-dev"
  fi
fi

# The venv is complete when its copy of the requirements is the current one.
requirements=tests/python/requirements.txt
if ! cmp -s "$requirements" build/venv/requirements.txt; then
  echo "install_deps: installing the tests' Python packages into build/venv:" \
       "$(grep -v '^#' "$requirements" | tr '\n' ' ')"
  mkdir -p build
  python3 -m venv --clear build/venv
  build/venv/bin/pip install --quiet --disable-pip-version-check -r "$requirements"
  cp "$requirements" build/venv/requirements.txt
fi
