#!/usr/bin/env bash
# Builds for this machine's GPU, then checks and measures all that docs/results has for GPUs:
# bench/gpu/run_all.sh. With flags (--device cpu --image 32 --batch 4 --bin DIR) it only tries the
# scripts out. TORCH_PYTHON may name a Python that has PyTorch.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${TORCH_PYTHON:-python3}

if [ $# -eq 0 ]; then
  nvidia-smi -L >/dev/null 2>&1 || {
    echo "run_all.sh: no GPU: nvidia-smi lists none" >&2
    exit 1
  }
  cmake --preset cuda
  cmake --build --preset cuda
  bench/gpu/right.sh
else
  bench/gpu/right.sh "$@"
fi
for script in costs fast saving; do
  "$python" "bench/gpu/$script.py" "$@"
done
