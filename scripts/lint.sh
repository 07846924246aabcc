#!/usr/bin/env bash
# clang-tidy over the library and the tool, with the compile commands of a clang build.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/configure.sh lint
log=build/lint/clang-tidy.log
if ! run-clang-tidy -quiet -j "$(nproc)" -p build/lint "$PWD/(src|tools)/.*\.cpp$" >"$log" 2>&1; then
  sed -e 's/\x1b\[[0-9;]*m//g' "$log" |
    grep -vE '^clang-tidy|^[0-9]+ warnings? |^Suppressed |^Use -(header|system)'
  exit 1
fi
echo "clang-tidy: no findings"
