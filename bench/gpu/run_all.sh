#!/usr/bin/env bash
# Checks and measures on a GPU, in parts of at most 9 minutes each, and writes tables to build/results; the
# first builds for this machine's GPU unless --bin names programs. An interrupted or cut off part goes
# on where it was when it is run again. Where this folder was carried without its repository, results
# are written to the current folder.
#
#   bench/gpu/run_all.sh [--bin DIR] [--only right|fast|costs|saving|sanitize|torch]
#                        [--device cuda:N|cpu] [--again] [--minutes M] [--row-seconds S] [--image P]
#                        [--batch N] [--out DIR] [--float32]
#                        [--delta-torch build|installed|FILE.whl] [--rows REGEX]
#
# --float32 is for the part saving, which is in TF32 otherwise, as docs/results/gpu_predicted.md is.
# The last two are for the part torch, which needs python/, a PyTorch and no program. The exit code is
# 1 where a row failed, and that never ends the rest. --device cpu with --bin build/release/bin
# --image 32 --batch 4 only tries it out. TORCH_PYTHON may name a Python that has PyTorch.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${TORCH_PYTHON:-python3}

parts=(right fast costs saving sanitize torch) flags=() float32=() torch=() device=cuda bin=
while [ $# -gt 0 ]; do
  case "$1" in
    --only)
      [[ " ${parts[*]} " = *" ${2:-} "* ]] || {
        echo "run_all.sh: --only: unknown part '${2:-}'; allowed: ${parts[*]}" >&2
        exit 2
      }
      parts=("$2") && shift 2
      ;;
    --device) device=${2:?--device: which?} && flags+=("$1" "$2") && shift 2 ;;
    --bin) bin=${2:?--bin: which folder?} && flags+=("$1" "$2") && shift 2 ;;
    --delta-torch | --rows) torch+=("$1" "${2:?$1: which?}") && shift 2 ;;
    --float32) float32=("$1") && shift ;;
    *) flags+=("$1") && shift ;;
  esac
done
command -v "$python" >/dev/null || {
  echo "run_all.sh: there is no $python; TORCH_PYTHON may name another" >&2
  exit 2
}
if [[ $device = cuda* ]] && ! nvidia-smi -L >/dev/null 2>&1; then
  echo "run_all.sh: no GPU: nvidia-smi lists none" >&2
  exit 2
fi
[ "${parts[*]}" != torch ] || bin=${bin:-none}
if [ -z "$bin" ] && [ ! -f "$here/../../CMakeLists.txt" ]; then
  echo "run_all.sh: there is no repository around $here to build; --bin names the programs" >&2
  exit 2
fi
if [ -z "$bin" ]; then
  (cd "$here/../.." && cmake --preset cuda && cmake --build --preset cuda)
fi

status=0
for part in "${parts[@]}"; do
  own=() script=$part.py
  [ "$part" != saving ] || own=(${float32[@]+"${float32[@]}"})
  [ "$part" != torch ] || script=torch_contact.py own=(${torch[@]+"${torch[@]}"}) # torch.py: PyTorch's name
  "$python" "$here/$script" ${flags[@]+"${flags[@]}"} ${own[@]+"${own[@]}"} || status=$?
  # 2: flags or this machine will not do, for any part.
  [ "$status" -ne 2 ] || exit 2
  [ "$status" -eq 0 ] || status=1
done
exit "$status"
