#!/usr/bin/env bash
# Registers, spills, occupancy, load widths and grids of the executor's own GPU kernels, without a GPU:
#
#   bench/gpu/occupancy.sh >tables.md       (NVCC and NVDISASM may name the programs)
#
# docs/results/gpu_counted.md sums up what it prints of batch norm. Without nvdisasm the load widths are zeros.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
nvdisasm=${NVDISASM:-$(command -v nvdisasm || true)}
[ -x "$nvcc" ] || {
  echo "occupancy.sh: no nvcc; set NVCC" >&2
  exit 1
}
include=$(dirname "$nvcc")/../include
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

c++ -std=c++20 -O1 -isystem "$include" -Iexecutor -Iinclude bench/gpu/occupancy.cpp -o "$folder/occupancy"
arguments=()
for arch in 80 89 90 120; do
  : >"$folder/$arch.log"
  : >"$folder/$arch.sass"
  for file in executor/cuda/own_*.cu; do
    "$nvcc" -std=c++20 -O3 -cubin -arch "sm_$arch" -Xptxas -v -Iexecutor -Iinclude \
      -o "$folder/kernels.cubin" "$file" 2>>"$folder/$arch.log" || {
      cat "$folder/$arch.log" >&2
      exit 1
    }
    [ -z "$nvdisasm" ] || "$nvdisasm" "$folder/kernels.cubin" >>"$folder/$arch.sass"
  done
  arguments+=("$arch" "$folder/$arch.log" "$folder/$arch.sass")
done
"$folder/occupancy" "${arguments[@]}"
