#!/usr/bin/env bash
# Prints the preset with the best backend this machine can build and run: cuda or cpu.
set -u
nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
if [ "${version:-0}" -ge 13 ] && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  echo cuda
else
  echo cpu
fi
