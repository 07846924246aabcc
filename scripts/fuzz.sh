#!/usr/bin/env bash
# Runs each built fuzz target for some seconds, starting from its seeds in tests/fuzz/corpus/.
#   fuzz.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}

status=0
for target in build/fuzz/fuzz/*_fuzz; do
  [ -x "$target" ] || { echo "fuzz: no targets are built"; exit 1; }
  name=$(basename "$target")
  work=build/fuzz/corpus/$name
  seeds=tests/fuzz/corpus/${name%_fuzz}
  mkdir -p "$work"
  echo "fuzz: $name for $seconds s"
  # New inputs go to the first folder; a crash is kept in build/fuzz/.
  if ! "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 \
      -verbosity=0 -artifact_prefix="build/fuzz/$name-" "$work" \
      $([ -d "$seeds" ] && echo "$seeds"); then
    echo "fuzz: $name FAILED; its input is build/fuzz/$name-*" >&2
    status=1
  fi
done
exit $status
