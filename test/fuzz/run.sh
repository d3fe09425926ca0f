#!/usr/bin/env bash
# Fuzzes the trace readers: run.sh FOLDER [SECONDS]. Compiles in FOLDER, and leaves there what made
# a run fail. Says SKIPPED where no Clang from 16 on has libFuzzer.
set -euo pipefail
folder=$1
seconds=${2:-10}
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
  echo "SKIPPED: fuzzing the trace readers: no clang++ from 16 on with libFuzzer on this machine"
  exit 0
fi

"$compiler" "${flags[@]}" -I "$root/include" -I "$root/executor" -I "$root/engine" "$here/trace_fuzz.cpp" \
  "$root"/executor/trace/*.cpp "$root/executor/data/byte_source.cpp" \
  "$root/executor/cli/output_file.cpp" -lz -o "$folder/trace_fuzz"
"$folder/trace_fuzz" -max_total_time="$seconds" -max_len=8192 -timeout=10 -rss_limit_mb=2048 \
  -dict="$here/trace.dict" -artifact_prefix="$folder/" -print_final_stats=1 \
  "$folder/corpus" "$here/corpus"
