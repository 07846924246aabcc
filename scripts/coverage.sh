#!/usr/bin/env bash
# Runs the tests of the coverage preset and reports the lines of src/ they reach; fails below the
# minimum. A browsable report goes to build/coverage/html/.
#   coverage.sh [MINIMUM PERCENT]
set -euo pipefail
cd "$(dirname "$0")/.."
minimum=${1:-85}

find build/coverage -name '*.gcda' -delete
scripts/run_tests.sh coverage
mkdir -p build/coverage/html
# fmt and the standard library throw from nearly every line: branches say little, lines do.
gcovr --root . --filter 'src/' --filter 'include/' --exclude-unreachable-branches -j "$(nproc)" \
  --fail-under-line "$minimum" --print-summary --txt --html-details build/coverage/html/index.html \
  build/coverage
