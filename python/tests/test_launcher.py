"""`python -m delta_torch run`: what a program does under it is what it does under `python`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import snapshots
from bits import bits_of, difference
from delta_torch.__main__ import main
from delta_torch.flags import FLAGS
from delta_torch.options import Options
from test_recipes import saved, small_gpt, small_tokenizer

LAUNCHER = ("-m", "delta_torch", "run")
TABLE = "\ndelta_torch: budget: "

# As scripts of the kind of nanoGPT's train.py: globals, no function to put anything around.
SCRIPT = """
import atexit, pickle, sys
import torch
from torch import nn
import helper  # beside the script

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, i):
        return torch.randn(64, generator=torch.Generator().manual_seed(i))

def show(*words):
    print(*words, flush=True)

if __name__ == "__main__":
    show(sys.argv, sys.path[0] == helper.folder, __name__, __file__, __spec__, __package__)
    show(sorted(n for n in globals() if n.startswith("__")))
    torch.manual_seed(3)
    torch.set_num_threads(1)
    model = nn.Sequential(*(m for _ in range(6) for m in (nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(
        Rows(), 8, num_workers=1, multiprocessing_context="spawn"  # imports this file again
    )
    for x in loader:
        loss = model(x.repeat(32, 1)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        show(loss.item().hex())
    out = sys.argv[sys.argv.index("--out") + 1]
    torch.save([model.state_dict(), optimizer.state_dict()], out)
    atexit.register(lambda: show("bye", loss.item().hex(), model[0].weight.sum().item().hex()))
    pickle.loads(pickle.dumps(Rows()))
"""


def python(*words: object, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python as a user would in a folder."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("DELTA_TORCH_")}
    return subprocess.run(
        [sys.executable, "-W", "ignore", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**clean, **environment},
    )


def test_a_script_that_knows_nothing_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "helper.py").write_text(f"folder = {str(folder)!r}\n")
    flags = ("--budget", "60%", "--host", "64MiB", "--report", "r.json", "--timeline", "t.json")
    words = ("scripts/train.py", "--budget", "of the script", "-m", "x", "--", "--out")
    right = python(*words, "right.pt", folder=tmp_path)
    assert right.returncode == 0, right.stderr
    flags += ("--plot", "m.svg", "--snapshot", "m.pickle")
    given = python(*LAUNCHER, *flags, *words, "given.pt", folder=tmp_path)
    assert given.returncode == 0, given.stderr
    assert given.stdout == right.stdout.replace("right.pt", "given.pt")
    assert "bye" in given.stdout
    saved = [torch.load(tmp_path / name) for name in ("right.pt", "given.pt")]
    torch.testing.assert_close(*saved, rtol=0, atol=0)
    assert given.stderr.startswith(TABLE), given.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["steps"] == report["batches"] == 6
    assert report["evictions"] + report["offloads"] > 0
    assert report["peak_bytes"] <= report["budget_bytes"] < report["unmanaged_peak_bytes"]
    assert "<svg" in (tmp_path / "m.svg").read_text()
    assert max(snapshots.curve(snapshots.read(tmp_path / "m.pickle"))) == report["unmanaged_peak_bytes"]
    assert any(e.get("cat") or e["ph"] == "X" for e in json.loads((tmp_path / "t.json").read_text()))


ENDINGS = {
    "interrupted": "raise KeyboardInterrupt",
    "exit with a message": "sys.exit('the end')",
    "exit with a status": "sys.exit(3)",
    "an error": "fail()",
    "an error with a cause": "try:\n    fail()\nexcept ValueError as e:\n    raise OSError('x') from e",
    "no Python": "x = = 1",
    "a hook of its own": "sys.excepthook = lambda *a: print('hook', a[0], file=sys.stderr)\nfail()",
    "a child that ends": "import os\nif os.fork() == 0:\n    sys.exit(4)\nsys.exit(os.wait()[1] >> 8)",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_endings(ending: str, tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(
        f"import sys\ndef fail():\n    raise ValueError('failed')\n{ENDINGS[ending]}\n"
    )
    right = python("s.py", folder=tmp_path)
    given = python(*LAUNCHER, "--budget", "1GiB", "s.py", folder=tmp_path)
    assert given.returncode == right.returncode != 0
    message = right.stderr if ending.startswith("exit with") else ""
    before, table, behind = given.stderr.partition(TABLE)
    assert before == right.stderr.removesuffix(message)
    assert table and behind.count("budget") == 0 and behind.endswith(message)
    assert "no training step has ended" in behind


def test_modules_and_folders(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    shown = "import sys\nprint(__name__, __file__, __package__, __spec__.name, sys.argv, sys.path[0])"
    for name in ("__init__", "__main__", "part"):
        (package / f"{name}.py").write_text(shown if name != "__init__" else "")
    for words in (["-m", "package"], ["-m", "package.part", "-m", "--host"], ["package", "x"]):
        right = python(*words, folder=tmp_path)
        given = python(*LAUNCHER, "--budget", "none", *words, folder=tmp_path)
        assert (given.returncode, given.stdout) == (0, right.stdout), given.stderr
        assert right.stdout and TABLE in given.stderr


def test_out_of_memory_says_so_above_the_table(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("import torch\nx = torch.ones(1000) * 2\ny = x @ x\n")
    given = python(*LAUNCHER, "s.py", folder=tmp_path, DELTA_TORCH_BUDGET="2KB")
    assert given.returncode == 1
    error, table, behind = given.stderr.partition(TABLE)
    assert "torch.OutOfMemoryError: delta: out of memory" in error
    assert table and "last error: " in behind
    first = error.splitlines()[1]
    assert first == f'  File "{tmp_path}/s.py", line 2, in <module>'


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "run needs a budget: --budget 4GiB, --budget 50%, or DELTA_TORCH_BUDGET"),
        (["--budget", "1GiB"], "run needs a program: python -m delta_torch run"),
        (["--budget", "1GiB", "no.py"], r"can't open file '.*no.py': No such file or directory"),
        (["--budget", "3x", "s.py"], "argument --budget: a budget is a number with a unit"),
        (["--budget", "1.5", "s.py"], "argument --budget: a budget as a share is above 0"),
        (["--host", "50%", "s.py"], "argument --host: host memory is bytes"),
        (["--policy", "mine", "s.py"], "argument --policy: there is no policy 'mine'"),
        (["--steps", "all", "s.py"], "argument --steps: steps is 'optimizer' or 'manual'"),
        (["--share-after", "0", "s.py"], "argument --share-after: share_after is a number"),
        (["--device", "mars", "s.py"], "argument --device: there is no device 'mars'"),
        (["--budget", "1", "--plot", "/no/m.png", "s.py"], "--plot: /no is no folder"),
        (["--budget", "1", "--timeline", "/no/t", "s.py"], "--timeline: /no is no folder"),
        (["--budget", "1", "--snapshot", "/no/m", "s.py"], "--snapshot: /no is no folder"),
    ],
)
def test_what_makes_no_sense(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    for flag in FLAGS.values():
        monkeypatch.delenv(flag.variable, raising=False)
    monkeypatch.setattr(sys, "argv", sys.argv)
    try:
        status = main(["run", *words])
    except SystemExit as exit:
        status = exit.code
    assert status == 2
    assert re.search(sentence, capsys.readouterr().err)


def test_no_such_module(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    for name in ("no_such_module", "torch.nn.no_such_module", "no.such.module"):
        assert main(["run", "--budget", "1GiB", "-m", name]) == 1
        assert capsys.readouterr().err.startswith("delta_torch: ")


def test_variables_of_the_environment(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setenv("DELTA_TORCH_BUDGET", "4x")
    assert main(["run", "no.py"]) == 2
    assert "DELTA_TORCH_BUDGET in the environment: a budget is" in capsys.readouterr().err
    monkeypatch.setenv("DELTA_TORCH_VERIFY", "yes")
    assert main(["run", "--budget", "1GiB", "no.py"]) == 2, "a flag is before its variable"
    assert "DELTA_TORCH_VERIFY in the environment: it is 0, 1 or tensors" in capsys.readouterr().err


def test_every_option_has_a_flag() -> None:
    assert set(FLAGS) == set(Options.__dataclass_fields__)


def test_files_of_ranks_without_a_group(tmp_path: Path) -> None:
    """torchrun's variables name the rank of a program that makes no process group."""
    (tmp_path / "s.py").write_text("import torch\nx = torch.ones(1000) * 2\n")
    flags = ("--budget", "1MiB", "--report", "taken/r.json", "--snapshot", "m.pickle")
    (tmp_path / "taken/r.rank1.json").mkdir(parents=True)  # which can't be written
    said = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "DELTA_TORCH_PLOT": "m.svg"}
    given = python(*LAUNCHER, *flags, "s.py", folder=tmp_path, **said)
    assert given.returncode == 0 and "r.rank1.json" in given.stderr
    written = sorted(p.name for p in tmp_path.iterdir() if p.is_file())
    assert written == ["m.rank1.pickle", "m.rank1.svg", "s.py"]
    assert snapshots.read(tmp_path / "m.rank1.pickle")["device_traces"][0]


RANKS = """
import os, sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.Sequential(*(m for _ in range(4) for m in (torch.nn.Linear(64, 64), torch.nn.GELU())))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(6):
    model(torch.randn(256, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.save(model.state_dict(), sys.argv[1] + os.environ["RANK"])
dist.destroy_process_group()
"""


@pytest.mark.long
@pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15),
    reason="collectives need PyTorch 2.15",
)
def test_under_torchrun(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(RANKS)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    right = python(*torchrun, "s.py", "right", folder=tmp_path)
    assert right.returncode == 0, right.stderr
    flags = ("--budget", "80%", "--host", "64MiB", "--report", "r.json", "--snapshot", "m.pickle")
    given = python(*torchrun, *LAUNCHER, *flags, "s.py", "given", folder=tmp_path)
    assert given.returncode == 0, given.stderr
    assert given.stderr.count("delta_torch, rank 0: budget: ") == 1
    assert "rank 1: budget" not in given.stderr
    for rank in (0, 1):
        saved = [torch.load(tmp_path / f"{name}{rank}") for name in ("right", "given")]
        torch.testing.assert_close(*saved, rtol=0, atol=0)
        report = json.loads((tmp_path / f"r.rank{rank}.json").read_text())
        assert report["steps"] == 6 and report["evictions"] + report["offloads"] > 0
        assert (tmp_path / f"m.rank{rank}.pickle").stat().st_size > 0


@pytest.mark.long
def test_a_program_of_a_training_library(tmp_path: Path) -> None:
    """TRL's own script for supervised fine-tuning, on a small model and texts in a folder."""
    pytest.importorskip("trl")
    pytest.importorskip("datasets")
    transformers = pytest.importorskip("transformers")
    small_gpt(transformers).save_pretrained(tmp_path / "model")
    small_tokenizer(transformers).save_pretrained(tmp_path / "model")
    (tmp_path / "data").mkdir()
    rows = torch.randint(0, 62, (32, 20)).tolist()
    texts = (json.dumps({"text": " ".join(f"w{i}" for i in row)}) + "\n" for row in rows)
    (tmp_path / "data/train.jsonl").write_text("".join(texts))
    program = ("-m", "trl.scripts.sft", "--model_name_or_path", "model", "--dataset_name", "data")
    program += ("--max_steps", "6", "--per_device_train_batch_size", "8", "--max_length", "24")
    program += ("--use_cpu", "True", "--bf16", "False", "--report_to", "none", "--save_steps", "3")
    program += ("--gradient_accumulation_steps", "2", "--logging_steps", "1", "--output_dir")
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    right = python(*program, "right", folder=tmp_path, **offline)
    assert right.returncode == 0, right.stderr
    flags = ("--budget", "50%", "--host", "256MiB", "--report", "r.json")
    given = python(*LAUNCHER, *flags, *program, "given", folder=tmp_path, **offline)
    assert given.returncode == 0, given.stderr
    assert difference(*(bits_of(saved(tmp_path / name)) for name in ("right", "given"))) is None
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["steps"] == 6 and report["evictions"] + report["offloads"] > 0
