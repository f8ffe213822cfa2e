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
from typing import Any

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
        assert job.stdout is not None
        hvdrun.wait_until(lambda: epochs_of(job.stdout.readline()), "the first epoch", 150)
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


# ---- the job for Kubernetes' MPI operator


@pytest.fixture
def mpi_job() -> Any:
    """examples/mpijob.yaml, read by the YAML reader of .cache/docs."""
    python = ROOT / ".cache/docs/bin/python"
    if not python.exists():
        pytest.skip("no YAML reader: .cache/docs is not there (scripts/setup --tests)")
    program = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))"
    argv = [str(python), "-c", program, str(EXAMPLES / "mpijob.yaml")]
    return json.loads(subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout)


def test_the_mpi_job_has_what_the_operator_reads(mpi_job: Any) -> None:
    """It fits kubeflow.org/v2beta1: a launcher, workers, one image, and keys that their user can read."""
    assert (mpi_job["apiVersion"], mpi_job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    spec = mpi_job["spec"]
    assert set(spec) == {"slotsPerWorker", "sshAuthMountPath", "runPolicy", "mpiReplicaSpecs"}
    assert set(spec["runPolicy"]) <= {"cleanPodPolicy", "backoffLimit", "ttlSecondsAfterFinished", "activeDeadlineSeconds"}
    assert set(spec["mpiReplicaSpecs"]) == {"Launcher", "Worker"}
    assert spec["mpiReplicaSpecs"]["Launcher"]["replicas"] == 1
    images = set()
    for role, replica in spec["mpiReplicaSpecs"].items():
        assert set(replica) == {"replicas", "restartPolicy", "template"}, role
        pod = replica["template"]["spec"]
        (container,) = pod["containers"]
        images.add(container["image"])
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        assert mounted == {volume["name"] for volume in pod.get("volumes", [])}, role
        assert container["securityContext"]["runAsUser"] == 1000
        assert pod["terminationGracePeriodSeconds"] > 45  # longer than --grace of the launcher's command
    assert len(images) == 1
    dockerfile = (EXAMPLES / "Dockerfile").read_text()
    assert "useradd -m -u 1000 mpiuser" in dockerfile and spec["sshAuthMountPath"] == "/home/mpiuser/.ssh"


def test_the_mpi_jobs_command_finds_its_workers(mpi_job: Any, tmp_path: pathlib.Path) -> None:
    """The job's own command runs in an environment like the operator's for a launcher."""
    spec = mpi_job["spec"]
    workers, slots = spec["mpiReplicaSpecs"]["Worker"]["replicas"], spec["slotsPerWorker"]
    hosts = [f"192.0.2.{number + 1}" for number in range(workers)]  # addresses for documentation, known without a name server
    (tmp_path / "hostfile").write_text("".join(f"{host} slots={slots}\n" for host in hosts))
    command = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"]
    assert command[0] == "hvdrun"
    words = [word.replace("/opt/train/", f"{EXAMPLES}/") for word in command[1:]]
    env = {
        "K_MPI_JOB_ROLE": "launcher",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": str(tmp_path / "hostfile"),
    }
    done = hvdrun.run("--dry-run", *words, env=env)
    assert done.returncode == 0, done.stderr
    expected = f"{workers * slots} ranks on {workers} hosts, from Kubernetes' MPI operator ({tmp_path}/hostfile)"
    assert done.stdout.startswith(expected), done.stdout
    assert all(host in done.stdout for host in hosts)


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
        assert "RESTART: somebody killed the rank, " in done.stderr and said in done.stderr, done.stderr
