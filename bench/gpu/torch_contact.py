#!/usr/bin/env python3
"""PyTorch's first contact with a GPU: is delta_torch right there, and what does a budget cost?

    python3 bench/gpu/torch_contact.py [--delta-torch build|installed|FILE.whl] [--rows REGEX]
    python3 bench/gpu/torch_contact.py --device cpu --predict h100

Each row is a process of its own with a limit of its own: first what finds most in least time, with
CUDA_LAUNCH_BLOCKING=1, last what costs. delta_torch is built from python/ into the folder of
results, taken as this Python has it, or taken from a wheel; no network is asked. Two runs without a
budget have to agree before bits are judged. --predict runs nothing on a GPU: it prints what
delta_torch.plan says of the steps that are timed. --device cpu or simulated tries all this out."""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import shutil
import sys

from common import (Failed, Part, Skipped, TimedOut, TooSmall, fail, last_line, number, options,
                    run, table)
from fast import pytorch

ROW = pathlib.Path(__file__).with_name("torch_row.py")
PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
# As in matrix_cases.py, torch_models.py and torch_cases.py, which need PyTorch.
CASES = ("resnet_sgd", "resnet_sgd_foreach", "resnet_adamw", "resnet_adam_foreach",
         "resnet_accumulated", "resnet_autocast", "resnet_channels_last", "transformer",
         "transformer_checkpointed", "lstm", "double_backward", "llama", "attention_flash",
         "attention_efficient", "attention_cudnn", "float16_scaled", "forked_loader")
MODELS = ("resnet50", "gpt2", "llama")
RIVALS = ("checkpoint", "save_on_cpu")
SHARES = {"delta, 40 %": 0.4, "delta, ample": 2}  # budgets, of the unmanaged peak
WAYS = ("unmanaged", *RIVALS, *SHARES)
# What delta_torch.plan has prices of, by what the driver calls it.
MACHINES = {"H100": "h100", "H200": "h200", "A100": "a100-80", "4090": "rtx4090"}


def site(o):
    """Where delta_torch is put, beside the results."""
    return (o.out / "delta_torch_built").resolve()


def within(o, own, limit, command, env):
    """Exit code and output; ended after `own` seconds, which are for a GPU, it has failed; after the
    part's limit not."""
    own = own if o.on_gpu else limit
    try:
        return run(command, min(own, limit), env)
    except TimedOut as why:
        if own < limit:
            raise Failed(str(why)) from why
        raise


def child(o, row, own, *flags, **env):
    """Runs a row in a process of its own, and gives what it found."""
    command = [sys.executable, ROW, row, "--device", o.device, *(["--full"] if o.full else []),
               "--image", o.image, "--batch", o.batch, "--steps", o.steps, *flags]
    found_in = [str(site(o))] if o.delta_torch != "installed" else []
    path = os.pathsep.join([*found_in, *filter(None, [os.environ.get("PYTHONPATH")])])
    # From the process's start: what cuBLAS needs for the same bits each time.
    env = {**o.env, "PYTHONPATH": path, "CUBLAS_WORKSPACE_CONFIG": ":4096:8", **env}

    def runs(limit):
        code, said = within(o, own, limit, command, env)
        if code == 77:
            raise Skipped("there is no PyTorch")
        try:
            if code != 0:
                raise ValueError
            found = json.loads(last_line(said))
        except ValueError:
            print(said)
            raise Failed(f"exit code {code}: {last_line(said)}") from None
        for key, kind in (("failed", Failed), ("skipped", Skipped), ("small", TooSmall)):
            if key in found:
                if kind is Failed:
                    print(said)
                raise kind(found[key])
        return found
    return runs


def toolkit(out, given, packages):
    """A CUDA_HOME to compile with: `given`, or where that lacks something a folder of links, to
    NVIDIA's packages for PyTorch, and to what else `given` has."""
    needed = ("include/cusolverDn.h", "include/cublasLt.h", "lib64/libcudart.so")
    if all((given / name).exists() for name in needed):
        return given
    home = out / "cuda_home"
    shutil.rmtree(home, ignore_errors=True)
    for kind in ("include", "lib64", "bin"):
        (home / kind).mkdir(parents=True)
        for folder in (*packages, given):
            own = kind if folder == given else kind.replace("lib64", "lib")
            for file in (folder / own).glob("*"):
                for name in (file.name, re.sub(r"(\.so)[.\d]+$", r"\1", file.name)):
                    if not (home / kind / name).exists():
                        (home / kind / name).symlink_to(file)
    return home


def install(o):
    """Builds delta_torch, or takes it from a wheel; nothing is downloaded."""
    def runs(limit):
        if o.also["torch"] == "none":
            raise Skipped("there is no PyTorch")
        if o.delta_torch == "installed":
            return {"line": "as this Python has it"}
        built = o.delta_torch == "build"
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q",
                   "--no-deps", "--no-index", "--no-build-isolation", "--upgrade", "--target",
                   site(o), PACKAGE if built else o.delta_torch]
        shutil.rmtree(site(o), ignore_errors=True)  # no row is to take an older one
        tools = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{o.env.get('PATH', '')}"
        env = {**o.env, "DELTA_TORCH_CUDA": "1" if o.on_gpu else "0", "PATH": tools}  # its ninja
        if built and o.on_gpu:
            nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
            given = pathlib.Path(env.get("CUDA_HOME") or pathlib.Path(nvcc).resolve().parents[1])
            found = importlib.util.find_spec("nvidia")
            packages = [p.parent for at in (found.submodule_search_locations if found else ())
                        for p in sorted(pathlib.Path(at).glob("*/include"))]
            env["CUDA_HOME"] = str(toolkit(o.out.resolve(), given, packages))
        code, said = within(o, 300, limit, command, env)
        if code != 0:
            print(said)
            errors = [line for line in said.splitlines() if re.search(r"\berror\b", line, re.I)]
            why = errors[0].strip() if errors else last_line(said)
            raise Failed(f"pip, exit code {code}: {why}")
        slow = "" if shutil.which("ninja", path=tools) else ", one file after the other: no ninja"
        return {"line": "built" + slow if built else pathlib.Path(o.delta_torch).name}
    return runs


def plan_of(o, model, machine):
    return child(o, "predicted", 90, "--model", model, "--machine", machine)


def rows_of(o, part):
    """Pairs of a row's name and what runs it: what finds most in least time first."""
    blocking = {"CUDA_LAUNCH_BLOCKING": "1"}

    def way(model, name):
        plain = f"{model}, unmanaged"

        def runs(limit):
            if name == "unmanaged":
                return child(o, "way", 90, "--model", model)(limit)
            if part.rows.get(plain, {}).get("status") == "skipped":
                raise Skipped(part.rows[plain]["line"])
            base = part.need(plain)
            flags = ["--losses", ",".join(base["losses"])]
            if name in RIVALS:
                flags += ["--way", name]
            else:
                flags += ["--budget", int(SHARES[name] * base["peak_bytes"])]
            found = child(o, "way", 90, "--model", model, *flags)(limit)
            # No failure: kernels that are fast add in any order.
            return found if found["same"] else found | {"line": "other losses than unmanaged"}
        return runs

    rows = [("delta_torch", install(o)), ("machine", child(o, "machine", 60)),
            ("contact", child(o, "contact", 60, **blocking)),
            ("allocator", child(o, "allocator", 60, **blocking)), ("copies", child(o, "copies", 60))]
    # Tried out, every training is in one of the two.
    for policy, name, env, tried in (("dtr", "computed again", blocking, CASES[::2]),
                                     ("adaptive", "copied too", {}, CASES[1::2])):
        for case in CASES if o.on_gpu else tried:
            flags = ("--case", case, "--policy", policy)
            rows.append((f"{case}, {name}", child(o, "bits", 60, *flags, **env)))
    rows += [("streams", child(o, "streams", 90, "--seeds", 40 if o.on_gpu else 10)),
             ("driver", child(o, "driver", 60))]
    for model in MODELS:
        # Tried out, the largest has two alone.
        rows += [(f"{model}, {name}", way(model, name)) for name in WAYS
                 if o.on_gpu or model != "resnet50" or name in ("unmanaged", "delta, 40 %")]
    if o.machine:
        rows += [(f"{model}, predicted", plan_of(o, model, o.machine)) for model in MODELS]
    return rows


def checks(part):
    """What is no table of times: a row each, in the order in which they ran."""
    timed = {f"{model}, {name}" for model in MODELS for name in (*WAYS, "predicted")}
    lines = []
    for name, row in part.rows.items():
        if name in timed and row["status"] == "done" and not row.get("line"):
            continue
        result = {"done": "passed", "failed": "FAILED"}.get(row["status"], row["status"])
        if name in timed and row["status"] == "done":
            result = "done"
        lines.append([name, result, row.get("line", ""), row.get("seconds", "")])
    return lines


def times(part):
    lines = []
    for model in MODELS:
        plain = part.data(f"{model}, unmanaged") or {}
        said = part.data(f"{model}, predicted") or {}
        if not plain and not said:
            continue
        for name in WAYS:
            row = part.data(f"{model}, {name}") or {}
            told = said.get("ways", {}).get(name, {})
            base = name == "unmanaged"
            peak, seconds = row.get("peak_bytes"), row.get("step_seconds")
            foreseen = said.get("peak_bytes") if base else None
            lines.append([
                model if base else "", name,
                number(1e3 * seconds if seconds else None, 1),
                number(seconds / plain["step_seconds"] if seconds and plain else None),
                number(1e3 * said["step_seconds"] if base and said else told.get("overhead"),
                       1 if base else 3),
                number(peak / 2**20 if peak else None, 1),
                number(peak / plain["peak_bytes"] if peak and plain else None, 2),
                number(foreseen / 2**20 if foreseen else told.get("peak"), 1 if base else 2)])
    head = ["model", "way", "step, ms", "/ unmanaged", "predicted", "peak, MiB", "/ unmanaged",
            "predicted"]
    return table(head, lines)


def tables(part):
    reds = [f"{name}: {row.get('line', '')}" for name, row in part.rows.items()
            if row["status"] == "failed"]
    first = f"The first red of {len(reds)} is {reds[0]}" if reds else "No row has failed."
    timed = times(part)
    about = ["Predicted is the step in ms and the peak in MiB of the unmanaged way, the ratios of "
             "the others."]
    return [[first], table(["row", "result", "what is to say", "seconds"], checks(part)),
            *([about, timed] if len(timed) > 2 else [])]


def pattern(text):
    try:
        return re.compile(text)
    except re.error as why:
        raise argparse.ArgumentTypeError(f"'{text}' is no regular expression: {why}") from why


def predict(o, name):
    """Prints the table to be committed before a GPU has run."""
    lines = []
    for model in MODELS:
        try:
            found = plan_of(o, model, name)(600)
        except Failed as why:
            fail(f"--predict: {model}: {why}")
        delta, rival = found["ways"]["delta, 40 %"], found["ways"]["checkpoint"]
        lines.append([found["what"], number(found["peak_bytes"] / 2**30, 1),
                      number(1e3 * found["step_seconds"], 0), number(delta["overhead"], 2),
                      number(rival["overhead"], 2), f"{rival['peak']:.0%}"])
    print("\n".join(table(["on " + name, "peak, GiB", "step, ms", "delta at 40 %", "checkpoint",
                           "its peak"], lines)))


def main():
    def more(parser):
        parser.add_argument("--delta-torch", default="build", metavar="build|installed|FILE.whl",
                            help="where delta_torch is from (default: built here)")
        parser.add_argument("--rows", type=pattern, default=None, metavar="REGEX",
                            help="only rows whose names match")
        parser.add_argument("--predict", choices=MACHINES.values(),
                            help="only print what is predicted of this GPU")

    o = options(__doc__, more, programs=False, tried=("cpu", "simulated"), image=None, batch=None,
                steps=None, row_seconds=300)
    if not (PACKAGE / "tests/matrix_cases.py").exists():
        fail(f"there is no {PACKAGE}/tests: this part needs the repository's folder python")
    if o.delta_torch not in ("build", "installed") and not pathlib.Path(o.delta_torch).is_file():
        fail(f"--delta-torch: there is no {o.delta_torch}; allowed: build, installed, a wheel")
    o.full = o.on_gpu or o.predict is not None  # the sizes of a GPU
    o.steps = o.steps or (10 if o.full else 2)
    o.image, o.batch = o.image or (224 if o.full else 32), o.batch or (128 if o.full else 4)
    o.also = {"torch": pytorch(), "delta_torch": o.delta_torch}
    if o.predict:
        predict(o, o.predict)
        return
    part = Part(o, "torch", "PyTorch on a GPU", tables, True,
                anew=() if site(o).exists() else ("delta_torch",),
                subject=f"PyTorch {o.also['torch']}, ResNet-50 on {o.batch} images of "
                        f"{o.image}x{o.image}")
    o.machine = next((m for gpu, m in MACHINES.items() if gpu in part.where["gpu"]),
                     None if o.on_gpu else "cpu")
    rows = [row for row in rows_of(o, part) if o.rows is None or o.rows.search(row[0])]
    if not rows:
        fail("--rows: no row has such a name")
    sys.exit(part.run(rows, needed=("delta_torch", *(f"{model}, unmanaged" for model in MODELS))))


if __name__ == "__main__":
    main()
