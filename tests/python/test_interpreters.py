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
from hvd import _native
from hvd._runtime import objects as _objects
from hvd._runtime import world as _world


def request(name, address=0, elements=1):
    operation = (_native.ALLREDUCE, 0, _native.Sum, 0, 1.0, 1.0)
    return operation, name, (address, _native.DTYPES["float32"], (elements,), -1), address, None


try:
    _native.submit(request("early"))
except ValueError as error:
    assert "init" in str(error), error
else:
    raise AssertionError("no error before init")
_world.init()
rank, size = _world.rank(), _world.size()
assert _objects.allgather_object((rank, "x" * 100000)) == [(r, "x" * 100000) for r in range(size)]
assert _objects.broadcast_object(rank, size - 1, name="n" * 500) == size - 1
plain = request("t")
for bad in (1, (), plain[:4], ((0,), *plain[1:]), request(7), (*plain[:2], (0, 7, [1], -1), 0, None), (*plain[:4], 3)):
    try:
        _native.submit(bad)
    except TypeError:
        pass
    else:
        raise AssertionError("no TypeError")
try:
    _native.finish(12345678)
except ValueError:
    pass
values = array("f", (1, 2))
for step in range(1000):
    handle = _native.submit(request("t", values.buffer_info()[0], 2))
    _native.finish(handle)
    if step == 0:
        assert list(values) == [size, 2 * size], values
handles = _native.submit_many([request(f"t{i}", values.buffer_info()[0] + 4 * i) for i in range(2)], True)
_native.finish_many(handles)
assert sys.getrefcount(plain) < 5, sys.getrefcount(plain)
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
