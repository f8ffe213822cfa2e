"""An elastic job under faults: its hosts, workers, progress, and the remains after its end."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from netns import jobs
from netns.cluster import Cluster, children
from support import hvdrun

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = ("fault_rank.py", "fault_training.py")
STEP_SECONDS = 60.0  # limit for a job that makes no progress


def parent(pid: int) -> int:
    """The parent of a process; 0 if it is gone."""
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def ranks_of(hvdrun_pid: int) -> list[int]:
    """The rank processes below daemon and guard of that hvdrun."""
    pids = sorted(int(pid) for pid in os.listdir("/proc") if pid.isdigit())
    return [pid for pid in pids if hvdrun_pid == parent(parent(parent(pid))) and parent(parent(pid)) != 0]


def send(pid: int, number: int) -> None:
    """Sends a signal to a process if it lives."""
    if pid > 1:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def told(pid: int, name: str) -> str:
    """A variable in a process's initial environment."""
    with contextlib.suppress(OSError):
        for entry in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(f"{name}=".encode()):
                return entry.partition(b"=")[2].decode()
    return ""


def lines(path: pathlib.Path) -> list[list[str]]:
    """The words of the ranks' notes, without an incomplete last line."""
    return [line.split() for line in path.read_text().splitlines(keepends=True) if line[-1] == "\n"] if path.exists() else []


class Here:
    """This machine is the only host. All files of the job are in the job's own folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.hosts = ["localhost"]
        self.folder = folder
        self.inside = str(folder)  # its path for the ranks
        self.all = folder / "all"  # hvdrun's and the ranks' output folder
        self.all.mkdir()

    def folders(self) -> list[pathlib.Path]:
        """The folder of each host."""
        return [self.folder]

    def start(self, argv: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
        places = {"TMPDIR": str(self.all), "XDG_RUNTIME_DIR": str(self.all), "FAULTS_MARK": str(self.folder)}
        return subprocess.Popen(
            [hvdrun.program(), *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(self.folder / "stderr").open("a"),
            text=True,
            env=hvdrun.environment(**places, **env),
        )

    def processes(self, host: str = "") -> dict[int, str]:
        """The command lines of the job's processes."""
        found = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and told(int(name), "FAULTS_MARK") == str(self.folder):
                with contextlib.suppress(OSError):
                    found[int(name)] = pathlib.Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        return found

    def left_over(self) -> list[str]:
        return [f"{pid} {line}" for pid, line in self.processes().items()] + [str(path) for path in self.all.iterdir()]


class Hosts:
    """Hosts of a cluster; the job's folder is /tmp/faults on each."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.hosts = list(cluster.names)
        self.inside = "/tmp/faults"
        for folder in self.folders():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        self.before = self._files()

    def folders(self) -> list[pathlib.Path]:
        return [self.cluster.tmp(host) / "faults" for host in self.hosts]

    def start(self, argv: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
        return self.cluster.popen(
            "alpha",
            [hvdrun.program(), *argv],
            env=jobs.environment(**env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(self.folders()[0] / "stderr").open("a"),
            text=True,
        )

    def processes(self, host: str = "") -> dict[int, str]:
        found: dict[int, str] = {}
        for name in [host] if host else self.hosts:
            found |= self.cluster.processes(name)
        return found

    def _files(self) -> list[str]:
        """The files in the folders where a job may leave something."""
        found = []
        for host in self.hosts:
            root = pathlib.Path(f"/proc/{self.cluster.init_pid(host)}/root")
            found += [f"{host}: {path}" for place in ("dev/shm", "tmp") for path in (root / place).iterdir()]
        return found

    def left_over(self) -> list[str]:
        return [f"{pid} {line}" for pid, line in self.processes().items()] + sorted(set(self._files()) - set(self.before))


class Step(NamedTuple):
    """A completed step."""

    at: float
    number: int
    workers: list[int]


class FaultJob:
    """An elastic job.  `options` are hvdrun's, without the program."""

    def __init__(self, place: Here | Hosts, options: list[str], **env: str) -> None:
        self.place = place
        for folder in place.folders():
            for name in PROGRAMS:
                shutil.copy(HERE / name, folder)
        self.argv = [*options, "--python", jobs.python(), f"{place.inside}/fault_rank.py"]
        self.env = {"FAULTS_FOLDER": place.inside, **env}
        self.orders = 0
        self.begun = 0.0  # start time of this hvdrun
        self.process = place.start(self.argv, self.env)

    def hvdrun(self) -> int:
        """The process id of hvdrun."""
        if isinstance(self.place, Here):
            return self.process.pid
        return next(iter(children(self.process.pid)), 0)

    def again(self) -> None:
        """Starts the same command again, once hvdrun has ended."""
        self.process.wait(30)
        self.process = self.place.start(self.argv, self.env)

    def stderr(self) -> str:
        return (self.place.folders()[0] / "stderr").read_text()

    def steps(self) -> list[Step]:
        """The steps in the order of time."""
        rows = [words for folder in self.place.folders() for words in lines(folder / "steps")]
        return sorted(Step(float(at), int(step), [int(w) for w in workers.split(",")]) for at, step, workers in rows)

    def restored(self) -> list[float]:
        """The times when ranks restored their last commit."""
        return sorted(float(words[0]) for folder in self.place.folders() for words in lines(folder / "restored"))

    def workers(self, host: str = "") -> dict[int, int]:
        """Numbers of workers → their processes; without starting ones."""
        found = {}
        for pid, line in self.place.processes(host).items():
            if re.search(r"python\S* .*/fault_rank\.py$", line) and "hvdrun" not in line.split()[0]:
                if number := told(pid, "HVD_RANK"):
                    found[int(number)] = pid
        return found

    def daemon(self, worker: int) -> int:
        """The daemon above the worker's guard.  Guards of a daemon that has just ended may still be there."""
        pid = parent(parent(self.workers()[worker]))
        command = self.place.processes().get(pid, "")
        assert re.match(r"\S*/hvdrank --(elastic-)?daemon ", command), f"worker {worker} is below {pid} {command}"
        return pid

    def order(self, where: str, what: str, spared: Sequence[int] | None = None) -> int:
        """Orders the first worker of a host that reaches the point, or the first on each host; not spared ones.

        Returns the order's number.
        """
        self.orders += 1
        about = {"point": where, "do": what, "spared": list(spared or ())}
        folders = self.place.folders()
        for folder in folders if spared is not None else [folders[self.orders % len(folders)]]:
            (folder / "being written").write_text(json.dumps(about))
            (folder / "being written").rename(folder / f"order.{self.orders}")
        return self.orders

    def taken(self, order: int) -> list[int]:
        """The workers that have taken the order: on several hosts there may be several."""
        found = [path.name for folder in self.place.folders() for path in folder.glob(f"taken.{order}.*")]
        return [int(name.rpartition(".")[2]) for name in found]

    def withdraw(self, order: int) -> None:
        """No worker takes the order from now on."""
        for folder in self.place.folders():
            with contextlib.suppress(FileNotFoundError):
                (folder / f"order.{order}").unlink()

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        """Waits for a condition.  AssertionError if the job ends, or it takes too long."""

        def holds() -> Any:
            assert self.process.poll() is None, f"hvdrun has ended with {self.process.returncode} before {what}"
            return condition()

        return hvdrun.wait_until(holds, what, STEP_SECONDS)

    def wait_for_step(self, since: float, fits: Callable[[list[int]], bool], what: str) -> Step:
        """Returns the first step with fitting workers that was complete after `since`. Waits until a second one exists: it was
        computed entirely after `since`."""

        def found() -> Step | None:
            later = [step for step in self.steps() if step.at > since and fits(step.workers)]
            return later[0] if len(later) > 1 else None

        step: Step = self.wait(found, what)
        return step

    def finish(self) -> dict[str, Any]:
        """Lets the training end, and returns rank 0's printed result."""
        for folder in self.place.folders():
            (folder / "enough").touch()
        out, _ = self.process.communicate(timeout=STEP_SECONDS)
        assert self.process.returncode == 0, f"exit code {self.process.returncode}"
        found = [line for line in out.splitlines() if "result {" in line]
        assert len(found) == 1, f"{len(found)} results: {out}"
        result: dict[str, Any] = json.loads(found[0][found[0].index("{") :])
        return result

    def nothing_is_left(self) -> None:
        """AssertionError with remaining processes and files, if there are any."""
        left: list[str] = []
        for _ in range(250):
            left = self.place.left_over()
            if not left:
                return
            time.sleep(0.02)
        raise AssertionError(f"left behind: {left}")

    def end(self) -> None:
        """Ends the job, whatever its state."""
        send(self.hvdrun(), signal.SIGKILL)
        send(self.process.pid, signal.SIGKILL)
        for pid in self.place.processes():
            send(pid, signal.SIGKILL)
        if self.process.stdout:
            self.process.stdout.close()
        self.process.wait(10)
