"""What the scripts that time delta-train share: a run and its report, what else the machine did
meanwhile, and what the machine is. The standard library alone."""

import json
import os
import platform
import re
import resource
import subprocess
import tempfile

# Of all cores' time during a step: more of it taken by the host of a virtual machine, and the step's
# time is not to be relied on.
BUSY = 0.05


def train(program, *flags):
    """Runs delta-train; gives its report. Raises CalledProcessError, with what it said in stderr.

    The report's "seconds_by_step" is there even if the program's reports have none: then it has the
    steps that progress lines tell of, which are all where they are fewer than 16."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [program, *map(str, flags), "--json", report.name]
        ran = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                             encoding="utf-8", check=True)
        found = json.load(open(report.name, encoding="utf-8"))
    if not found.get("seconds_by_step"):
        lines = ran.stderr.splitlines()
        told = [re.match(r"(?!unmanaged twin).*: step \d+/\d+, .* (\S+) s$", line) for line in lines]
        found["seconds_by_step"] = [float(m[1]) for m in told if m]
    return found


def busy_times():
    """Seconds since the start, of all cores: all, busy, stolen; None where there is no /proc."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(x) / os.sysconf("SC_CLK_TCK") for x in file.readline().split()[1:9]]
    except OSError:
        return None
    idle, stolen = ticks[3] + ticks[4], ticks[7]
    return {"all": sum(ticks), "busy": sum(ticks) - idle - stolen, "stolen": stolen}


def children_seconds():
    """What our finished children took of all cores."""
    ours = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ours.ru_utime + ours.ru_stime


def load_between(before, after, ours_since):
    """Parts of all cores' time: what others had, what was stolen; None where there is no /proc. Ours
    is what children took that have ended since."""
    stolen = stolen_between(before, after)
    if stolen is None:
        return {"others": None, "stolen": None}
    ours = children_seconds() - ours_since
    others = (after["busy"] - before["busy"] - ours) / (after["all"] - before["all"])
    return {"others": max(0.0, others), "stolen": stolen}


def stolen_between(before, after):
    """The part of all cores' time that a virtual machine's host took; None where there is no /proc."""
    if not before or not after or after["all"] <= before["all"]:
        return None
    return (after["stolen"] - before["stolen"]) / (after["all"] - before["all"])


def machine():
    """The processor and its cores, in words."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or "unknown processor"
    return f"{name}, {os.cpu_count()} cores"
