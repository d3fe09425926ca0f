"""Runs a Python program within a budget, as `python` would run it: delta_torch's command `run`."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import io
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from . import group
from .flags import FLAGS, Flag, add_flag, given_options
from .run import Run, budget
from .timelines import of_rank

_USAGE = "python -m delta_torch run [FLAG...] (PROGRAM.py | -m MODULE) [ARGUMENT...]"
_DESCRIPTION = """\
Runs a training program within a budget of bytes; no line of it is changed:

  python -m delta_torch run --budget 4GiB train.py --lr 0.1
  python -m delta_torch run --budget 50% -m package.train --lr 0.1
  torchrun --nproc-per-node 2 -m delta_torch run --budget 4GiB train.py

Tensors that do not fit are computed again or, with --host, copied out and back; the results are the
same bits. It ends with a table on stderr, also where the program raises. Exit status, tracebacks
and sys.argv are the program's. Every flag has a variable of the environment that says it, too:
--budget is DELTA_TORCH_BUDGET."""
_EPILOG = """\
A training step ends with each step() of an optimizer. Processes that the program starts by itself
are not managed; of torchrun's processes each has its own budget, and writes its own files, as
r.rank1.json for r.json. PyTorch is imported before the program: what it reads from the environment
only then, such as OMP_NUM_THREADS, has to be set outside."""

# What can be written at the end, each by a flag; of several ranks each writes its own.
_FILES = {
    "report": "write the report's numbers, as JSON",
    "plot": "draw memory over time: .png, .svg, .pdf; needs Matplotlib",
    "snapshot": "write memory over time for PyTorch's memory viewer: a .pickle",
}


def add_command(commands: Any) -> None:
    """Adds the command `run` to those of delta_torch."""
    parser = commands.add_parser(
        "run",
        help="runs a training program within a budget",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for option in FLAGS:
        add_flag(parser, option)
    for name, text in _FILES.items():
        default = os.environ.get(Flag(f"--{name}", None, "").variable)
        parser.add_argument(f"--{name}", metavar="FILE", default=default, help=text)
    parser.add_argument("-m", dest="module", metavar="...", nargs=argparse.REMAINDER, help="run a module")
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(command=_prepare)


def _prepare(parsed: argparse.Namespace) -> Callable[[], int]:
    """Begins the run; gives what runs the program, raises what it raises, and returns 0 at its end.

    Raises ValueError, OSError, ImportError and RuntimeError where it can't begin.
    """
    options = given_options(parsed)
    if "size" not in options:
        flag = FLAGS["size"]
        raise ValueError(
            f"run needs a budget: {flag.name} 4GiB, {flag.name} 50%, or {flag.variable}"
        )
    words = parsed.program if parsed.module is None else parsed.module
    if not words:
        raise ValueError(f"run needs a program: {_USAGE}")
    if options.get("timeline"):
        options["timeline"] = _file("--timeline", options["timeline"])
    files = {name: _file(f"--{name}", getattr(parsed, name)) for name in _FILES}
    ending = _Ending(budget(**options), files)
    if parsed.plot and importlib.util.find_spec("matplotlib") is None:
        raise ImportError("--plot needs Matplotlib: pip install matplotlib")
    program = _script(*words) if parsed.module is None else _module(*words)
    ending.run.__enter__()
    return functools.partial(_execute, program, ending)


def _file(flag: str, name: str | None) -> str | None:
    """Where to write, as the program may change folders.

    Raises ValueError where that folder can't be written.
    """
    if not name:
        return None
    path = Path(name).absolute()
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise ValueError(f"{flag}: {path.parent} is no folder to write in")
    return str(path)


@dataclass
class _Program:
    """What is to be run: a module named __main__, and how to get its code."""

    module: ModuleType
    code: CodeType | None = None

    def compile(self) -> CodeType:
        """Raises SyntaxError, and what reading raises."""
        loader, path = self.module.__loader__, self.module.__file__
        if self.module.__spec__ is not None:
            self.code = loader.get_code(self.module.__spec__.name)
        else:  # as get_code would, which keeps what it has compiled beside it
            with io.open_code(path) as file:
                self.code = loader.source_to_code(file.read(), path)
        return self.code


def _execute(program: _Program, ending: _Ending) -> int:
    sys.modules["__main__"] = program.module  # for good, as its threads may outlive its end
    if sys.version_info < (3, 14):
        program.module.__annotations__ = {}
    try:
        exec(program.compile(), vars(program.module))
    except SystemExit:
        ending.leave()
        ending.show()
        raise
    except BaseException:
        ending.leave()
        _show_after_traceback(program, ending)
        raise
    ending.leave()
    ending.show()
    return 0


def _show_after_traceback(program: _Program, ending: _Ending) -> None:
    """Lets Python print the traceback that `python` prints, without frames of delta_torch and runpy
    above the program's, and the report behind it."""
    hook = sys.excepthook

    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        while trace is not None and trace.tb_frame.f_code is not program.code:
            trace = trace.tb_next
        hook(kind, error.with_traceback(trace), trace)
        ending.show(failed=True)

    sys.excepthook = excepthook


class _Ending:
    """The end of the run: its table, and its files."""

    def __init__(self, run: Run, files: dict[str, str | None]) -> None:
        self.run = run
        self._files = files
        self._process = os.getpid()

    def leave(self) -> None:
        """Ends the run. What can't be brought back is said, and is nobody's error any more."""
        with self._in_words():
            self.run.__exit__(None, None, None)

    def show(self, failed: bool = False) -> None:
        """The table on stderr, and the files. Nothing in a process that was forked off.

        Of several ranks the first one writes it, and those that have failed.
        """
        if os.getpid() != self._process:
            return
        with self._in_words():
            report, rank = self.run.report(), group.rank()
            if rank is None:
                _print(f"\ndelta_torch: {report}")
            elif rank == 0 or failed:
                _print(f"\ndelta_torch, rank {rank}: {report}")
            if not report.steps:
                _print(
                    "no training step has ended, as no optimizer of torch.optim has stepped: where "
                    "others do, call delta_torch.step() after each, with --steps manual"
                )
            writers = {"report": report.to_json, "plot": report.plot, "snapshot": self.run.snapshot}
            for name, file in self._files.items():
                if file:
                    with self._in_words():  # the others are written where one can't be
                        writers[name](of_rank(file, rank))

    @contextlib.contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, OSError, ValueError, ImportError) as error:
            _print(f"delta_torch: {error}")


def _print(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a program may have closed it
        print(text, file=sys.stderr, flush=True)


def _script(path: str, *arguments: str) -> _Program:
    sys.argv = [path, *arguments]
    if os.path.isdir(path) or zipfile.is_zipfile(path):
        _replace_first_path(os.path.abspath(path))
        spec = PathFinder.find_spec("__main__", [path])
        if spec is None:
            raise ImportError(f"can't find '__main__' module in {path!r}")
        return _of_spec(spec)
    whole = os.path.abspath(path)
    try:
        open(whole, "rb").close()
    except OSError as error:
        raise ValueError(f"can't open file {whole!r}: {error.strerror}") from None
    _replace_first_path(os.path.dirname(os.path.realpath(path)))
    loader = SourceFileLoader("__main__", whole)
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_file_location("__main__", whole, loader=loader)
    )
    vars(module).update(__spec__=None, __package__=None, __cached__=None)
    return _Program(module)


def _replace_first_path(folder: str) -> None:
    # The first one is where `python -m delta_torch` was started, but for isolated Pythons.
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder


def _module(name: str, *arguments: str) -> _Program:
    sys.argv = ["-m", *arguments]
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name += ".__main__"
            spec = importlib.util.find_spec(name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ImportError(f"can't find the module {name!r}: {error}") from error
    if spec is None or spec.loader is None:
        raise ImportError(f"No module named {name}")
    sys.argv[0] = spec.origin or name
    return _of_spec(spec)


def _of_spec(spec: ModuleSpec) -> _Program:
    module = importlib.util.module_from_spec(spec)
    module.__name__ = "__main__"
    return _Program(module)
