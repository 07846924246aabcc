#!/usr/bin/env bash
# Runs the tests of a built preset and ends with the line "N passed, N failed, N skipped".
#   run_tests.sh PRESET [CTEST ARGUMENTS]
set -uo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift

launcher=()
if [ "$preset" = tsan ] && setarch "$(uname -m)" -R true 2>/dev/null; then
  # ThreadSanitizer cannot map its shadow under the strong address randomization of new kernels.
  launcher=(setarch "$(uname -m)" -R)
fi

report=$PWD/build/$preset/tests.xml
rm -f "$report"
run_ctest() {
  "${launcher[@]}" ctest --test-dir "build/$preset" --output-on-failure --no-tests=error \
    -j "$(nproc)" --output-junit "$report" "$@"
}
if [ -t 1 ]; then
  run_ctest --progress "$@"
  status=$?
else
  run_ctest "$@" | sed -u '/^ *Start *[0-9]*: /d'
  status=${PIPESTATUS[0]}
fi

# attribute NAME: its number in the report's first tag.
attribute() { sed -n "s/^[[:space:]]*$1=\"\([0-9]*\)\".*/\1/p" "$report" | head -1; }
if [ ! -s "$report" ]; then
  echo "run_tests: ctest wrote no report" >&2
  exit 1
fi
failed=$(attribute failures)
skipped=$(($(attribute skipped) + $(attribute disabled)))
echo "$(($(attribute tests) - failed - skipped)) passed, $failed failed, $skipped skipped"
exit "$status"
