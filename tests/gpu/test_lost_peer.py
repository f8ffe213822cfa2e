"""A rank dies while the others' GPUs wait for it: NCCL is ended, and the callers get errors within seconds."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from failures.test_peers import SLACK, SOON, survivors
from python.harness import has, mpirun, python
from python.test_torch_gpu import FAKE

HERE = pathlib.Path(__file__).resolve().parent


def heard_by_survivors(script: str, per_node: int, tmp_path: pathlib.Path) -> dict[int, tuple[float, str]]:
    """The messages of the surviving ranks: seconds, text."""
    if not shutil.which("mpirun"):
        pytest.skip("mpirun is not installed")
    if not has("torch"):
        pytest.skip(f"{python()} lacks torch")
    keep = ["--enable-recovery"]  # otherwise mpirun ends all ranks as soon as one has failed
    keep += ["--mca", "btl_vader_backing_directory", str(tmp_path)]  # a killed rank leaves Open MPI's segment behind
    fakes = ["env", *(f"{name}={value}" for name, value in FAKE.items())]
    command = ["timeout", "-k", "5", "80", *fakes, *mpirun(3), *keep, python(), str(HERE / script)]
    return survivors(command, 3, per_node)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("per_node", [0, 2], ids=["one node", "two nodes"])
def test_all_survivors_hear_of_it(per_node: int, tmp_path: pathlib.Path) -> None:
    heard = heard_by_survivors("lost_peer.py", per_node, tmp_path)
    for rank, (seconds, text) in heard.items():
        assert seconds < SOON + SLACK, f"rank {rank} waited {seconds} s"
        said, again = text.split(" | ")
        assert "rank 2" in said, text
        assert "rank 2" in again, text


@pytest.mark.timeout(100)
def test_a_state_is_not_kept_whose_exchange_was_cut_off(tmp_path: pathlib.Path) -> None:
    """Seen on an H100: a rank that continued committed a sum of some ranks."""
    for rank, (seconds, text) in heard_by_survivors("lost_peer_state.py", 0, tmp_path).items():
        assert seconds < SOON + SLACK, f"rank {rank} waited {seconds} s"
        said, kept = text.split(" | ")
        assert "rank 2" in said, text
        assert kept.strip() == "step 0, 100.0", text
