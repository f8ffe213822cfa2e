"""The one C module in every CPython that is installed: import, a world of one, an exchange, errors."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from python.harness import environment, mpirun

PROGRAM = """
import sys
from array import array
from hvd import _native, _objects, _world
try:
    _native.submit(0, 7, 1, "early", (1,), 0, 0, -1, 1.0, 1.0, 0, 0)
except ValueError as error:
    assert "init" in str(error), error
else:
    raise AssertionError("no error before init")
_world.init()
rank, size = _world.rank(), _world.size()
assert _objects.allgather_object((rank, "x" * 100000)) == [(r, "x" * 100000) for r in range(size)]
assert _objects.broadcast_object(rank, size - 1, name="n" * 500) == size - 1
for bad in (lambda: _native.submit(1), lambda: _native.run(0, 7, 1, b"name", (1,), 0, 0, -1, 1.0, 1.0, 0, 0, None)):
    try:
        bad()
    except TypeError:
        pass
    else:
        raise AssertionError("no TypeError")
try:
    _native.finish(12345678)
except ValueError:
    pass


class Tensor:  # as torch's look
    def __init__(self, *values):
        self.values = array("f", values)
        self.is_cpu, self.dtype, self.shape = True, "float32", (len(values),)

    def is_contiguous(self):
        return True

    def is_neg(self):
        return False

    def data_ptr(self):
        return self.values.buffer_info()[0]


def by_python(*arguments, **keywords):
    return arguments, keywords


pending, tensor = {}, Tensor(1, 2)
lane = _native.Lane(pending, {"float32": 7}, set(), by_python, by_python, None)
handle = lane.allreduce_async_(tensor, op=1, name="t")
assert list(pending) == [handle] and pending[handle] == (tensor, tensor), pending
assert lane.synchronize(handle) is tensor and not pending
assert list(tensor.values) == [size, 2 * size], tensor.values
assert lane.allreduce_async_(7, op=1) == ((7,), {"op": 1}) and lane.synchronize(9, x=1) == ((9,), {"x": 1})
lane.allreduce_async_(tensor, average=True)
for _ in range(1000):
    lane.synchronize(lane.allreduce_async_(tensor, name="t", prescale_factor=0.5))
held = sys.getrefcount(tensor)
assert held < 6, held
_world.shutdown()
sys.stdout.write(f"fine {rank} of {size}\\n")
"""


def interpreters() -> list[str]:
    kept = Path.home().glob(".pyenv/versions/3.*/bin/python3")
    found = sorted(str(path) for path in kept if int(path.parts[-3].split(".")[1]) >= 9)
    found += [path for minor in range(9, 16) if (path := shutil.which(f"python3.{minor}")) and ".pyenv" not in path]
    return found or ["python3"]


@pytest.mark.parametrize("interpreter", interpreters())
@pytest.mark.parametrize("ranks", [1, 2])
def test_interpreter(interpreter: str, ranks: int) -> None:
    command = [interpreter, "-c", PROGRAM]
    if ranks > 1:
        if not shutil.which("mpirun"):
            pytest.skip("mpirun is not installed")
        command = [*mpirun(ranks), *command]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(ranks):
        assert f"fine {rank} of {ranks}" in done.stdout
