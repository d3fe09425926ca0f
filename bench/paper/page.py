"""The page docs/results/paper.md: sections between comments, each replaced by itself, with tables
whose rows say whether they are measured, simulated or not run."""

import dataclasses
import json
import re

from workbench import artefact

MEASURED, SIMULATED, NOT_RUN, PUBLISHED = "measured", "simulated", "not run", "paper"


@dataclasses.dataclass
class Section:
    """What one script of this folder makes of one table or figure of the paper."""

    title: str
    parts: list  # texts and tables, in order
    data: dict = dataclasses.field(default_factory=dict)  # what the tables are made from


def table(head, rows):
    """Markdown. The first cell of a row is its kind."""
    lines = ["| " + " | ".join(map(str, line)) + " |" for line in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def not_run(name, columns):
    """The row that stands for what was not measured."""
    return [NOT_RUN, f"`./run.sh paper --only {name}`", *["-"] * (columns - 2)]


def number(value, digits=3):
    return "-" if value is None else f"{value:.{digits}f}"


def percent(part, digits=1):
    return "-" if part is None else f"{100 * part:.{digits}f} %"


def gb(count, digits=1):
    return f"{count / 1e9:.{digits}f}"


def markers(name):
    return f"<!-- {name} -->", f"<!-- end of {name} -->"


def put(text, order, name, section):
    """The page with that section in its place among `order`."""
    begin, end = markers(name)
    body = "\n\n".join([f"## {section.title}", *section.parts])
    block = f"{begin}\n{body}\n{end}"
    found = re.search(re.escape(begin) + ".*?" + re.escape(end), text, re.DOTALL)
    if found:
        return text[: found.start()] + block + text[found.end():]
    later = [markers(n)[0] for n in order[order.index(name) + 1:] if markers(n)[0] in text]
    if later:
        at = text.index(later[0])
        return text[:at] + block + "\n\n" + text[at:]
    return text.rstrip() + "\n\n" + block + "\n"


def write(out, head, order, name, section):
    """Puts the section into paper.md in `out`, and its data into paper.json."""
    page = out / "paper.md"
    text = page.read_text(encoding="utf-8") if page.exists() else head
    page.write_text(put(text, order, name, section), encoding="utf-8")
    file = artefact(page, "paper.json")
    data = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    data[name] = section.data
    ordered = {n: data[n] for n in order if n in data}
    file.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
