#!/usr/bin/env python3
"""The mutation tool on a header of a few lines: which mutants it finds, compiles, kills and blames.

    python3 test/mutants/mutants_test.py

77 where there is no libclang, or no compiler."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import mutants  # noqa: E402
import places  # noqa: E402

COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++-16")

TINY = """#pragma once
#include <algorithm>
#include <cassert>
#include <optional>
#include <string>
#include <vector>
template <int n>
struct fixed { static constexpr int value = n + 1; };
class counter {
 public:
  // Twenty at most: told by its tests.
  bool add(int n) {
    assert(n > 0);
    if (count_ + n > 20 || n < 0) return false;
    count_ += n;
    note(n);
    return true;
  }
  template <class T>
  int below(const std::vector<T>& all, T limit) const {
    static_assert(sizeof(T) > 0);
    if constexpr (sizeof(T) > 100) return 0;
    int found = 0;
    for (const T& x : all)
      if (x < limit) ++found;  // the text of a mutant has no comment
    return found;
  }
  std::string name(const std::string& a, const std::string& b) const { return a + b; }
  // An optional: of `!found` and `found`, ?: would make one that is never empty.
  int or_none(std::optional<int> found) const {
    if (!found) return -1;
    return *found;
  }
  int count() const { return std::max(count_, fixed<0>::value); }
  int apart(int a, int b) const { return distance(a,
                                                  b); }
 private:
  static int distance(int from, int to) { return to - from; }
  void note(int n) { last_ = n; }
  int count_ = 0;
  int last_ = 0;
};
"""
PROGRAM = """#include "tiny.hpp"
int main() {
  counter c;
  if (!c.add(19) || c.add(2) || !c.add(1) || c.count() != 20) return 1;
  if (c.below<int>({1, 2, 3}, 3) != 2) return 2;
  if (c.name("a", "b") != "ab" || c.apart(2, 5) != 3) return 3;
  if (c.or_none({}) != -1 || c.or_none(4) != 4) return 4;
  return 0;
}
"""
# What each mutant is: its kind, function, change, and what becomes of it.
EXPECTED = {
    ("negation", "counter::add", "count_ + n > 20 || n < 0", "!(count_ + n > 20 || n < 0)", "killed"),
    ("logic", "counter::add", "count_ + n > 20 || n < 0", "count_ + n > 20 && n < 0", "killed"),
    ("comparison", "counter::add", "count_ + n > 20", "count_ + n >= 20", "killed"),
    ("arithmetic", "counter::add", "count_ + n", "count_ - n", "killed"),
    ("constant", "counter::add", "20", "21", "killed"),
    ("comparison", "counter::add", "n < 0", "n <= 0", "survived"),
    ("constant", "counter::add", "0", "1", "survived"),
    ("constant", "counter::add", "false", "true", "killed"),
    ("removal", "counter::add", "count_ += n;", "", "killed"),
    ("arithmetic", "counter::add", "count_ += n", "count_ -= n", "killed"),
    ("removal", "counter::add", "note(n);", "", "survived"),
    ("constant", "counter::add", "true", "false", "killed"),
    ("constant", "counter::below", "0", "1", "not reached"),
    ("constant", "counter::below", "0", "1", "killed"),
    ("negation", "counter::below", "x < limit", "!(x < limit)", "killed"),
    ("comparison", "counter::below", "x < limit", "x <= limit", "killed"),
    ("removal", "counter::below", "++found;", "", "killed"),
    ("arithmetic", "counter::below", "++found", "--found", "killed"),
    ("arithmetic", "counter::name", "a + b", "a - b", "does not compile"),
    ("negation", "counter::or_none", "!found", "found", "killed"),
    ("constant", "counter::or_none", "1", "0", "killed"),
    ("min-max", "counter::count", "std::max(count_, fixed<0>::value)", "std::min(count_, fixed<0>::value)", "killed"),
    ("swap", "counter::apart", "distance(a, b)", "distance(b, a)", "killed"),
    ("arithmetic", "counter::distance", "to - from", "to + from", "killed"),
    ("removal", "counter::note", "last_ = n;", "", "survived"),
}


class Tiny(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        (cls.folder / "real").mkdir()
        (cls.folder / "real/tiny.hpp").write_text(TINY)
        (cls.folder / "program.cpp").write_text(PROGRAM)
        cls.finder = places.Finder(cls.folder / "real")
        cls.finder.parse(cls.folder / "real/tiny.hpp", ["-std=c++20", "-xc++"])
        cls.places = places.numbered(cls.finder)

    def compiled(self, broken: set[int]) -> str:
        """What the compiler says of the mutants that are not broken."""
        mutants.write(self.finder, self.places, broken, self.folder / "copy")
        return subprocess.run([COMPILER, "-std=c++20", "-DNDEBUG", *mutants.guard_flags(), f"-I{self.folder}/copy",
                               str(self.folder / "program.cpp"), "-o", str(self.folder / "program")],
                              capture_output=True, text=True).stderr

    def test_finds_compiles_and_kills(self):
        texts = mutants.write(self.finder, self.places, set(), self.folder / "copy")
        self.assertEqual(texts["tiny.hpp"].count("\n"), TINY.count("\n"), "lines stay where they are")
        broken = mutants.to_blame(self.compiled(set()), texts, self.places, "copy")
        self.assertEqual(self.compiled(broken), "")
        tests = {"program": ([str(self.folder / "program")], self.folder)}
        seconds, reached = mutants.reach(tests, self.folder)
        fates = {(p.kind, p.function, p.before, p.after,
                  mutants.BROKEN if p.number in broken else mutants.kill(p, tests, seconds, reached)[0])
                 for p in self.places}
        self.assertEqual(fates, EXPECTED)
        self.assertEqual(len({p.id for p in self.places}), len(EXPECTED))

    def test_a_mutant_that_hangs_is_found_and_one_that_nobody_reaches_is_told(self):
        script = self.folder / "hangs.sh"
        script.write_text('#!/bin/sh\n[ -z "$DELTA_MUTANT" ] || while :; do :; done\n')
        script.chmod(0o755)
        first, second = self.places[:2]
        tests = {"hangs": ([str(script)], self.folder)}
        self.assertEqual(mutants.kill(first, tests, {"hangs": 0}, {first.number: ["hangs"]}), (mutants.KILLED, "hangs"))
        self.assertEqual(mutants.kill(second, tests, {"hangs": 0}, {})[0], mutants.NOT_REACHED)

    def test_a_test_that_fails_without_a_mutant_ends_it(self):
        with self.assertRaisesRegex(mutants.Failure, "fails without a mutant"):
            mutants.reach({"false": (["false"], self.folder)}, self.folder)

    def test_equivalents(self):
        path = self.folder / "equivalent.txt"
        known = self.places[0]
        path.write_text(f"# why\n\n{known}: because\n")
        self.assertEqual(mutants.read_equivalents(path, self.places), {known.key: "because"})
        for text, said in ((f"{known}: a\n{known}: b\n", ":2: listed twice"),
                           ("tiny.hpp counter::add: `n == 7` -> `n != 7`: gone\n", ":1: there is no such mutant"),
                           (f"{known}\n", ":1: not of the form")):
            path.write_text(text)
            with self.assertRaisesRegex(mutants.Failure, said):
                mutants.read_equivalents(path, self.places)

    def test_samples_repeat_and_have_each_file(self):
        def ids(*words):
            return [p.id for p in mutants.choose(self.places, mutants.parsed(list(words)), [])]
        self.assertEqual(ids("--sample", "7", "--seed", "3"), ids("--sample", "7", "--seed", "3"))
        self.assertNotEqual(ids("--sample", "7", "--seed", "3"), ids("--sample", "7", "--seed", "4"))
        self.assertEqual(len(ids("--only", "tiny")), len(EXPECTED))

    def test_what_was_not_tried_is_gone_on_with(self):
        rest = [self.places[3].id, self.places[1].id]
        for flags, count in ((["--go-on"], 2), (["--go-on", "--only", "tiny"], 2), (["--go-on", "--only", "other"], 0)):
            self.assertEqual(len(mutants.choose(self.places, mutants.parsed(flags), rest)), count)

    def test_wrong_flags_are_told_in_one_line(self):
        for words, said in ((["--sample", "many"], "'many' is no number"), (["--fast"], "--fast"),
                            (["--mutant", "nobody"], "there is no such mutant"), (["--only", "nothing"], "no file"),
                            (["--again"], "no survivors"), (["--go-on"], "tried all")):
            with self.assertRaisesRegex(mutants.Failure, said) as raised:
                mutants.choose(self.places, mutants.parsed(words), [])
            self.assertNotIn("\n", str(raised.exception))


if __name__ == "__main__":
    if places.cindex is None or COMPILER is None:
        print("SKIPPED: the mutation tool: there is no", "compiler" if places.cindex else "libclang for Python")
        sys.exit(77)
    unittest.main()
