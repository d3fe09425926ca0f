#!/usr/bin/env python3
"""What using delta costs a compiler.

Compiles units with -O2, all of them in turn and that several times, and prints the median of the
processor time and of its ratio to the first unit in the same round: four standard headers that most
programs include; `#include <delta/manager.hpp>`; one manager with the preset `online`, of which one
operator is run; and any policy by its name, with delta::engine.
Usage: bench/compile_time.py [COMPILER...] (default: g++)
"""

import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROUNDS = 5

UNITS = {
    "four standard headers": """
#include <functional>
#include <optional>
#include <string>
#include <vector>
""",
    "#include <delta/manager.hpp>": "#include <delta/manager.hpp>\n",
    "one manager with online": """
#include <delta/presets.hpp>
#include <delta/storage/simulated.hpp>
delta::tensor_id use(delta::simulated& s, delta::tensor_id x) {
  delta::manager m{delta::online(), s};
  return m.run({.inputs = {x}, .outputs = {delta::bytes{1}}}, [](delta::call&) {});
}
""",
    "any policy, delta::engine": """
#include <delta/engine/engine.hpp>
#include <delta/storage/simulated.hpp>
delta::tensor_id use(const char* policy, delta::simulated& s) {
  const auto m = delta::make_manager(policy, delta::over(s));
  const delta::tensor_id x = m->variable(delta::bytes{1});
  return m->run({.inputs = {x}, .outputs = {delta::bytes{1}}}, [](delta::call&) {});
}
""",
}


def seconds(compiler, text):
    """Processor time of one compilation."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "unit.cpp"
        source.write_text(text)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [compiler, "-std=c++20", "-O2", f"-I{ROOT / 'include'}", f"-I{ROOT / 'engine/include'}",
             f"-I{ROOT / 'testing/include'}", "-c", source,
             "-o", pathlib.Path(folder) / "unit.o"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    print(f"{'':32}{'compiler':14}{'seconds':>8}{'ratio':>8}")
    for compiler in sys.argv[1:] or ["g++"]:
        rounds = [[seconds(compiler, text) for text in UNITS.values()] for _ in range(ROUNDS)]
        for i, name in enumerate(UNITS):
            took = statistics.median(r[i] for r in rounds)
            ratio = statistics.median(r[i] / r[0] for r in rounds)
            print(f"{name:32}{compiler:14}{took:8.2f}{ratio:7.1f}x")


if __name__ == "__main__":
    main()
