"""What the sections work with: traces of PyTorch's models at the paper's batch sizes, replays of
them by delta-replay, and runs of delta-train on this machine. Everything that takes long is kept
in build/paper, by what it depends on, so that an interrupted run goes on where it was."""

import dataclasses
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))
from artefacts import artefact, picture  # noqa: E402

# PyTorch's models as the paper trains them: maker, its options, batch.
MODELS = {
    "ResNet-50": ("torchvision:resnet50", {}, 128),
    "ResNet-101": ("torchvision:resnet101", {}, 128),
    "ResNeXt-50": ("torchvision:resnext50_32x4d", {}, 128),
    "EfficientNet-B0": ("torchvision:efficientnet_b0", {}, 128),
    "BERT-base": ("transformers:bert", {"tokens": 384}, 32),
}
# The paper's machine: an A100 with 80 GB, copies at 22.4 GB/s each way (35 % of 64 GB/s).
COPIES = 22.4e9
STEPS = 4  # of a replay; the last one counts
HOST_PEAKS = 4


class Failed(Exception):
    """What can't be done, in a line."""


class NotMeasured(Exception):
    """Nothing is to be run here."""


class Workbench:
    """`device`: where delta-train runs: "cpu", "cuda", or "simulated": nowhere."""

    def __init__(self, build, keep, device="cpu"):
        self.build, self.keep, self.device = pathlib.Path(build), pathlib.Path(keep), device
        self.keep.mkdir(parents=True, exist_ok=True)
        for program in ("delta-train", "delta-replay"):
            if not (self.build / "bin" / program).exists():
                raise Failed(f"no {self.build / 'bin' / program}; build it first")

    def pick(self, cpu, cuda):
        """The size of what is measured: small on a CPU, the paper's on a GPU."""
        return cuda if self.device == "cuda" else cpu

    # --- what is kept ----------------------------------------------------------------------------

    def kept(self, what, make):
        """The JSON value of `make()`, made once for `what` and these programs."""
        stamp = [(self.build / "bin" / p).stat().st_mtime_ns for p in ("delta-train", "delta-replay")]
        key = hashlib.sha256(json.dumps([what, stamp], sort_keys=True).encode()).hexdigest()[:20]
        file = self.keep / f"{key}.json"
        if file.exists():
            try:
                return json.loads(file.read_text(encoding="utf-8"))
            except json.JSONDecodeError:
                file.unlink()  # of a run that was interrupted
        value = make()
        part = file.with_suffix(".part")
        part.write_text(json.dumps(value), encoding="utf-8")
        os.replace(part, file)
        return value

    # --- simulated -------------------------------------------------------------------------------

    def trace(self, model, batch=None):
        """The file of a step of that model, recorded from PyTorch on fake tensors and priced for the
        paper's machine, in float32."""
        maker, options, usual = MODELS[model]
        batch = batch or usual
        file = self.keep / f"{model.lower()}_{batch}.jsonl.gz"
        if not file.exists() or file.stat().st_mtime < newest_price():
            say(f"recording {model}, batch {batch}")
            import delta_torch
            import torch
            from delta_torch.planning.machines import machine
            from delta_torch.planning.makers import Training, maker_of

            torch.set_num_threads(1)
            on = dataclasses.replace(machine("a100-80"), copy=COPIES)
            make = maker_of(maker, Training(foreach=False, **options))
            part = file.with_name("part-" + file.name)
            delta_torch.record(make, part, fake=True, device=on, args=(batch,))
            os.replace(part, file)
        return file

    def replays(self, trace, policies, budgets, extra=()):
        """By (policy, part of the peak): the last step's row of delta-replay. `budgets` are parts, or
        sizes in bytes."""
        def size(b):
            return f"{b}B" if isinstance(b, int) else str(b)

        flags = ["--policy", ",".join(policies), "--budget", ",".join(map(size, budgets)),
                 "--iterations", str(STEPS), "--thrash-limit", "10", *map(str, extra)]

        def run():
            with tempfile.TemporaryDirectory() as folder:
                rows = pathlib.Path(folder) / "rows.json"
                self.call("delta-replay", trace, *flags, "--json", rows)
                return json.loads(rows.read_text(encoding="utf-8"))

        rows = self.kept(["replay", *stamp(trace), flags], run)
        last = {}
        for r in rows:  # by policy, budget, iteration
            part = next((b for b in budgets if b in (r["ratio"], r["budget_bytes"])), None)
            last[r["policy"], r["ratio"] if part is None else part] = r
        return last

    def timeline(self, trace, policy, part):
        """The events of delta-replay's timeline."""
        def run():
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / "timeline.json"
                self.call("delta-replay", trace, "--policy", policy, "--budget", part, "--iterations",
                          STEPS, "--thrash-limit", 10, "--timeline", file)
                return json.loads(file.read_text(encoding="utf-8"))

        return self.kept(["timeline", *stamp(trace), policy, part], run)

    def curves(self, trace, policies):
        """By policy: budgets of a grid of some 64 and what a step takes in each, as [bytes, overhead],
        None where it fails or takes more than twice its time."""
        def run():
            with tempfile.TemporaryDirectory() as folder:
                rows = pathlib.Path(folder) / "rows.json"
                self.call("delta-replay", trace, "--policy", ",".join(policies), "--find-budget",
                          "--max-overhead", 2, "--iterations", STEPS, "--json", rows)
                last = {}
                for r in json.loads(rows.read_text(encoding="utf-8")):
                    overhead = r["overhead"] if r["result"] == "pass" else None
                    last[r["policy"], r["budget_bytes"]] = overhead
                return {p: sorted([b, o] for (q, b), o in last.items() if q == p)
                        for p in policies}

        return self.kept(["curves", *stamp(trace), policies], run)

    def peak(self, trace):
        """The unmanaged peak, bytes."""
        return self.replays(trace, ["unmanaged"], [1.0])["unmanaged", 1.0]["unmanaged_peak_bytes"]

    # --- measured --------------------------------------------------------------------------------

    def train(self, *flags, may_fail=False, file=None):
        """delta-train's report; None where the budget is too small and that may be. `file`: a second
        output, as (flag, path). Raises NotMeasured."""
        if self.device == "simulated":
            raise NotMeasured
        def run():
            with tempfile.TemporaryDirectory() as folder:
                report = pathlib.Path(folder) / "report.json"
                more = [] if file is None else list(file)
                done = self.call("delta-train", "--device", self.device, *flags, *more, "--json", report,
                                 allowed=(0, 3) if may_fail else (0,))
                if done == 3:
                    return None
                return json.loads(report.read_text(encoding="utf-8"))

        if file is not None and not pathlib.Path(file[1]).exists():
            return run()
        return self.kept(["train", self.device, [str(f) for f in flags], [str(f) for f in file or ()]], run)

    def call(self, program, *words, allowed=(0,)):
        command = [str(self.build / "bin" / program), *map(str, words)]
        say(" ".join([program, *map(str, words)]))
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              encoding="utf-8")
        if done.returncode not in allowed:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise Failed(f"{program}, exit code {done.returncode}: {lines[-1]}")
        return done.returncode


def keep_picture(figure, out, name):
    """Draws a figure that the page in `out` does not show."""
    picture(figure, artefact(out / "paper.md", f"paper_{name}.png"))


def fastest(run, learning=1):
    """Seconds of the fastest step of a training behind the first ones, as other work on the machine only
    adds to it."""
    return min(run["seconds_by_step"][learning:])


def say(line):
    print(f"paper: {line}", file=sys.stderr, flush=True)


def stamp(file):
    return file.name, file.stat().st_mtime_ns


def newest_price():
    """When what prices operators was changed last."""
    import delta_torch.planning

    folder = pathlib.Path(delta_torch.planning.__file__).parent
    return max(f.stat().st_mtime for f in folder.glob("*.py"))


def smallest(curve, limit):
    """The smallest budget of a curve, bytes, that keeps to the limit; None: none."""
    return next((b for b, overhead in curve if overhead is not None and overhead <= limit), None)


def overhead(row):
    """Of a replay's row, as printed: time over unmanaged time, or why there is none."""
    if row is None:
        return "-"
    return f"{row['overhead']:.3f}" if row["result"] == "pass" else row["result"]
