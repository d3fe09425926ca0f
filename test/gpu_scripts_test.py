#!/usr/bin/env python3
"""The scripts of bench/gpu, ./run.sh demo and portable.sh on a machine without a GPU: tools and
nvidia-smi are small fakes, one of whose runs fails or hangs.

    python3 test/gpu_scripts_test.py"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[1] / "bench/gpu"
sys.path.insert(0, str(SCRIPTS))
sys.dont_write_bytecode = True
import torch_contact  # noqa: E402

TRAIN = """#!/usr/bin/env python3
import json, os, sys, time
words = sys.argv[1:]
if words == ["--version"]:
    print("delta-train 0.2.0, commit " + os.environ.get("FAKE_COMMIT", "abc1234") + "; CUDA "
          + os.environ.get("FAKE_CUDA", "13.0, cuDNN 9.19"))
    sys.exit(0)
with open(os.environ["FAKE_LOG"], "a") as log:
    log.write(" ".join(words) + "\\n")
def meant(name):
    return name in os.environ and os.environ[name] in " ".join(words)
if meant("FAKE_FAIL"):
    sys.exit("delta-train: an illegal memory access")
if meant("FAKE_SMALL"):
    sys.exit(3)
if meant("FAKE_HANG"):
    time.sleep(600)
given = dict(zip(words, words[1:]))
peak = 1000 if "--budget" not in given else int(given["--budget"].strip("%"))
if "--json" in given:
    text = json.dumps({"step_seconds": 0.5, "peak_bytes": peak, "device_name": "fake",
                       "losses": [1.0]})
    open(given["--json"], "w").write(text[:20] if meant("FAKE_HALF") else text)
if "--record" in given:
    step = [{"rate_out": 1e10, "rate_in": 2e10, "latency": 1000, "device": "fake"},
            {"run": "conv1.forward", "outputs": [1000000], "cost": 300000},
            {"mark": "end_of_step"}]
    text = "".join(json.dumps(line) + "\\n" for line in step)
    open(given["--record"], "w").write(text[:-30] if meant("FAKE_HALF_TRACE") else text)
if "--timeline" in given:
    events = [{"ph": "X", "tid": 0, "ts": 0, "dur": 8}, {"ph": "X", "tid": 1, "ts": 4, "dur": 8}]
    open(given["--timeline"], "w").write(json.dumps(events))
"""
REPLAY = """#!/usr/bin/env python3
import json, sys
given = dict(zip(sys.argv[1:], sys.argv[2:]))
rows = [{"policy": p, "ratio": float(b), "result": "pass", "overhead": 1.25, "bound_overhead": 1.1}
        for p in given["--policy"].split(",") for b in given["--budget"].split(",")]
json.dump(rows, open(given["--json"], "w"))
"""
SMI = """#!/bin/sh
case "$*" in
  *query-gpu*uuid*) echo "${FAKE_GPU:-Fake H100}, ${FAKE_DRIVER:-580.1}, ${FAKE_UUID:-GPU-1}" ;;
  *) echo "GPU 0: a GPU that is none" ;;
esac
"""


# What is built is a delta-train that has CUDA where there is a toolkit that does.
CMAKE = """#!/bin/sh
[ "$1" = --version ] && echo "cmake version 3.30.0" && exit 0
[ "$1" = --build ] || exit 0
mkdir -p build/release/bin
cat > build/release/bin/delta-train <<'TOOL'
#!/bin/sh
case "$*" in
  --version) echo "delta-train 0.2.0, commit x; $BUILT" ;;
  *) echo "ran $*" >> ran ;;
esac
TOOL
chmod +x build/release/bin/delta-train
"""


class Demo(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.bin = self.root / "fakes"
        for path in (self.bin, self.root / "python/tools", self.root / "cuda/bin"):
            path.mkdir(parents=True)
        for name in ("run.sh", "python/tools/torch.sh"):
            shutil.copy(SCRIPTS.parents[1] / name, self.root / name)
        for name, text in {"cmake": CMAKE, "g++": "#!/bin/sh\ncase $1 in -E) cat >/dev/null ;; esac\n"
                                                    "echo 13.0.0\n",
                           "ninja": "#!/bin/sh\n", "apt-get": "#!/bin/sh\nexit 1\n",
                           "nvidia-smi": SMI}.items():
            self.write(self.bin / name, text)

    def write(self, path, text):
        path.write_text(text)
        path.chmod(0o755)

    def demo(self, built="CUDA 13.0; CPU"):
        """The devices that it trained on, one word for each run, and what it said."""
        env = {k: v for k, v in os.environ.items()
               if k not in ("CUDACXX", "CUDA_PATH", "CUDA_HOME", "DELTA_CUDA")}
        # Without an nvcc that this machine may have on its PATH.
        path = f"{self.bin}:/usr/bin:/bin"
        done = subprocess.run([str(self.root / "run.sh"), "demo", "--short"], capture_output=True,
                              text=True, env={**env, "PATH": path, "BUILT": built, "DELTA_TOOLKIT":
                                              str(self.root / "cuda")})
        self.said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, self.said)
        lines = (self.root / "ran").read_text().splitlines()
        (self.root / "ran").unlink()
        return [line.split("--device ")[1].split()[0] for line in lines if "--verify" in line]

    def test_with_a_gpu_and_a_toolkit_it_trains_on_both(self):
        self.write(self.root / "cuda/bin/nvcc", "#!/bin/sh\n")
        self.assertEqual(self.demo(), ["cuda", "cuda", "cpu", "cpu"])
        self.assertEqual(self.demo("CPU"), ["cpu", "cpu"])
        self.assertIn("the CUDA executor was not built", self.said)

    @unittest.skipIf(shutil.which("nvcc", path="/usr/bin:/bin"), "this machine has an nvcc there")
    def test_without_a_toolkit_it_says_what_to_install(self):
        self.assertEqual(self.demo("CPU"), ["cpu", "cpu"])
        told = [line for line in self.said.splitlines() if "cuda-toolkit" in line]
        self.assertEqual(len(told), 1, self.said)

    def test_without_a_gpu_nothing_is_said(self):
        self.write(self.bin / "nvidia-smi", "#!/bin/sh\necho 'No devices were found'\nexit 9\n")
        self.assertEqual(self.demo("CPU"), ["cpu", "cpu"])
        self.assertNotIn("GPU", self.said.replace("GPUs", ""))


@unittest.skipUnless(shutil.which("cc") and shutil.which("readelf"), "no C compiler or no readelf")
class Portable(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def link(self, name, text, *flags):
        done = subprocess.run(["cc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-x",
                               "none", "-o", name, *flags], input=text, text=True, capture_output=True,
                              cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)

    def program(self, version, library="libc.so.6"):
        """One that needs a symbol of that version of a library; of none where it is empty."""
        (self.folder / "versions").write_text(f"{version} {{ f; }};\n")
        script = ["-Wl,--version-script=versions"] if version else []
        self.link(library, "void f(void) {}", f"-Wl,-soname,{library}", *script)
        self.link("program", "void f(void); void g(void) { f(); }", "-Wl,--no-as-needed",
                  f"./{library}")

    def check(self, own="2.36"):
        """On a machine whose C library has the version `own`."""
        getconf = self.folder / "getconf"
        getconf.write_text(f"#!/bin/sh\necho glibc {own}\n")
        getconf.chmod(0o755)
        done = subprocess.run([str(SCRIPTS.parents[1] / "test/portable.sh"), "program"],
                              capture_output=True, text=True, cwd=self.folder,
                              env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"})
        return done.returncode, done.stdout + done.stderr

    def test_a_newer_c_library_fails(self):
        for version in ("2.4", "2.34", "2.35"):
            self.program(f"GLIBC_{version}")
            code, said = self.check()
            self.assertEqual(code, 0, said)
            self.assertIn(f"bytes, GLIBC_{version};", said)
        for version in ("2.36", "2.38", "3.0"):
            self.program(f"GLIBC_{version}")
            code, said = self.check()
            self.assertEqual(code, 1, said)
            self.assertIn(f"program needs GLIBC_{version}; wanted: up to GLIBC_2.35", said)
            # Headers of a newer one ask for more: that is only said.
            code, said = self.check("2.39")
            self.assertEqual(code, 0, said)
            self.assertIn("wanted: up to", said)
        self.program("GLIBC_ABI_DT_RELR")
        self.assertEqual(self.check()[0], 1)

    def test_no_c_library_is_no_failure(self):
        self.program("", "libcudnn.so.9")
        code, said = self.check()
        self.assertEqual(code, 0, said)
        self.assertIn("no C library; libcudnn.so.9", said)
        self.link("program", "int f(void) { return 1; }")
        self.assertEqual(self.check()[0], 0)

    def test_another_library_or_no_program_fails(self):
        self.program("", "libother.so.1")
        code, said = self.check()
        self.assertEqual(code, 1)
        self.assertIn("program needs libother.so.1", said)
        (self.folder / "program").write_text("text")
        self.assertNotEqual(self.check()[0], 0)


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bin, self.out = self.folder / "bin", self.folder / "out"
        self.bin.mkdir()
        self.log = self.folder / "log"
        self.write("delta-train", TRAIN)
        self.write("delta-replay", REPLAY)
        self.write("nvidia-smi", SMI)
        self.write("torch.py", "raise ImportError\n")  # also where there is one

    def write(self, name, text, folder=None):
        path = (folder or self.bin) / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def call(self, part, *flags, **env):
        """Exit code, output, and how many runs of delta-train there were."""
        self.log.write_text("")
        done = subprocess.run(
            [str(SCRIPTS / "run_all.sh"), "--only", part, "--bin", str(self.bin), "--out",
             str(self.out), *flags], capture_output=True, text=True,
            env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "TORCH_PYTHON":
                 sys.executable, "FAKE_LOG": str(self.log), "PYTHONPATH": str(self.bin), **env})
        self.said = done.stdout + done.stderr
        return done.returncode, len(self.log.read_text().splitlines())

    def rows(self, part):
        return json.loads((self.out / f"gpu-{part}.json").read_text())["rows"]

    def statuses(self, part):
        return {name: row["status"] for name, row in self.rows(part).items()}

    def test_all_rows_then_none_again(self):
        self.assertEqual(self.call("saving"), (0, 17), self.said)
        self.assertEqual(set(self.statuses("saving").values()), {"done"})
        row = self.rows("saving")["adaptive 60 %"]
        self.assertAlmostEqual(row["overhead"], 1.0)
        self.assertAlmostEqual(row["saving"], 0.4)
        self.assertAlmostEqual(self.rows("saving")["adaptive 40 %, copies hidden"]["hidden"], 0.5)
        page = (self.out / "gpu-saving.md").read_text()
        self.assertIn("| adaptive | 60 % | 0.400 | 1.000 | 1.250 | 1.100 |", page)
        self.assertIn("commit abc1234; Fake H100, 580.1", page)
        self.assertIn("--tf32", self.log.read_text())
        self.assertEqual(self.call("saving"), (0, 0), self.said)
        # Other numbers, in a file of its own; the flag is no other part's.
        self.assertEqual(self.call("saving", "--float32"), (0, 17), self.said)
        self.assertNotIn("--tf32", self.log.read_text())
        self.assertEqual(set(self.statuses("saving-float32").values()), {"done"})
        self.assertEqual(self.call("saving"), (0, 0), self.said)
        self.assertEqual(self.call("costs", "--float32"), (0, 1), self.said)
        self.assertEqual(self.call("saving", "--again"), (0, 17), self.said)

    def test_other_programs_or_another_gpu_begin_anew(self):
        self.call("costs")
        self.assertEqual(self.call("costs")[1], 0)
        self.assertEqual(self.call("costs", FAKE_COMMIT="def5678")[1], 1)
        self.assertEqual(self.call("costs", FAKE_COMMIT="def5678", FAKE_GPU="Other")[1], 1)
        self.assertEqual(self.call("costs", "--batch", "64", FAKE_COMMIT="def5678",
                                   FAKE_GPU="Other")[1], 1)
        for what, other in {"FAKE_CUDA": "13.0, cuDNN 9.20", "FAKE_DRIVER": "590.2",
                            "FAKE_UUID": "GPU-2"}.items():
            self.call("costs")
            self.assertEqual(self.call("costs")[1], 0)
            self.assertEqual(self.call("costs", **{what: other})[1], 1, what)
        # Programs without the CPU's part were built with the same libraries.
        self.call("costs")
        self.assertEqual(self.call("costs", FAKE_CUDA="13.0, cuDNN 9.19; CPU")[1], 0)
        changed = {"FAKE_COMMIT": "def5678 and changes"}
        self.assertEqual([self.call("costs", **changed)[1] for _ in range(2)], [1, 1])

    def test_a_row_that_fails_ends_nothing(self):
        code, runs = self.call("right", FAKE_FAIL="--policy dtr")
        self.assertEqual((code, runs), (1, 22), self.said)
        found = self.statuses("right")
        self.assertEqual(sum(s == "failed" for s in found.values()), 6)
        self.assertEqual(sum(s == "done" for s in found.values()), 16)
        self.assertIn("| resnet20, dtr, 80 %, bit for bit | FAILED: exit code 1: ",
                      (self.out / "gpu-right.md").read_text())
        self.assertIn("an illegal memory access", self.said)
        # Only those run again.
        self.assertEqual(self.call("right"), (0, 6), self.said)
        self.assertEqual(set(self.statuses("right").values()), {"done"})

    def test_a_budget_that_is_too_small_is_an_answer(self):
        self.assertEqual(self.call("right", FAKE_SMALL="resnet50 --policy paper")[0], 0, self.said)
        self.assertEqual(self.statuses("right")["resnet50, paper, 60 %, bit for bit"], "too small")

    def test_a_row_that_hangs_is_ended(self):
        code, runs = self.call("fast", "--row-seconds", "1.5", FAKE_HANG="--tf32")
        self.assertEqual((code, runs), (1, 2), self.said)
        found = self.rows("fast")
        self.assertEqual(found["delta, TF32"]["status"], "failed")
        self.assertIn("ended after 2 s", found["delta, TF32"]["line"])
        self.assertEqual(found["delta, float32"]["status"], "done")
        self.assertEqual(found["delta, float32"]["rate"], 256)

    def test_a_part_whose_time_is_over_goes_on_later(self):
        # A row hangs until the part's time is over: no failure, and nothing behind it is begun.
        code, runs = self.call("right", "--minutes", "0.05", FAKE_HANG="resnet20 --policy dtr")
        self.assertEqual(code, 0, self.said)
        found = self.statuses("right")
        done = sum(s == "done" for s in found.values())
        self.assertLess(0, done)
        self.assertEqual(done + sum(s == "not run: out of time" for s in found.values()), 22)
        self.assertIn("goes on with them", self.said)
        self.assertEqual(self.call("right"), (0, 22 - done), self.said)

    def test_what_an_interrupted_run_left_is_no_obstacle(self):
        self.call("saving")
        whole = (self.out / "gpu-saving.json").read_text()
        for half in ("", whole[: len(whole) // 2], "[]", '{"where": {}}', '{"rows": 1}'):
            (self.out / "gpu-saving.json").write_text(half)
            self.assertEqual(self.call("saving"), (0, 17), self.said)
            self.assertIn("begun anew", self.said)
        for name in ("FAKE_HALF", "FAKE_HALF_TRACE"):
            code, _ = self.call("costs", "--again", **{name: "--record"})
            self.assertEqual(code, 1, self.said)
            self.assertIn("is not whole", self.rows("costs")["recorded step"]["line"])
        self.assertEqual(self.call("costs"), (0, 1), self.said)

    def test_rows_that_need_a_failed_one_say_so(self):
        code, runs = self.call("saving", FAKE_FAIL="--record")
        self.assertEqual((code, runs), (1, 2), self.said)
        self.assertIn("needs the row 'predicted'", self.rows("saving")["adaptive 40 %"]["line"])
        self.assertEqual(self.call("saving"), (0, 17), self.said)

    def test_tests_that_skip_fail_or_pass(self):
        self.write("cuda_backend_test", "#!/bin/sh\necho 'SKIPPED: x: no GPU'\nexit 77\n")
        self.write("gpu_a_test", "#!/bin/sh\n[ \"$DELTA_TEST_SEEDS\" = 200 ]\n")
        self.write("gpu_b_test", "#!/bin/sh\necho 'b.cpp:1: ERROR'\nexit 1\n")
        self.assertEqual(self.call("right")[0], 1)
        found = self.rows("right")
        self.assertEqual(found["cuda_backend_test"]["line"], "SKIPPED: x: no GPU")
        self.assertEqual(found["gpu_a_test"]["status"], "done")
        self.assertEqual(found["gpu_b_test"]["line"], "exit code 1: b.cpp:1: ERROR")

    def test_few_seeds_are_for_the_fake_gpu_alone(self):
        self.write("cuda_backend_test", "#!/bin/sh\n[ -z \"$DELTA_TEST_SEEDS\" ]\n")
        self.assertEqual(self.call("right", DELTA_TEST_SEEDS="")[0], 0, self.said)

    def test_rows_of_programs_that_are_not_here_are_kept(self):
        test = self.write("gpu_a_test", "#!/bin/sh\nexit 0\n")
        self.call("right")
        test.unlink()
        for flags in ((), ("--again",)):
            self.call("right", *flags)
            self.assertEqual(self.statuses("right")["gpu_a_test"], "done")

    def test_what_is_predicted_is_measured(self):
        # The table of gpu_predicted.md: its policies, its budgets, its numbers.
        page = (SCRIPTS.parents[1] / "docs/results/gpu_predicted.md").read_text()
        budgets = page[page.index("## Step under a budget"):]
        self.assertIn("\nTF32, ", budgets)
        head = next(line for line in budgets.splitlines() if line.startswith("| GPU"))
        wanted = {f"{policy} {part}" for policy in re.findall(r"^\| H100 \| `(\w+)`", budgets, re.M)
                  for part in re.findall(r"\d+ %", head)}
        self.assertEqual(len(wanted), 9)
        self.call("saving")
        self.assertEqual({name for name in self.rows("saving") if "," not in name and "%" in name},
                         wanted)
        self.assertTrue(all("--tf32" in line for line in self.log.read_text().splitlines()))

    def test_a_failed_row_that_others_need_comes_before_them(self):
        # As where the recorded step failed and the part's time was over then.
        self.call("saving")
        path = self.out / "gpu-saving.json"
        table = json.loads(path.read_text())
        table["rows"]["predicted"] = {"status": "failed", "line": "x"}
        table["rows"]["dtr 40 %"] = {"status": "not run: out of time"}
        path.write_text(json.dumps(table))
        self.assertEqual(self.call("saving"), (0, 3), self.said)

    def test_what_others_are_measured_against_is_measured_again(self):
        self.assertEqual(self.call("saving", FAKE_FAIL="--policy dtr")[0], 1)
        # Three rows of dtr, and the unmanaged one.
        self.assertEqual(self.call("saving"), (0, 4), self.said)
        self.assertIn("--tf32", self.log.read_text().splitlines()[0])
        self.assertNotIn("--budget", self.log.read_text().splitlines()[0])

    def test_another_version_of_a_library_begins_anew(self):
        ldd = "#!/bin/sh\necho '  libcudnn.so.9 => {0} (0x7f)'\n"
        for version, runs in (("9.1", 1), ("9.1", 0), ("9.2", 1)):
            library = self.write(f"libcudnn.so.{version}", "")
            self.write("ldd", ldd.format(library))
            self.assertEqual(self.call("costs")[1], runs, self.said)

    @unittest.skipUnless(shutil.which("cc"), "there is no C compiler")
    def test_libraries_of_the_same_name_are_asked_their_version(self):
        def build(cudnn, cublas):
            for name, text in {"cudnn.so.9": f"unsigned long cudnnGetVersion(void){{return {cudnn};}}",
                               "cublas.so.13": "int cublasGetProperty(int i, int* to) "
                                               f"{{*to = {cublas} + i; return 0;}}"}.items():
                subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o",
                                str(self.bin / f"lib{name}")], input=text, text=True, check=True)
        self.write("ldd", f"#!/bin/sh\nfor l in cudnn.so.9 cublas.so.13; do\n"
                          f"  echo \"  lib$l => {self.bin}/lib$l (0x1)\"\ndone\n")
        build(91900, 13)
        self.assertEqual([self.call("costs")[1] for _ in range(2)], [1, 0], self.said)
        self.assertEqual(json.loads((self.out / "gpu-costs.json").read_text())["where"]["libraries"],
                         "built with CUDA 13.0, cuDNN 9.19; cuBLAS 13.14.15; cuDNN 91900")
        for versions in ((92000, 13), (92000, 14)):
            build(*versions)
            self.assertEqual([self.call("costs")[1] for _ in range(2)], [1, 0], versions)

    def test_another_pytorch_begins_fast_anew(self):
        def installed(version):
            folder = self.bin / "torch-0.dist-info"
            folder.mkdir(exist_ok=True)
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\n"
                                             f"Version: {version}\n")
        installed("2.8")
        self.assertEqual([self.call("fast")[1] for _ in range(2)], [2, 0], self.said)
        installed("2.9")
        self.assertEqual([self.call("fast")[1] for _ in range(2)], [2, 0], self.said)

    def test_without_a_pytorch_its_part_is_skipped(self):
        # torch.py, which can't be imported, is the only one; no program is built or asked.
        flags = ("--delta-torch", "installed")
        self.assertEqual(self.call("torch", *flags), (0, 0), self.said)
        found = self.rows("torch")
        self.assertEqual({row["status"] for name, row in found.items() if name != "delta_torch"},
                         {"skipped"}, self.said)
        self.assertEqual(sum("copied too" in name for name in found), len(torch_contact.CASES))
        self.assertIn("no PyTorch", found["gpt2, delta, 40 %"]["line"])
        self.assertEqual(self.call("torch", "--delta-torch", "no.whl")[0], 2)
        self.assertIn("--delta-torch: there is no no.whl", self.said)

    def test_carried_by_themselves_they_write_beside_the_caller(self):
        carried = self.folder / "carried"
        shutil.copytree(SCRIPTS, carried, ignore=shutil.ignore_patterns("__pycache__"))
        self.log.write_text("")
        done = subprocess.run(
            [str(carried / "run_all.sh"), "--only", "costs", "--bin", str(self.bin)],
            capture_output=True, text=True, cwd=self.folder,
            env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "TORCH_PYTHON":
                 sys.executable, "FAKE_LOG": str(self.log)})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue((self.folder / "gpu-costs.md").exists())
        done = subprocess.run([str(carried / "run_all.sh")], capture_output=True, text=True,
                              env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 2)
        self.assertIn("--bin names the programs", done.stderr)

    def test_sanitizer_passes_are_rows(self):
        self.write("compute-sanitizer", '#!/bin/sh\ncase "$2" in racecheck) exit 9;; esac\n'
                                        'shift 4\nexec "$@"\n')
        self.assertEqual(self.call("sanitize"), (1, 2), self.said)
        self.assertIn("--fill-rounding", self.log.read_text())
        self.assertEqual(list(self.statuses("sanitize").values()), ["done", "done", "failed"])

    def test_another_device(self):
        self.call("costs", "--device", "cuda:1")
        self.assertIn("--device cuda:1", self.log.read_text())
        self.assertEqual(self.call("costs", "--device", "tpu")[0], 2)
        self.assertIn("allowed: cuda, cuda:N, cpu", self.said)
        self.assertEqual(self.call("all")[0], 2)
        self.write("nvidia-smi", "#!/bin/sh\nexit 1\n")
        self.assertEqual(self.call("costs"), (2, 0))
        self.assertIn("no GPU", self.said)
        self.assertEqual(self.call("fast", "--device", "cpu"), (0, 1), self.said)

    def test_libraries_are_found_or_named(self):
        import common
        real = self.folder / "toolkit"
        real.mkdir()
        self.write("libcublas.so.13", "", real)
        # As ldd: what is in a folder of LD_LIBRARY_PATH is found.
        self.write("ldd", """#!/bin/sh
for l in libcublas.so.13 libcudnn.so.9; do
  found="not found"
  for f in $(echo "$LD_LIBRARY_PATH" | tr : ' '); do [ -e "$f/$l" ] && found=$f/$l; done
  echo "  $l => $found"
done
""")
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        os.environ["PATH"] = f"{self.bin}:{os.environ['PATH']}"
        os.environ.pop("LD_LIBRARY_PATH", None)
        with self.assertRaises(SystemExit), open(os.devnull, "w") as nowhere:
            sys.stderr, kept = nowhere, sys.stderr
            try:
                common.environment(self.bin / "delta-train", [str(self.folder / "no"), str(real)])
            finally:
                sys.stderr = kept
        wheel = self.folder / "nvidia/cudnn/lib"
        wheel.mkdir(parents=True)
        self.write("libcudnn.so.9", "", wheel)
        env = common.environment(self.bin / "delta-train", [str(real), str(wheel)])
        self.assertEqual(env["LD_LIBRARY_PATH"], f"{real}:{wheel}")


if __name__ == "__main__":
    unittest.main()
