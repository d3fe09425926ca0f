"""What the scripts in this folder share: flags, runs of the tools, and parts: tables made row by row,
each row within a time limit, that a later call goes on with. The standard library alone."""

import argparse
import collections
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time


def repository(folder):
    """The repository that the folder of these scripts lies in; None: it was carried away by itself."""
    above = folder.resolve().parents
    inside = len(above) > 1 and (above[1] / "include/delta").is_dir()
    return above[1] if inside else None


ROOT = repository(pathlib.Path(__file__).parent)
# Where builds and results are, by default.
BASE = ROOT or pathlib.Path.cwd()
MIB = 1 << 20
NOT_RUN = "not run: out of time"


class Failed(Exception):
    """What a row can't do, in one line."""


class TimedOut(Failed):
    """It was ended."""


class TooSmall(Failed):
    """The policy can't keep to the budget: an answer, no failure."""


class Skipped(Failed):
    """A row that can't be had on this machine, and why."""


def fail(line):
    print(f"{pathlib.Path(sys.argv[0]).name}: {line}", file=sys.stderr)
    sys.exit(2)


def output_of(*command, env=None):
    """What a command prints; empty where it can't be run, or not within half a minute."""
    try:
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True,
                              timeout=30, env=env).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def device_among(tried):
    """The type of --device: a GPU, or one of those on which a script is only tried out."""
    def device_of(text):
        if text not in tried and not re.fullmatch(r"cuda(:\d+)?", text):
            raise argparse.ArgumentTypeError(f"unknown device '{text}'; allowed: cuda, cuda:N, "
                                             + ", ".join(tried))
        return text
    return device_of


def options(about, more=lambda parser: None, programs=True, tried=("cpu",), **defaults):
    """The flags of every script, and those that `more` adds; programs: it runs delta's own. A device
    of `tried` only tries a script out: its figures mean nothing for a GPU, and are not written to
    docs/results."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--bin", type=pathlib.Path, default=BASE / "build/cuda/bin",
                        help="folder of delta-train and delta-replay (default build/cuda/bin)")
    parser.add_argument("--device", type=device_among(tried), default="cuda",
                        help=f"cuda (default), cuda:1 the second; to try this out: {', '.join(tried)}")
    parser.add_argument("--image", type=int, default=defaults.get("image", 224))
    parser.add_argument("--batch", type=int, default=defaults.get("batch", 128))
    parser.add_argument("--steps", type=int, default=defaults.get("steps", 10))
    parser.add_argument("--minutes", type=float, default=9,
                        help="after so many no further row is begun (default 9)")
    parser.add_argument("--row-seconds", type=float, default=defaults.get("row_seconds", 150),
                        help="a row that takes longer is ended, and has failed")
    parser.add_argument("--again", action="store_true",
                        help="run rows again that are there from the same commit and GPU")
    parser.add_argument("--out", type=pathlib.Path, default=None,
                        help="folder of results (default build/results; tried out: "
                             "build/gpu-smoke; without the repository this folder)")
    more(parser)
    o = parser.parse_args()
    o.also = {}  # what else rows depend on, beside the flags
    o.on_gpu = o.device not in tried
    if o.out is None:
        o.out = BASE / ("build/results" if o.on_gpu else "build/gpu-smoke") if ROOT else BASE
    if not programs:
        o.bin = None
    elif not (o.bin / "delta-train").exists():
        fail(f"there is no {o.bin}/delta-train; build it with: cmake --workflow --preset cuda")
    else:
        o.bin = o.bin.resolve()
    if o.on_gpu and not output_of("nvidia-smi", "-L"):
        fail("no GPU: nvidia-smi lists none; --device cpu --image 32 --batch 4 tries the script out")
    o.env = environment(o.bin / "delta-train") if programs else dict(os.environ)
    o.began = time.monotonic()
    o.out.mkdir(parents=True, exist_ok=True)
    return o


# -------------------------------------------------------------------------------------------------
# CUDA's libraries on a machine that the programs were not built on

LIBRARIES = ("import glob, site; print('\\n'.join(p for s in [*site.getsitepackages(), "
             "site.getusersitepackages()] for p in glob.glob(s + '/nvidia/*/lib')))")


def missing_libraries(program, env):
    return re.findall(r"^\s*(\S+) => not found", output_of("ldd", program, env=env), re.M)


def library_folders():
    """Where a toolkit's libraries and those of PyTorch's wheels usually are."""
    toolkits = [str(p) for p in [pathlib.Path("/usr/local/cuda/lib64"),
                                 *sorted(pathlib.Path("/usr/local").glob("cuda-*/lib64"))]]
    return toolkits + output_of(os.environ.get("TORCH_PYTHON", "python3"), "-c",
                                LIBRARIES).splitlines()


def environment(program, folders=None):
    """The environment in which a program finds CUDA's libraries. Ends with one line that names
    those which are nowhere."""
    env = dict(os.environ)
    missing = missing_libraries(program, env)
    if missing:
        searched = library_folders() if folders is None else folders
        found = {}
        for name in missing:
            place = next((f for f in searched if os.path.exists(os.path.join(f, name))), None)
            if place:
                found[place] = None
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, [env.get("LD_LIBRARY_PATH", ""), *found]))
        still = missing_libraries(program, env)
        if still:
            fail(f"{program} needs {', '.join(dict.fromkeys(still))}, not found in LD_LIBRARY_PATH, "
                 "/usr/local/cuda*/lib64 or python3's nvidia packages: install CUDA's of that "
                 "number, or name their folder in LD_LIBRARY_PATH")
    return env


# -------------------------------------------------------------------------------------------------
# Runs

def run(command, limit, env=None):
    """Exit code and what was printed, both streams. A command that takes longer is ended, with all
    that it has started: TimedOut."""
    with tempfile.TemporaryFile() as said:
        try:
            child = subprocess.Popen(list(map(str, command)), stdout=said, stderr=subprocess.STDOUT,
                                     stdin=subprocess.DEVNULL, env=env, start_new_session=True)
        except OSError as error:
            raise Failed(f"{command[0]}: {error.strerror}") from error
        try:
            child.wait(max(limit, 0.1))
        except BaseException as why:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if isinstance(why, subprocess.TimeoutExpired):
                name = pathlib.Path(command[0]).name
                raise TimedOut(f"{name}: ended after {limit:.0f} s") from why
            raise
        said.seek(0)
        return child.returncode, said.read().decode(errors="replace")


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"


def json_of(path, what):
    """What a tool wrote. One that was interrupted may have left half of it."""
    try:
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Failed(f"{what} is not whole: {last_line(str(error))}") from error


def train(o, *flags, limit=None):
    """Runs delta-train on ResNet-50 as the options say; gives its report. TooSmall where the budget
    is."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        code, said = run([o.bin / "delta-train", "--device", o.device, "--model", "resnet50",
                          "--image", o.image, "--batch", o.batch, "--lr", 0.005, "--steps", o.steps,
                          "--json", report, *flags], limit or o.row_seconds, o.env)
        if code == 3:
            raise TooSmall("the policy says that it can not keep to it")
        if code != 0:
            raise Failed(f"delta-train, exit code {code}: {last_line(said)}")
        return json_of(report, "delta-train's report")


def replay(o, trace, *flags, limit=None):
    """delta-replay's rows."""
    with tempfile.TemporaryDirectory() as folder:
        rows = os.path.join(folder, "rows.json")
        code, said = run([o.bin / "delta-replay", trace, "--json", rows, *flags],
                         limit or o.row_seconds, o.env)
        if code != 0:
            raise Failed(f"delta-replay, exit code {code}: {last_line(said)}")
        return json_of(rows, "delta-replay's answer")


# -------------------------------------------------------------------------------------------------
# Parts

def commit_of(o):
    """The programs': they may have been carried here. Without them the repository's."""
    built = o.bin and re.search(r", commit ([^;\n]+)",
                                output_of(o.bin / "delta-train", "--version", env=o.env))
    if built and built[1] != "unknown":
        return built[1].strip()
    if ROOT is None:
        return "unknown"
    found = output_of("git", "-C", ROOT, "rev-parse", "--short", "HEAD")
    changed = output_of("git", "-C", ROOT, "status", "--porcelain", "--untracked-files=no", "--",
                        ".", ":!docs")
    return (found or "unknown") + (" and changes" if found and changed else "")


def gpu_of(o):
    if not o.on_gpu:
        return f"none: {o.device}"
    which = o.device.partition(":")[2] or "0"
    said = output_of("nvidia-smi", "-i", which, "--query-gpu=name,driver_version,uuid",
                     "--format=csv,noheader").splitlines()
    return said[0] if said else "unknown"


ASK_VERSION = """import ctypes, sys
library = ctypes.CDLL(sys.argv[2])
if sys.argv[1] == "cudnn":
    library.cudnnGetVersion.restype = ctypes.c_size_t
    print("cuDNN", library.cudnnGetVersion())
else:
    parts = [ctypes.c_int() for _ in range(3)]
    for i, part in enumerate(parts):
        library.cublasGetProperty(i, ctypes.byref(part))
    print("cuBLAS", ".".join(str(part.value) for part in parts))"""


def libraries_of(o):
    """What the programs were built with, as they say, and what they load here, as the libraries say:
    the files' names need not have a version, and those of PyTorch's wheels have none."""
    if o.bin is None:
        return "none"
    program = o.bin / "delta-train"
    built = re.search(r"\bCUDA [^;\n]+", output_of(program, "--version", env=o.env))
    loaded = re.findall(r"^\s*lib(cublas|cudnn)\.so\S* => (/\S+)",
                        output_of("ldd", program, env=o.env), re.M)
    here = [output_of(sys.executable, "-c", ASK_VERSION, kind, path, env=o.env)
            or os.path.basename(os.path.realpath(path)) for kind, path in sorted(loaded)]
    return "; ".join([*(["built with " + built[0].strip()] if built else []), *here]) or "none"


def where(o):
    """What stands above every table."""
    return {"command": f"bench/gpu/{pathlib.Path(sys.argv[0]).name} " + " ".join(sys.argv[1:]),
            "commit": commit_of(o),
            "gpu": gpu_of(o), "libraries": libraries_of(o), "device": o.device, "image": o.image,
            "batch": o.batch, "steps": o.steps, **o.also}


class Part:
    """A table that is made row by row. After each, the figures (gpu-NAME.json) and the tables
    (gpu-NAME.md) are written, so that an interrupted call has lost one row at most. Rows that were
    done by programs of the same commit with the same libraries on the same GPU with the same flags are
    kept, but for those that others are measured against: `anew`.

    A row is a dictionary: `status` (done, failed, skipped, too small, or that there was no time for
    it), `line` with what there is to say, `seconds`, and what the row's function gave."""

    SAME = ("commit", "gpu", "libraries", "device", "image", "batch", "steps")

    def __init__(self, o, name, title, render, lists_all=False, anew=(), subject=None):
        """`render(part)` gives the tables, each a list of lines; rows may be missing. Unless it
        lists all rows, those without figures are listed below. `subject`: what is trained, where it
        is not ResNet-50 alone."""
        self.o, self.name, self.title, self.render = o, name, title, render
        self.lists_all, self.anew = lists_all, anew
        self.path = o.out / f"gpu-{name}.json"
        self.where = where(o)
        self.subject = subject or f"ResNet-50, {o.image}x{o.image}, batch {o.batch}"
        self.rows = {}
        self.before = self.kept()

    def kept(self):
        if not self.path.exists():
            return {}
        try:
            old = json.loads(self.path.read_text(encoding="utf-8"))
            same = all(old["where"][key] == self.where[key] for key in (*self.SAME, *self.o.also))
            rows = {k: r for k, r in old["rows"].items() if isinstance(r["status"], str)}
        except (ValueError, KeyError, TypeError, AttributeError, OSError):
            print(f"{self.path} is not whole, or of another form: begun anew")
            return {}
        # Of programs with changes nobody knows which.
        known = self.where["commit"] != "unknown" and "changes" not in self.where["commit"]
        return rows if same and known else {}

    def left(self):
        return 60 * self.o.minutes - (time.monotonic() - self.o.began)

    def run(self, rows, needed=()):
        """Runs (name, function) pairs, `function(seconds)` being told how long it may take. Those
        that are done are kept; those that failed before come last, but for those that others need.
        Gives the exit code."""
        named = [name for name, _ in rows]
        before = {} if self.o.again else self.before
        self.rows = {name: before.get(name, {"status": NOT_RUN}) for name in named}
        finished = ("done", "too small")
        waiting = [r for r in rows if self.rows[r[0]]["status"] not in finished]
        if waiting:  # a GPU's speed is not the same from one call to the next
            waiting = [r for r in rows if r[0] in self.anew or r in waiting]
        waiting.sort(key=lambda r: self.rows[r[0]]["status"] == "failed" and r[0] not in needed)
        kept = len(rows) - len(waiting)
        if kept:
            print(f"{self.name}: {kept} of {len(rows)} rows are there already (--again runs them)")
        for name, row in self.before.items():
            self.rows.setdefault(name, row)  # of checks that are not here, such as other programs'
        for name, function in waiting:
            if self.left() <= 0:
                continue
            self.rows[name] = self.one(function)
            self.write()
            row = self.rows[name]
            print(f"{self.name}: {name}: {row['status']}"
                  + (f": {row['line']}" if row.get("line") else ""), flush=True)
        self.write()
        print(self.text())
        counts = collections.Counter(self.rows[name]["status"] for name in named)
        if counts[NOT_RUN]:
            print(f"{self.name}: {counts[NOT_RUN]} rows were not run: out of time; the same command "
                  "goes on with them")
        return 1 if counts["failed"] else 0

    def one(self, function):
        began = time.monotonic()
        limit = min(self.o.row_seconds, self.left())
        try:
            row = {"status": "done", **function(limit)}
        except Failed as why:
            # A row that was ended for the part's sake has not failed.
            if isinstance(why, TimedOut) and limit < self.o.row_seconds:
                return {"status": NOT_RUN}
            status = {TooSmall: "too small", Skipped: "skipped"}.get(type(why), "failed")
            row = {"status": status, "line": str(why)}
        return row | {"seconds": round(time.monotonic() - began, 1)}

    def data(self, name):
        """What a row gave; None where it is not done."""
        row = self.rows.get(name, {})
        return row if row.get("status") == "done" else None

    def need(self, name):
        found = self.data(name)
        if found is None:
            raise Failed(f"needs the row '{name}', which is not there")
        return found

    def text(self):
        at = self.where
        head = [f"# {self.title}", "",
                f"`{at['command'].strip()}`, commit {at['commit']}; {at['gpu']}; {self.subject}.", ""]
        others = [f"- {name}: {row['status']}" + (f": {row['line']}" if row.get("line") else "")
                  for name, row in self.rows.items()
                  if row["status"] != "done" and not self.lists_all]
        parts = [*self.render(self), *([["Rows without figures:", "", *others]] if others else [])]
        return "\n".join(head + [line for part in parts for line in [*part, ""]])

    def write(self):
        replace(self.path, json.dumps({"where": self.where, "rows": self.rows}, indent=1) + "\n")
        replace(self.path.with_suffix(".md"), self.text())


def replace(path, text):
    """All of it or nothing, whenever this is interrupted."""
    fresh = path.with_name(path.name + ".part")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)


def number(value, digits=3):
    return "-" if value is None else f"{value:.{digits}f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]
