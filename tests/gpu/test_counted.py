"""The libraries that count driver calls, over the fake driver, which must not be affected."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from python.test_torch_gpu import FAKES

HERE = Path(__file__).resolve().parent
SCRIPT = """
import ctypes, json, os, sys
sys.path.insert(0, sys.argv[1])
import counted
seen = counted.Counted(os.environ["HVD_CUDA_LIBRARY"])
driver = ctypes.CDLL(os.environ["HVD_CUDA_LIBRARY"])
version, name = ctypes.c_int(), ctypes.create_string_buffer(64)
assert driver.cuInit(0) == 0 and driver.cuDriverGetVersion(ctypes.byref(version)) == 0
for _ in range(3):
    assert driver.cuDeviceGetName(name, 64, 0) == 0
print(json.dumps([version.value, name.value.decode(), seen.now()]))
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    sys.path.insert(0, str(HERE))
    import counted

    try:
        return counted.build(tmp_path_factory.mktemp("counted"))
    except OSError as why:
        pytest.skip(str(why))


def test_calls_reach_the_driver_and_are_counted(libraries: dict[str, Path]) -> None:
    real = FAKES / "libfakecuda.so"
    if not real.exists():
        pytest.skip(f"{real} is not built")
    env = {**os.environ, "HVD_CUDA_LIBRARY": str(libraries["cuda"]), "COUNTED_CUDA": str(real)}
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(HERE)], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    version, name, calls = json.loads(done.stdout)
    assert (version, name) == (13000, "Fake GPU")
    assert calls == {"cuInit": 1, "cuDriverGetVersion": 1, "cuDeviceGetName": 3}


def test_the_runtime_finds_every_function_that_it_asks_for(libraries: dict[str, Path]) -> None:
    for library, one in (("cuda", "cuEventRecord"), ("nccl", "ncclAllReduce"), ("nccl", "ncclGroupEnd")):
        assert ctypes.CDLL(str(libraries[library]))[one]
