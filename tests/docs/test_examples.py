"""The examples for long jobs and for schedulers: killed and resumed, and otherwise tested as far as possible here."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from support import hvdrun
from support.hvdrun import ROOT

EXAMPLES = ROOT / "examples"
EPOCHS = 3


def arguments(checkpoint: pathlib.Path, epochs: int = EPOCHS) -> list[str]:
    """hvdrun's arguments for the training script on two ranks."""
    script = [str(EXAMPLES / "torch_training.py"), "--epochs", str(epochs), "--checkpoint", str(checkpoint)]
    return ["-np", "2", "--grace", "60", *hvdrun.python_args(), *script]


def epochs_of(output: str) -> list[str]:
    """The lines that end each epoch, without rank and host."""
    return re.findall(r"epoch \d+/\d+ .*", output)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The output of an uninterrupted run."""
    done = hvdrun.run(*arguments(tmp_path_factory.mktemp("whole") / "a.ckpt"), timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = epochs_of(done.stdout)
    assert len(lines) == EPOCHS and float(lines[-1].split()[-1].rstrip("%")) > 80, lines
    return lines


def rank_processes(job: int) -> list[int]:
    """The training processes below a hvdrun."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if any(item.startswith(b"HVD_RANK=") for item in environment) and b"torch_training.py" in command:
            if descends(int(folder.name), job):
                found.append(int(folder.name))
    return sorted(found)


def descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False


@pytest.mark.ci
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["preempted", "a rank is killed"])
def test_training_goes_on_to_the_same_model(tmp_path: pathlib.Path, uninterrupted: list[str], number: signal.Signals) -> None:
    """A run is ended in its second epoch or later: the next run resumes from the checkpoint, and reaches the same loss."""
    checkpoint = tmp_path / "run/digits.ckpt"
    with hvdrun.started(*arguments(checkpoint, epochs=500)) as job:
        hvdrun.wait_until(lambda: epochs_of(hvdrun.read_line(job.stdout)), "the first epoch", 150)
        victim = job.pid if number == signal.SIGTERM else rank_processes(job.pid)[-1]
        os.kill(victim, number)
        rest, errors = job.communicate(timeout=120)
        assert job.returncode != 0, rest + errors
    assert checkpoint.exists(), rest + errors
    if number == signal.SIGTERM:
        assert "told to end: saved in epoch " in rest, rest + errors
    reached = json.loads(
        subprocess.run(
            [sys.executable, "-c", f"import torch, json; s = torch.load({str(checkpoint)!r}); print(json.dumps(s['epoch']))"],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
    )
    last = max(reached + 1, EPOCHS)
    resumed = hvdrun.run(*arguments(checkpoint, epochs=last), timeout=200)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert "goes on in epoch " in resumed.stdout
    lines = epochs_of(resumed.stdout)
    if last == EPOCHS:
        expected = uninterrupted
    else:
        whole = hvdrun.run(*arguments(tmp_path / "b.ckpt", epochs=last), timeout=200)
        expected = epochs_of(whole.stdout)
    assert lines[-1] == expected[-1], (lines, expected)
    assert not list(checkpoint.parent.glob("*.unfinished"))


# ---- the image


def instructions() -> list[tuple[str, str]]:
    """(word, rest) of each instruction of examples/Dockerfile."""
    text = re.sub(r"^#.*\n", "", (EXAMPLES / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found = [line.partition(" ") for line in text.splitlines() if line.strip()]
    return [(word, rest.strip()) for word, _, rest in found]


def test_the_dockerfile_is_well_formed() -> None:
    known = {"FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "CMD"}
    assert {word for word, _ in instructions()} <= known
    assert [rest for word, rest in instructions() if word == "FROM"] == ["debian:12-slim AS build", "debian:12-slim"]
    for word, rest in instructions():
        if word == "RUN":
            shell = " ".join(part for part in rest.split() if not part.startswith("--mount="))
            assert subprocess.run(["sh", "-n", "-c", shell], timeout=20, check=False).returncode == 0, shell
        if word == "COPY" and (source := rest.split()[0]) != ".":
            assert (ROOT / source).exists(), source
        if word == "CMD":
            assert json.loads(rest)[0] == "hvdrun"


def test_the_image_gets_the_packages_that_a_build_and_a_run_need() -> None:
    build, run = (next(r for w, r in stage if w == "RUN") for stage in stages())
    command = re.search(r"\$\((sed .*?)\)", build)
    assert command is not None
    names = subprocess.run(["sh", "-c", command[1]], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert {"g++", "libopenmpi-dev", "libzmq3-dev", "libdw1"} <= set(names)
    assert all(re.fullmatch(r"[a-z0-9.+-]+", name) for name in names), names
    assert "openmpi-bin" in run.split()  # the wheel contains the other libraries
    if shutil.which("apt-cache"):
        wanted = [*names, "openmpi-bin", "openssh-server", "python3-venv"]
        known = subprocess.run(
            ["apt-cache", "--quiet=2", "madison", *wanted], capture_output=True, text=True, timeout=60
        ).stdout
        if known and "bookworm" in pathlib.Path("/etc/os-release").read_text():
            assert set(wanted) <= {line.split("|")[0].strip() for line in known.splitlines()}


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage, without its FROM."""
    parts: list[list[tuple[str, str]]] = []
    for word, rest in instructions():
        if word == "FROM":
            parts.append([])
        else:
            parts[-1].append((word, rest))
    return parts


# ---- the batch script (tests/netns/test_slurm.py runs it)


def test_the_batch_script_gives_the_ranks_time_to_save() -> None:
    text = (EXAMPLES / "train.sbatch").read_text()
    assert subprocess.run(["bash", "-n", str(EXAMPLES / "train.sbatch")], timeout=20, check=False).returncode == 0
    warned = re.search(r"^#SBATCH --signal=B:TERM@(\d+)$", text, re.MULTILINE)
    command = shlex.split(text.rstrip().splitlines()[-1])
    assert warned is not None and command[:3] == ["exec", "hvdrun", "--grace"]
    assert int(command[3]) < int(warned[1])
    assert (ROOT / command[4]).exists()


def test_a_job_is_restarted_by_advice(tmp_path: pathlib.Path) -> None:
    """A killed job starts again; one that fails by its own fault does not."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, pathlib, sys\n"
        "runs = pathlib.Path('runs')\n"
        "runs.write_text((runs.read_text() if runs.exists() else '') + 'x')\n"
        "if runs.read_text() == 'x':\n"
        "    os.kill(os.getpid(), 9)\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    script = (EXAMPLES / "restart_by_advice.py").read_text().replace("PAUSE_SECONDS = 5, 5.0", "PAUSE_SECONDS = 5, 0.1")
    (tmp_path / "restart.py").write_text(script)
    env = hvdrun.environment(HVD_PYTHON=sys.executable)
    env["PATH"] = f"{pathlib.Path(hvdrun.program()).parent}:{env['PATH']}"
    for code, said in ((3, "FIX_CODE: the program ended itself with an exit code; giving up"), (0, "")):
        (tmp_path / "runs").unlink(missing_ok=True)
        command = [sys.executable, "restart.py", "localhost:1", "program.py", str(code)]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done.stderr
        assert (tmp_path / "runs").read_text() == "xx"
        assert "RESTART: a user or the kernel killed the rank" in done.stderr and said in done.stderr, done.stderr
