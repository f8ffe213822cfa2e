"""A rank reports that it does not use the GPU that hvdrun planned for it."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from python.harness import environment, has, python
from python.test_torch_gpu import FAKE

FAKE_GPU = pathlib.Path(__file__).resolve().parents[1] / "python/ranks/fake_gpu.py"
SCRIPT = f"import runpy, torch, hvd.torch as hvd; runpy.run_path({str(FAKE_GPU)!r}); hvd.init(); hvd.allreduce(torch.ones(4))"
SEEN = "GPU-fa000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize("planned", [SEEN, "GPU-12345678-0000-0000-0000-000000000000"])
def test_another_gpu_than_planned_is_told(planned: str) -> None:
    if not has("torch"):
        pytest.skip(f"{python()} lacks torch")
    env = environment(**FAKE, HVD_GPU=planned)
    done = subprocess.run([python(), "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    told = f"hvd: rank 0 uses cuda:0, {SEEN}, but {planned} was planned for it"
    assert (told in done.stderr) == (planned != SEEN), done.stderr
