#!/usr/bin/env bash
# Prints the path of nvcc, if this machine has one that is new enough; fails otherwise.
set -u
nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
[ "${version:-0}" -ge 13 ] && echo "$nvcc"
