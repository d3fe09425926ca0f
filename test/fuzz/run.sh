#!/usr/bin/env bash
# Fuzzes what reads files and flags: run.sh FOLDER [SECONDS [TARGET]]: traces, or readers (plans, images,
# reports, checkpoints, sizes). Compiles in FOLDER, and leaves there what made a run fail. Says SKIPPED
# where no Clang from 16 on has libFuzzer.
set -euo pipefail
folder=$1
seconds=${2:-10}
target=${3:-trace}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
mkdir -p "$folder"
rm -rf "$folder/corpus"
mkdir "$folder/corpus"
flags=(-std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)

compiler=
probe='extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
for candidate in clang++-{16..21}; do
  if command -v "$candidate" >/dev/null &&
    "$candidate" "${flags[@]}" -x c++ - -o "$folder/probe" <<<"$probe" 2>"$folder/probe.log"; then
    compiler=$candidate
    break
  fi
done
if [ -z "$compiler" ]; then
  echo "SKIPPED: fuzzing: no clang++ from 16 on with libFuzzer on this machine"
  exit 0
fi

sources=("$root"/executor/trace/*.cpp "$root"/executor/data/byte_source.cpp "$root"/executor/cli/output_file.cpp)
corpus=$here/corpus
if [ "$target" = readers ]; then
  corpus=$here/readers
  { printf 'kDELTACKP\1\0\0\0' && head -c 100 /dev/zero; } >"$folder/corpus/checkpoint"
  { printf c && head -c 6146 /dev/zero; } >"$folder/corpus/cifar" # an image for each of two files
  sources=("$root"/executor/trace/*.cpp "$root"/executor/data/*.cpp "$root"/executor/cli/{[cdft],op,ou}*.cpp
    "$root"/executor/train/{checkpoint,report}.cpp)
fi
"$compiler" "${flags[@]}" -I "$root/include" -I "$root/executor" -I "$root/engine" -I "$root/engine/include" \
  -I "$root/testing/include" "$here/${target}_fuzz.cpp" "${sources[@]}" -lz -o "$folder/${target}_fuzz"
"$folder/${target}_fuzz" -max_total_time="$seconds" -max_len=8192 -timeout=10 -rss_limit_mb=2048 \
  -dict="$here/trace.dict" -artifact_prefix="$folder/" -print_final_stats=1 \
  "$folder/corpus" "$corpus"
