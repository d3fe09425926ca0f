#!/usr/bin/env python3
"""What including delta costs a compiler.

Compiles with -O2, several times each, and prints the median of the processor time: the standard
headers that delta includes, `#include <delta/manager.hpp>`, and that with one manager of which one
operator is run. Usage: bench/compile_time.py [COMPILER...] (default: g++)
"""

import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUNS = 5

ONE_MANAGER = """
#include <delta/manager.hpp>
#include <delta/heuristic.hpp>
#include <delta/decider.hpp>
#include <delta/prefetcher.hpp>
#include <delta/storage/simulated.hpp>
delta::tensor_id use(delta::simulated& s, delta::tensor_id x) {
  delta::manager m{delta::joint{}, delta::cheaper{}, delta::no_prefetch{}, s};
  return m.run({.inputs = {x}, .outputs = {delta::bytes{1}}}, [](delta::call&) {});
}
"""


def standard_headers():
    """Those that the headers under include/ name."""
    found = set()
    for header in (ROOT / "include").rglob("*.hpp"):
        if header.name != "timeline.hpp":  # an observer, which a manager does not include
            found |= set(re.findall(r"^#include (<[a-z_]+>)", header.read_text(), re.MULTILINE))
    return "".join(f"#include {name}\n" for name in sorted(found))


def seconds(compiler, text):
    """Median processor time of one compilation."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "unit.cpp"
        source.write_text(text)
        times = []
        for _ in range(RUNS):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [compiler, "-std=c++20", "-O2", f"-I{ROOT / 'include'}", "-c", source,
                 "-o", pathlib.Path(folder) / "unit.o"], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return statistics.median(times)


def main():
    units = {
        "the standard headers alone": standard_headers(),
        "#include <delta/manager.hpp>": "#include <delta/manager.hpp>\n",
        "and one manager": ONE_MANAGER,
    }
    print(f"{'':32}{'compiler':14}{'seconds':>8}{'ratio':>8}")
    for compiler in sys.argv[1:] or ["g++"]:
        base = None
        for name, text in units.items():
            took = seconds(compiler, text)
            base = base or took
            print(f"{name:32}{compiler:14}{took:8.2f}{took / base:7.1f}x")


if __name__ == "__main__":
    main()
