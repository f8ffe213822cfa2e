"""The protocols between threads and ranks, explored in every order of steps by the model checker SPIN.

Each model names the lines of the runtime that it mirrors, and can be broken on purpose: the checker must find the fault.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
HOLDS = [
    ("doorbell.pml", ()),
    ("arrival.pml", ()),
    ("commands.pml", ()),
    ("rings.pml", ()),
    ("rings.pml", ("RANKS=3", "CHUNKS=3")),
    ("eager.pml", ()),
    ("eager.pml", ("RANKS=3",)),
]
BROKEN = [
    ("doorbell.pml", "NO_LOOK_BEFORE_SLEEP"),
    ("doorbell.pml", "FLAG_AFTER_LOOK"),
    ("doorbell.pml", "NO_LOOK_ON_LEAVING"),
    ("doorbell.pml", "RING_BEFORE_WORK"),
    ("doorbell.pml", "NO_RING_AFTER_LOOK"),
    ("doorbell.pml", "NO_RING_WHEN_LOCKED"),
    ("arrival.pml", "NO_TIMER"),
    ("arrival.pml", "CLEAR_AFTER_POLLING"),
    ("arrival.pml", "NO_ARM_AFTER_CALL"),
    ("arrival.pml", "NO_ARM_BEFORE_SLEEP"),
    ("arrival.pml", "NO_RING_WHEN_LOCKED"),
    ("commands.pml", "NO_LATCH"),
    ("commands.pml", "NO_ROOM_FOR_HEADER"),
    ("commands.pml", "NO_HOLD"),
    ("commands.pml", "EAGER_SUBMIT"),
    ("rings.pml", "RING_EARLY"),
    ("rings.pml", "RESULT_EARLY"),
    ("rings.pml", "READ_EARLY"),
    ("rings.pml", "OUT_EARLY"),
    ("eager.pml", "ONE_SLOT"),
    ("eager.pml", "BIT_BEFORE_DATA"),
]


def explore(folder: pathlib.Path, model: str, defines: tuple[str, ...]) -> tuple[int, str]:
    """The number of errors that the checker finds, and its output.  Fails unless all states are visited."""
    spin, compiler = shutil.which("spin"), shutil.which("cc") or shutil.which("gcc")
    if not spin or not compiler:
        pytest.skip("spin is not installed" if not spin else "there is no C compiler")
    for argv in (
        [spin, *(f"-D{name}" for name in defines), "-a", str(HERE / model)],
        [compiler, "-O0", "-w", "-DSAFETY", "-DVECTORSZ=2048", "-o", "pan", "pan.c"],
    ):
        made = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60)
        assert made.returncode == 0, made.stdout + made.stderr
    done = subprocess.run(["./pan", "-m200000", "-n"], cwd=folder, capture_output=True, text=True, timeout=110)
    found = re.search(r"errors: (\d+)", done.stdout)
    assert found and "max search depth too small" not in done.stdout, done.stdout[-3000:] + done.stderr[-1000:]
    return int(found.group(1)), done.stdout


@pytest.mark.parametrize(("model", "defines"), HOLDS, ids=lambda value: value if isinstance(value, str) else "-".join(value))
def test_it_holds(model: str, defines: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    errors, text = explore(tmp_path, model, defines)
    assert errors == 0, text


@pytest.mark.parametrize(("model", "fault"), BROKEN)
def test_a_fault_is_found(model: str, fault: str, tmp_path: pathlib.Path) -> None:
    errors, text = explore(tmp_path, model, (fault,))
    assert errors > 0, f"{model} says that it holds with {fault}:\n{text}"
