"""The digests by which a page of docs/results and its picture show that they are of one run.

A page carries two comments: of the cells that test/executor/figures_test.cpp computes anew
(`figures` prints it), and of all rows that the page was made from. Its picture carries the same.
"""

import subprocess

ROWS = "<!-- all rows: digest "


class Missing(Exception):
    """What can't be written, in a line."""


def fnv1a(data):
    """FNV-1a, 64 bits, as executor/train/digest.hpp has it."""
    state = 0xcbf29ce484222325
    for byte in data:
        state = (state ^ byte) * 0x100000001b3 % 2**64
    return f"{state:016x}"


def recomputed_line(build, traces, page):
    """The first comment of that page."""
    program = build / "bin" / "figures"
    if not program.exists():
        raise Missing(f"no {program}; expected: a build with benchmarks")
    run = subprocess.run([program, traces, page], check=True, stdout=subprocess.PIPE,
                         encoding="utf-8")
    return run.stdout.strip()


def rows_line(text):
    """The second, of the rows as text."""
    return f"{ROWS}{fnv1a(text.encode('utf-8'))} -->"


def put(page, text, name, content):
    """Replaces what stands between the comments `<!-- NAME -->` and `<!-- end of NAME -->`."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    if begin not in text or end not in text:
        raise Missing(f"{page}: no '{begin.strip()}' and '{end}'")
    head, rest = text.split(begin, 1)
    return head + begin + content + "\n" + end + rest.split(end, 1)[1]
