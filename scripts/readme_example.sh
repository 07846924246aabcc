#!/usr/bin/env bash
# Writes the C++ example of README.md to a file: the ```cpp block between
# <!-- example --> and <!-- /example -->.
#   readme_example.sh OUTPUT.cpp
set -euo pipefail
output=$1
cd "$(dirname "$0")/.."
code=$(sed -n '/<!-- example -->/,/<!-- \/example -->/p' README.md |
       sed -n '/^```cpp/,/^```$/{/^```/d;p}')
if [ -z "$code" ]; then
  echo "readme_example: README.md has no cpp block between the example markers" >&2
  exit 1
fi
printf '%s\n' "$code" >"$output"
