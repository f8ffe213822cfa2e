"""init() in processes of another launcher: torchrun, srun, mpiexec of MPICH."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from hvd._job.store_meeting import gather
from support import hvdrun

JOB = """
import sys
import numpy as np
import hvd.numpy as hvd
hvd.init()
for _ in range(2):
    total = hvd.allreduce(np.ones(3), op=hvd.Sum, name="x")
    print("rank", hvd.rank(), "of", hvd.size(), "on the host", hvd.local_rank(), "of", hvd.local_size(), total[0], flush=True)
    hvd.shutdown()
    hvd.init()
"""


def environment(**extra: str) -> dict[str, str]:
    strange = ("HVD_", "SLURM_", "PMI_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_")
    kept = {name: value for name, value in hvdrun.environment().items() if not name.startswith(strange)}
    return {**kept, **extra}


def job(folder: pathlib.Path, text: str = JOB) -> str:
    (folder / "job.py").write_text(text)
    return str(folder / "job.py")


def run_all(argv: Sequence[str], environments: Sequence[dict[str, str]], limit: float = 100) -> list[tuple[int, str, str]]:
    """(exit code, output, errors) of one process for each environment, all at once."""
    processes = [
        subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for env in environments
    ]
    try:
        return [(out := p.communicate(timeout=limit)) and (p.returncode, *out) for p in processes]
    finally:
        for process in processes:
            process.kill()


def slurm(rank: int, step: str) -> dict[str, str]:
    return environment(
        SLURM_PROCID=str(rank),
        SLURM_STEP_NUM_TASKS="2",
        SLURM_STEP_NUM_NODES="1",
        SLURM_JOB_ID=f"{os.getpid()}",
        SLURM_STEP_ID=step,
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def lines_of(*outputs: str) -> list[str]:
    return sorted("".join(outputs).splitlines())


TWO = ["rank 0 of 2 on the host 0 of 2 2.0"] * 2 + ["rank 1 of 2 on the host 1 of 2 2.0"] * 2


# torchrun restarts all ranks, and its store keeps what the first attempt has written.
FAILS_FIRST = """
import os
import hvd.numpy as hvd
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    hvd.init()
    if hvd.rank() == 1:
        os._exit(3)
    hvd.barrier()
"""


def test_torchruns_ranks_form_one_world_and_more_than_once(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("torch")
    argv = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    argv += ["--redirects", "3", "--log-dir", "logs", job(tmp_path, FAILS_FIRST + JOB)]
    done = subprocess.run(argv, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert lines_of(*(path.read_text() for path in tmp_path.rglob("stdout.log"))) == TWO


@pytest.mark.ci
def test_torchs_variables_alone_are_enough(tmp_path: pathlib.Path) -> None:
    """Clusters' launchers set them: only rank 0 serves the store.  torch.distributed may use that store too."""
    pytest.importorskip("torch")
    text = JOB + "import torch.distributed as dist\ndist.init_process_group('gloo')\nprint(dist.get_world_size())\n"
    port = str(free_port())
    variables = [environment(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port) for rank in range(2)]
    done = run_all([sys.executable, job(tmp_path, text)], variables)
    assert [code for code, _, _ in done] == [0, 0], done
    found = lines_of(*(out for _, out, _ in done))
    assert found == ["2", "2", *TWO], found


def test_a_step_of_srun_on_one_host_is_one_world(tmp_path: pathlib.Path) -> None:
    done = run_all([sys.executable, job(tmp_path)], [slurm(0, "1"), slurm(1, "1")])
    assert [code for code, _, _ in done] == [0, 0], done
    assert lines_of(*(out for _, out, _ in done)) == TWO


def test_who_does_not_come_is_named(tmp_path: pathlib.Path) -> None:
    for rank, missing in ((0, "rank 1 did not call hvd.init() in time"), (1, "rank 0 has not called hvd.init()")):
        ((code, _, errors),) = run_all([sys.executable, job(tmp_path)], [slurm(rank, "2") | {"HVD_INIT_TIMEOUT": "1"}])
        assert code == 1
        assert missing in errors


def test_the_socket_of_a_step_is_refused_to_other_users(tmp_path: pathlib.Path) -> None:
    """Another user has taken its name first; and another user connects to the right one."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
    take = (
        "import os, socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.bind(b'\\0' + sys.argv[1].encode())\ns.listen(9)\n"
        "print('taken', flush=True)\nsys.stdin.read()\n"
    )
    name = f"hvd-slurm-0-{os.getpid()}-3"
    stranger = subprocess.Popen(
        ["setpriv", "--reuid", "12345", "--clear-groups", "/usr/bin/python3", "-c", take, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert stranger.stdout is not None and stranger.stdout.readline() == "taken\n"
        first, second = run_all([sys.executable, job(tmp_path)], [slurm(0, "3"), slurm(1, "3")])
    finally:
        stranger.communicate("")
    assert "Address already in use" in first[2]
    assert "user 12345 has taken the socket" in second[2]


ALONE = {
    "mpiexec": {"PMI_SIZE": "2", "MV2_COMM_WORLD_RANK": "1"},
    "srun over hosts": {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2"},
    "srun, by its number alone": {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"},
    "flux": {"FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "4"},
}


@pytest.mark.parametrize("launcher", ALONE)
def test_a_process_that_trains_alone_says_so(launcher: str, tmp_path: pathlib.Path) -> None:
    script = job(tmp_path, "import hvd.numpy as hvd\nhvd.init()\nprint(hvd.size())\n")
    loose, strict = (
        run_all([sys.executable, script], [environment(**ALONE[launcher], HVD_STRICT=strict)])[0] for strict in ("0", "1")
    )
    assert loose[:2] == (0, "1\n")
    assert loose[2].count("this process trains alone") == 1
    assert strict[0] == 1
    assert "RuntimeError: hvd: this process trains alone" in strict[2]


QUIET = {
    "plain Python": {},
    "a batch script": {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "1", "SLURM_JOB_ID": "7"},
    "one process of torchrun": {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"},
}


@pytest.mark.parametrize("place", QUIET)
def test_a_process_that_is_the_only_one_says_nothing(place: str, tmp_path: pathlib.Path) -> None:
    script = job(tmp_path, "import hvd.numpy as hvd\nhvd.init()\nprint(hvd.size())\n")
    assert run_all([sys.executable, script], [environment(**QUIET[place], HVD_STRICT="1")]) == [(0, "1\n", "")]


class Shelf:
    """A store in this process."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key: str) -> bytes:
        with self.changed:
            return self.values[key]

    def wait(self, key: str, seconds: float) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: key in self.values, seconds)


@pytest.mark.parametrize("first_comes", ["first", "last"])
def test_ranks_that_meet_again_take_nothing_of_the_first_meeting(first_comes: str) -> None:
    """Attempts of torchrun share a store.  100 attempts, with the first rank before or after the others."""
    store, ranks = Shelf(), (2, 5, 7)
    with ThreadPoolExecutor(3) as pool:
        for attempt in range(100):
            texts = {rank: b"%d of attempt %d;" % (rank, attempt) for rank in ranks}
            order = ranks if first_comes == "first" else ranks[::-1]
            begun = []
            for rank in order:
                begun.append(pool.submit(gather, store, "hvd/all/1", ranks, rank, texts[rank], lambda: False))
                time.sleep(0.001)
            for met in begun:
                assert met.result(30) == (b"".join(texts.values()), [])


def test_the_missing_ranks_of_a_meeting_are_named() -> None:
    store = Shelf()
    assert gather(store, "a", (0, 1, 2), 1, b"x", lambda: True) == (None, [0])
    with ThreadPoolExecutor(2) as pool:
        end = time.monotonic() + 1
        first = pool.submit(gather, store, "b", (0, 1, 2), 0, b"x", lambda: time.monotonic() > end)
        assert gather(store, "b", (0, 1, 2), 2, b"y", lambda: time.monotonic() > end) == (None, [1])
        assert first.result(30) == (None, [1])
