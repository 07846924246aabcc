#!/usr/bin/env bash
# Builds a preset; configures it first when needed.
#   build.sh PRESET
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/configure.sh "$1"
cmake --build "build/$1"
