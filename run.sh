#!/usr/bin/env bash
# delta: one command each for the demo, the tests, the benchmarks, the API reference and what is for PyTorch.
# Each sets up first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
named_cxx=${CXX:-}
export CXX=${CXX:-g++}

usage() {
  cat <<'TEXT'
usage: ./run.sh COMMAND

  demo [--short]     train ResNet-20 and ResNet-50 under 40 % of the memory that they take
                     otherwise, compare bit for bit, and print a table (--short: fewer steps); on
                     the GPU too where nvidia-smi lists one and there is a CUDA toolkit
  test [--all]       build and run the tests, but for those that take long (--all: these, too, and
                     the benchmarks are built); tests on real images run when DELTA_DATA names a
                     folder with data/mnist, and say so when it does not
  attack [--hours H] [--only NAME] [--seed S]
                     attack what docs/reliability.md promises, in turns of a minute, for H hours (0.1):
                     programs, training, faults, declined, traces, readers; what fails is made short and
                     printed as a test. S: the first seed; else it is of the clock, and printed
  mutants [FLAG...]  change include/delta in 500 small ways, and list the changes that no test finds
                     (--help: which, and of what)
  coverage [FLAG...] the lines and branches of include/delta that tests reach, as a table (--help)
  bench [FLAG...]    build and run the benchmarks; flags go to Google Benchmark. Without flags the
                     tables of docs/results/decisions.md are made anew, with flags those go to
                     build/bench-results; TORCH_PYTHON may name a Python that has PyTorch
  torch [FLAG...]    build the Python package delta_torch, and with it train two PyTorch models under
                     half of their memory, compare bit for bit, and print a table; flags go to
                     python/examples/train.py. PyTorch is installed into build/torch-venv first,
                     once: 600 MB to download, 3 GB where there is a GPU. DELTA_TORCH_VERSION=2.11.0
                     takes another version, in build/torch-venv-2.11.0
  torch-ddp [FLAG...] the same with ResNet-18 on four processes, by DistributedDataParallel over gloo, on
                     MNIST's images where DELTA_DATA names a folder with data/mnist; flags go to
                     python/examples/ddp.py
  torch-test [--all] [FILE...]
                     build delta_torch in the same way and run its tests, or those of these files in
                     python/tests (--all: those that take long, too, and those on models and trainers of
                     torchvision, transformers and other packages)
  wheel              make a wheel of delta_torch for this Python and PyTorch, and a source
                     distribution, in build/wheels, and try the wheel where there is no compiler
  paper [FLAG...]    make docs/results/paper.md: the DELTA paper's tables and figures, as published,
                     simulated at its sizes and measured here (--only NAME,...; --device simulated:
                     nothing is measured). PyTorch and its models are installed first
  torch-install      only install PyTorch
  reference          the API reference, from the docstrings, with Doxygen: build/reference/html
  setup [PACKAGE...] only install what is missing (and these Debian packages)
  help               print this text

On Debian and Ubuntu, what is missing is installed with apt-get. Everything but delta_torch is
built in build/release; the tools are then in build/release/bin.
TEXT
}

say() { printf '\n== %s\n' "$*"; }
die() {
  printf 'run.sh: %s\n' "$*" >&2
  exit 1
}

# --- what is needed ------------------------------------------------------------------------------

# at_least FOUND WANTED: compares versions.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

has_compiler() { command -v g++ >/dev/null && at_least "$(g++ -dumpfullversion)" 12; }
has_cmake() {
  command -v cmake >/dev/null && at_least "$(cmake --version | sed -n '1s/[^0-9]*//p')" 3.25
}
has_header() { command -v g++ >/dev/null && echo "#include <$1>" | g++ -E -x c++ - >/dev/null 2>&1; }

# The Debian packages that are missing, one per line.
missing_packages() {
  has_compiler || echo g++
  has_cmake || echo cmake
  command -v ninja >/dev/null || echo ninja-build
  has_header dnnl.h || echo libdnnl-dev
  has_header doctest/doctest.h || echo doctest-dev
  has_header benchmark/benchmark.h || echo libbenchmark-dev
  has_header nlohmann/json.hpp || echo nlohmann-json3-dev
  has_header CLI/App.hpp || echo libcli11-dev
  has_header zlib.h || echo zlib1g-dev
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null || dpkg -s "$tool" >/dev/null 2>&1 || echo "$tool"
  done
}

setup() { setup_for missing_packages "$@"; }

# setup_for CHECK [TOOL...]: installs the packages that CHECK prints, or stops with one line that says what
# to install.
setup_for() {
  local check=$1 missing
  shift
  missing=$("$check" "$@" | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  command -v apt-get >/dev/null || die "this system has no apt-get; please install what Debian calls" \
    "$missing(g++ 12 or newer, CMake 3.25 or newer, Ninja, oneDNN, doctest, Google Benchmark," \
    "nlohmann-json, CLI11, zlib; for PyTorch Python 3.11, its venv and headers) and start again"

  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      die "packages are missing and there is no sudo; as root: apt-get install -y $missing"
    as_root=(sudo)
  fi
  say "installing $missing"
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
  "${install[@]}" update || die "apt-get update failed"
  # shellcheck disable=SC2086 # one word per package
  "${install[@]}" install --no-install-recommends $missing || die "apt-get could not install $missing"

  missing=$("$check" "$@" | tr '\n' ' ')
  [ -z "$missing" ] || die "still missing or too old after the installation: $missing(g++ 12 and" \
    "CMake 3.25 are the oldest that do)"
}

# build TARGET...: configures the release preset and builds.
build() {
  say "configuring"
  cmake --preset release -DDELTA_DATA="${DELTA_DATA:-}"
  say "building ${*:-everything}"
  cmake --build --preset release ${1:+--target "$@"}
}

# --- a GPU -----------------------------------------------------------------------------------------

has_gpu() { nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }
# nvcc, as cmake/DeltaCUDA.cmake looks for it: CUDACXX, the PATH, and where NVIDIA's packages put it
# (DELTA_TOOLKIT: another place than that, for tests).
toolkit() {
  local nvcc
  for nvcc in "${CUDACXX:-}" "$(command -v nvcc || true)" "${CUDA_PATH:-}/bin/nvcc" \
    "${CUDA_HOME:-}/bin/nvcc" "${DELTA_TOOLKIT:-/usr/local/cuda}/bin/nvcc"; do
    [ -n "$nvcc" ] && [ -x "$nvcc" ] && echo "$nvcc" && return
  done
  return 1
}

# Whether the demo can run on a GPU here; where there is one but no toolkit, a line that says what to
# install.
can_use_gpu() {
  has_gpu || return 1
  [ "${DELTA_CUDA:-AUTO}" != OFF ] || return 1
  toolkit >/dev/null && return 0
  echo "there is a GPU but no CUDA toolkit, so the demo runs on the CPU alone: install NVIDIA's package" \
    "cuda-toolkit (or Debian's nvidia-cuda-toolkit), or set CUDACXX to an nvcc, and start again"
  return 1
}

# --- commands ------------------------------------------------------------------------------------

demo() {
  local steps=8 batch=128
  case "${1:-}" in
    "") ;;
    --short) steps=2 batch=32 ;;
    *) die "demo: unknown flag '$1'; allowed: --short" ;;
  esac
  setup
  local devices=(cpu)
  ! can_use_gpu || devices=(cuda cpu)
  build delta-train
  local results=build/demo train=build/release/bin/delta-train status=0
  mkdir -p "$results"
  rm -f "$results"/*.json

  # AUTO leaves CUDA out where the toolkit does not do; the demo then says so, and goes on.
  if [ "${devices[0]}" = cuda ] && ! "$train" --version | grep -q CUDA; then
    echo "there is a GPU, but the CUDA executor was not built (see the configuration above): on the CPU alone"
    devices=(cpu)
  fi
  local model device
  for device in "${devices[@]}"; do
    for model in resnet20 resnet50; do
      say "$model on $device, 64x64, batch $batch, $steps steps: unmanaged, then under 40 % of its peak"
      "$train" --device "$device" --model "$model" --data synthetic --image 64 --batch "$batch" \
        --steps "$steps" --lr 0.005 --budget 40% --verify --json "$results/$device-$model.json" \
        >/dev/null || status=$?
    done
  done

  say "trained under 40 % of the memory (step time: managed / unmanaged)"
  "$train" --table "$results"/*.json
  [ "$status" -eq 0 ] || die "the demo failed, see above"
}

run_tests() {
  local targets=(quick_tests) labels=(-LE slow)
  case "${1:-}" in
    "") ;;
    --all) targets=() labels=() ;;
    *) die "test: unknown flag '$1'; allowed: --all" ;;
  esac
  setup
  build "${targets[@]}"
  say "testing"
  local status=0
  ctest --preset release "${labels[@]}" || status=$?
  # ctest shows what a test prints only when it fails; what was skipped should be seen.
  grep -h '^SKIPPED' build/release/Testing/Temporary/LastTest.log || true
  return "$status"
}

attack() {
  local hours=0.1 only='' seed names=(programs training faults declined traces readers)
  seed=$(date +%s)
  while [ $# -gt 0 ]; do
    [ $# -gt 1 ] || die "attack: '$1' needs a value; allowed: --hours H, --only NAME, --seed S"
    case "$1" in
      --hours) hours=$2 ;;
      --only) only=$2 ;;
      --seed) seed=$2 ;;
      *) die "attack: unknown flag '$1'; allowed: --hours H, --only NAME, --seed S" ;;
    esac
    shift 2
  done
  [[ $hours =~ ^[0-9]*\.?[0-9]+$ ]] || die "attack: --hours '$hours' is no number of hours"
  [[ $seed =~ ^[0-9]{1,18}$ ]] || die "attack: --seed '$seed' is no number"
  [ -z "$only" ] || [[ " ${names[*]} " == *" $only "* ]] ||
    die "attack: --only '$only'; allowed: ${names[*]}"
  [ -z "$only" ] || names=("$only")
  setup
  build attack_test
  local end status=0 folder=build/attack name turn
  end=$(($(date +%s) + $(awk -v h="$hours" 'BEGIN { printf "%d", h * 3600 }')))
  mkdir -p "$folder"
  # Each attack has a turn at least, and a minute in each.
  for ((turn = 0; turn == 0 || $(date +%s) < end; ++turn)); do
    for name in "${names[@]}"; do
      [ "$turn" -eq 0 ] || [ "$(date +%s)" -lt "$end" ] || break
      say "$name, seed $seed"
      case "$name" in
        traces) test/fuzz/run.sh "$folder/traces" 60 trace || status=1 ;;
        readers) test/fuzz/run.sh "$folder/readers" 60 readers || status=1 ;;
        *) DELTA_ATTACK_SECONDS=60 DELTA_ATTACK_SEED=$seed build/release/bin/attack_test \
          --test-case="attack: $name" || status=1 ;;
      esac
    done
    seed=$((seed + 1000000))
  done
  [ "$status" -eq 0 ] || die "an attack has succeeded: see above, and $folder"
}

# helped SCRIPT FLAG...: the script's help, where a flag asks for that, before anything is installed or built.
helped() {
  local script=$1 flag
  shift
  for flag in "$@"; do
    case "$flag" in -h | --help) exec python3 "$script" --help ;; esac
  done
}

mutants() {
  helped test/mutants/mutants.py "$@"
  setup clang-16 python3-clang-16
  python3 test/mutants/mutants.py "$@"
}

coverage() {
  helped test/coverage.py "$@"
  setup clang-16 llvm-16 libclang-rt-16-dev
  python3 test/coverage.py "$@"
}

bench() {
  setup
  build
  local source program
  for source in bench/*_bench.cpp; do
    program=build/release/bin/$(basename "$source" .cpp)
    [ -x "$program" ] || die "there are no benchmarks yet"
    case "$source" in
      */manager_bench.cpp | */decisions_bench.cpp) continue ;; # decisions.py runs them
    esac
    say "$(basename "$program")"
    "$program" "$@"
  done

  say "decisions"
  if ! command -v python3 >/dev/null; then
    echo "SKIPPED: the tables of decisions: there is no python3"
    return
  fi
  # Flags mostly make a run shorter, or leave something out: no table to keep.
  local out=docs/results/decisions
  [ $# -eq 0 ] || out=build/bench-results/decisions
  python3 bench/decisions.py build/release --torch-python "${TORCH_PYTHON:-python3}" --out "$out" "$@"
}

paper() {
  helped bench/paper/make.py "$@"
  setup
  build delta-train delta-replay paper_pieces figures
  run_paper "$@"
}

# Needs nothing else to be built. A broken reference in a docstring is an error.
reference() {
  [ $# -eq 0 ] || die "reference: unknown flag '$1'"
  setup doxygen
  rm -rf build/reference
  mkdir -p build
  doxygen docs/Doxyfile
  echo "build/reference/html/index.html"
}

# shellcheck source=python/tools/torch.sh
. python/tools/torch.sh

command=${1:-help}
[ $# -eq 0 ] || shift
case "$command" in
  demo) demo "$@" ;;
  test) run_tests "$@" ;;
  attack) attack "$@" ;;
  mutants) mutants "$@" ;;
  coverage) coverage "$@" ;;
  bench) bench "$@" ;;
  torch) run_torch "$@" ;;
  torch-ddp) run_torch_ddp "$@" ;;
  torch-install) install_torch ;;
  torch-test) run_torch_tests "$@" ;;
  wheel) run_wheel "$@" ;;
  paper) paper "$@" ;;
  reference) reference "$@" ;;
  setup) setup "$@" ;;
  help | -h | --help) usage ;;
  *) die "unknown command '$command'; allowed: demo, test, attack, mutants, coverage, bench, torch, torch-ddp," \
    "torch-test, wheel, paper, torch-install, reference, setup, help" ;;
esac
