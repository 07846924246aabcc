#!/usr/bin/env bash
# Prints our C++ and CUDA files, one a line.
set -euo pipefail
cd "$(dirname "$0")/.."
find include src tools tests bench -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' | sort
