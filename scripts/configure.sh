#!/usr/bin/env bash
# Configures a preset, unless that is done and the presets did not change since.
#   configure.sh PRESET
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=build/$1/configured
if [ ! -e "$stamp" ] || [ CMakePresets.json -nt "$stamp" ]; then
  cmake --preset "$1" -Wno-dev --log-level=WARNING
  touch "$stamp"
fi
