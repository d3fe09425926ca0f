#!/usr/bin/env python3
"""compute-sanitizer over a short run under a budget: accesses outside the arena, races within a
kernel, and reads of what was never written.

    python3 bench/gpu/sanitize.py

The arena is one allocation to it: what one tensor's kernel does to another tensor it can't see.
Guards around every operand in cuda_backend_test do."""

import shutil
import sys

from common import Part, Skipped, options
from right import passes, result_table


def main():
    o = options(__doc__, row_seconds=180)

    def check(tool, *flags):
        def row(limit):
            if not o.on_gpu:
                raise Skipped("it is for GPUs")
            if not shutil.which("compute-sanitizer"):
                raise Skipped("compute-sanitizer is not on the PATH")
            return passes(o, ["compute-sanitizer", "--tool", tool, "--error-exitcode", 9,
                              o.bin / "delta-train", "--device", o.device, "--image", 32, "--batch",
                              4, "--steps", 2, "--budget", "60%", "--policy", "online", *flags],
                          limit)
        return f"compute-sanitizer {tool}", row

    sys.exit(Part(o, "sanitize", "compute-sanitizer on a short run", result_table, True).run(
        [check("memcheck"), check("initcheck", "--fill-rounding"), check("racecheck")]))


if __name__ == "__main__":
    main()
