"""What the scripts in this folder share: flags, runs of the tools, and what a result file says of
where it was made. The standard library alone."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20


def fail(line):
    print(f"{pathlib.Path(sys.argv[0]).name}: {line}", file=sys.stderr)
    sys.exit(1)


def output_of(*command):
    """What a command prints; empty where it can't be run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def options(about, **defaults):
    """The flags of every script. `--device cpu` only tries a script out: its figures mean nothing
    for a GPU, and are not written to docs/results."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/cuda/bin",
                        help="folder of delta-train and delta-replay (default build/cuda/bin)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=defaults.get("steps", 10))
    parser.add_argument("--out", type=pathlib.Path, default=None,
                        help="folder of results (default docs/results; with --device cpu "
                             "build/gpu-smoke)")
    o = parser.parse_args()
    if o.out is None:
        o.out = ROOT / ("docs/results" if o.device == "cuda" else "build/gpu-smoke")
    if not (o.bin / "delta-train").exists():
        fail(f"there is no {o.bin}/delta-train; build it with: cmake --workflow --preset cuda")
    if o.device == "cuda" and not output_of("nvidia-smi", "-L"):
        fail("no GPU: nvidia-smi lists none; --device cpu --image 32 --batch 4 tries the script out")
    o.out.mkdir(parents=True, exist_ok=True)
    return o


def train(o, *flags, may_fail=False):
    """Runs delta-train on ResNet-50 as the options say; gives its report, or with may_fail None
    where the budget is too small."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        command = [str(o.bin / "delta-train"), "--device", o.device, "--model", "resnet50",
                   "--image", o.image, "--batch", o.batch, "--lr", 0.005, "--steps", o.steps,
                   "--json", report, *flags]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode == 3 and may_fail:
            return None
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no message"]
            fail(f"delta-train, exit code {done.returncode}: {lines[-1]}")
        with open(report, encoding="utf-8") as text:
            return json.load(text)


def replay(o, trace, *flags):
    """delta-replay's rows."""
    with tempfile.TemporaryDirectory() as folder:
        rows = os.path.join(folder, "rows.json")
        command = [str(o.bin / "delta-replay"), str(trace), "--json", rows, *map(str, flags)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            fail(f"delta-replay: {done.stderr.strip()}")
        with open(rows, encoding="utf-8") as text:
            return json.load(text)


def where(o, name):
    """What stands above every table."""
    gpu = output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    changed = output_of("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
    return {"command": f"python3 bench/gpu/{name}.py " + " ".join(sys.argv[1:]),
            "commit": output_of("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD")
                      + (" and changes" if changed else ""),
            "gpu": gpu.splitlines()[0] if gpu and o.device == "cuda" else f"none: {o.device}",
            "image": o.image, "batch": o.batch, "steps": o.steps}


def number(value, digits=3):
    return "-" if value is None else f"{value:.{digits}f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]


def write(o, name, result, title, *parts):
    """Prints the tables, and writes them and the figures."""
    place = result["where"]
    head = [f"# {title}", "",
            f"`{place['command'].strip()}`, commit {place['commit']}; {place['gpu']}; ResNet-50, "
            f"{place['image']}x{place['image']}, batch {place['batch']}.", ""]
    text = "\n".join(head + [line for part in parts for line in [*part, ""]])
    print(text)
    (o.out / f"gpu-{name}.md").write_text(text, encoding="utf-8")
    (o.out / f"gpu-{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
