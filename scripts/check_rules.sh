#!/usr/bin/env bash
# The rules of the tree that no compiler checks. Prints each break; exits 1 if there is one.
set -euo pipefail
cd "$(dirname "$0")/.."

status=0
broken() {
  echo "check_rules: $1" >&2
  status=1
}

mapfile -t sources < <(scripts/sources.sh)

# Inline PTX has one home.
if grep -nwE '(asm|__asm__)' "${sources[@]}" | grep -v '^src/cuda/ptx'; then
  broken "the lines above use asm: PTX belongs under src/cuda/ptx"
fi

# A program that uses the library needs none of its dependencies' headers.
if grep -rnE '#include *[<"](cuda|cublas|nv|torch|ATen|c10|fmt|nlohmann|core/)' include; then
  broken "the lines above include a header that users need not have"
fi

# A CPU build takes other files, not other branches of the same file.
if grep -nE '# *(if|ifdef|ifndef|elif).*CATAMOUNT_CUDA' "${sources[@]}"; then
  broken "the lines above choose the backend by preprocessor: use src/cuda and src/no_cuda"
fi

# The library never prints and never ends the process.
if grep -nE '\b(std::(cout|cerr)|printf|fmt::print|std::exit|std::abort)\b' "${sources[@]}" |
    grep '^src/' | grep -vE '^src/cuda/'; then
  broken "the lines above print or exit: src/ raises Error and leaves that to its caller"
fi

for file in "${sources[@]}"; do
  lines=$(wc -l <"$file")
  [ "$lines" -le 400 ] || echo "check_rules: note: $file has $lines lines (aim: 300)"
  case $file in
    *.h) grep -q '^#pragma once' "$file" || broken "$file lacks #pragma once" ;;
  esac
done
exit $status
