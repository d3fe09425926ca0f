#!/usr/bin/env bash
# Are the results right on a GPU? Its tests, training under budgets compared bit for bit with the
# unmanaged run, and compute-sanitizer over a short run. The first failure ends it.
#
#   bench/gpu/right.sh [--bin DIR] [--device cpu]     (cpu only tries the script out)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bin=build/cuda/bin device=cuda
while [ $# -gt 0 ]; do
  case "$1" in
    --bin) bin=$2 && shift 2 ;;
    --device) device=$2 && shift 2 ;;
    --image | --batch | --steps | --out) shift 2 ;; # the other scripts'
    *) echo "right.sh: unknown flag '$1'; allowed: --bin DIR, --device cpu" >&2 && exit 2 ;;
  esac
done
[ -x "$bin/delta-train" ] || {
  echo "right.sh: there is no $bin/delta-train; build it with: cmake --workflow --preset cuda" >&2
  exit 1
}
if [ "$device" = cuda ] && ! nvidia-smi -L >/dev/null 2>&1; then
  echo "right.sh: no GPU: nvidia-smi lists none" >&2
  exit 1
fi

out=docs/results
[ "$device" = cuda ] || out=build/gpu-smoke
mkdir -p "$out"
rows=$out/gpu-right.md
commit=$(git rev-parse --short HEAD)
gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)
{
  printf '# Right on a GPU\n\n`bench/gpu/right.sh`, commit %s; %s.\n\n' "$commit" "${gpu:-none: $device}"
  printf '| check | result |\n|---|---|\n'
} >"$rows"

# check NAME COMMAND...: one row; what it printed is shown when it fails. Exit code 3 is delta-train's
# typed answer that a policy can't keep to a budget: no wrong result.
check() {
  local name=$1 log status=0
  shift
  log=$(mktemp)
  "$@" >"$log" 2>&1 || status=$?
  if [ "$status" -eq 3 ]; then
    printf '| %s | the policy says that it can not keep to it |\n' "$name" | tee -a "$rows"
    rm -f "$log"
  elif [ "$status" -eq 0 ] || [ "$status" -eq 77 ]; then
    # A test that was left out (exit code 77) is no success.
    local note
    note=$(grep -m 1 '^SKIPPED' "$log" || true)
    printf '| %s | %s |\n' "$name" "${note:-passed}" | tee -a "$rows"
    rm -f "$log"
  else
    printf '| %s | FAILED |\n' "$name" | tee -a "$rows"
    cat "$log"
    rm -f "$log"
    exit 1
  fi
}

for test in "$bin"/cuda_*_test "$bin"/gpu_*_test; do
  [ ! -x "$test" ] || check "$(basename "$test")" "$test"
done

train() { "$bin/delta-train" --device "$device" --image 64 --batch 16 --lr 0.005 --steps 4 "$@"; }
for model in resnet20 resnet50; do
  for percent in 80 60; do
    check "$model, paper, $percent %, bit for bit" \
      train --model "$model" --policy paper --budget "$percent%" --verify
  done
  for policy in dtr online adaptive; do
    for percent in 80 60 40; do
      check "$model, $policy, $percent %, bit for bit" \
        train --model "$model" --policy "$policy" --budget "$percent%" --verify
    done
  done
done

if [ "$device" = cpu ]; then
  echo "SKIPPED: compute-sanitizer: it is for GPUs"
elif ! command -v compute-sanitizer >/dev/null; then
  printf '| compute-sanitizer | SKIPPED: it is not on the PATH |\n' | tee -a "$rows"
else
  for tool in memcheck racecheck initcheck; do
    check "compute-sanitizer $tool" compute-sanitizer --tool "$tool" --error-exitcode 9 \
      "$bin/delta-train" --device cuda --image 32 --batch 4 --steps 2 --budget 60% --policy online
  done
fi
