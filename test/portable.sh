#!/usr/bin/env bash
# What programs that are carried to another machine need there: the C library, the driver's and CUDA's
# libraries, and nothing else. Fails on any other, where all of them together are too large, and where
# they need a C library newer than 2.35 though this machine's own is hardly newer (up to 2.36): on newer
# ones its headers ask for more, and that is only said. Libraries that are opened while the program runs are not seen: cuDNN opens parts of itself,
# which come with it, and the CUDA runtime, which is linked in, opens the driver's.
#
#   test/portable.sh PROGRAM...
set -euo pipefail

allowed='linux-vdso|ld-linux-x86-64|ld-linux-aarch64|libc|libm|libdl|librt|libpthread|libcublas|libcublasLt|libcudnn'
most=$((60 * 1000 * 1000)) # bytes
newest=GLIBC_2.35
own=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d ' ' -f 2)
here=known && [ "$(printf '%s\n' 2.36 "${own:-2.36}" | sort -V | tail -n 1)" = 2.36 ] || here=newer
[ $# -gt 0 ] || { echo "usage: portable.sh PROGRAM..." >&2 && exit 2; }
command -v readelf >/dev/null || { echo "SKIPPED: portable: there is no readelf" && exit 77; }

failed=0 total=0
for program in "$@"; do
  [ -f "$program" ] || { echo "portable.sh: there is no $program" >&2 && exit 1; }
  needed=$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  others=$(grep -vE "^($allowed)\.so(\.|$)" <<<"$needed" || true)
  for library in $others; do
    echo "$(basename "$program") needs $library, which another machine may lack" >&2
    failed=1
  done
  total=$((total + $(stat -L -c %s "$program")))
  # Packed relocations are a version without a number.
  glibc=$(readelf -VW "$program" | sed 's/GLIBC_ABI_DT_RELR/GLIBC_2.36/' |
    { grep -oE 'GLIBC_[0-9.]+' || true; } | sort -uV | tail -n 1)
  if [ "$(printf '%s\n' "$newest" "${glibc:-$newest}" | sort -V | tail -n 1)" != "$newest" ]; then
    echo "$(basename "$program") needs $glibc; wanted: up to $newest" >&2
    [ "$here" = newer ] || failed=1
  fi
  echo "$(basename "$program"): $(stat -L -c %s "$program") bytes, ${glibc:-no C library}; ${needed//$'\n'/ }"
done
echo "together $total bytes; allowed: $most"
[ "$total" -le "$most" ] || { echo "portable.sh: that is too large" >&2 && failed=1; }
exit $failed
