"""A program that was compiled against version 1 of the C interface runs with this libhvd (docs/stability.md)."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from support import hvdrun

ABI = pathlib.Path(__file__).parent / "abi"


@pytest.fixture(scope="module")
def libhvd() -> pathlib.Path:
    """The library of this build."""
    return pathlib.Path(hvdrun.program()).parents[1] / "runtime" / "libhvd.so"


def test_every_symbol_keeps_its_version(libhvd: pathlib.Path) -> None:
    """No function of version 1 has gone."""
    table = subprocess.run(["readelf", "--dyn-syms", "-W", libhvd], capture_output=True, text=True, check=True).stdout
    have = {line.split()[-1] for line in table.splitlines() if " UND " not in line and "@@HVD_1" in line}
    expected = {f"{name}@@HVD_1" for name in (ABI / "symbols_1.txt").read_text().split()}
    assert expected <= have, sorted(expected - have)


def test_an_old_program_runs(libhvd: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """It has the structs, the numbers and the symbol versions of its time."""
    program = tmp_path / "old_program"
    command = ["cc", "-o", program, ABI / "old_program.c", f"-L{libhvd.parent}", "-lhvd", f"-Wl,-rpath,{libhvd.parent}"]
    subprocess.run(command, check=True)
    done = hvdrun.run("-np", "2", str(program))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("old program: ok") == 2
