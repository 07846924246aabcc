#!/usr/bin/env bash
# Prints the preset with the best backend this machine can build and run: cuda or cpu.
set -u
cd "$(dirname "$0")/.."
if scripts/nvcc.sh >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  echo cuda
else
  echo cpu
fi
