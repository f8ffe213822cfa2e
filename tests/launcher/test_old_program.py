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


def symbols(libhvd: pathlib.Path) -> set[str]:
    """The symbols that the library defines for others, with their versions."""
    table = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", libhvd], capture_output=True, text=True)
    assert table.returncode == 0, table.stderr
    return {line.split()[-1] for line in table.stdout.splitlines()}


def test_every_symbol_keeps_its_version(libhvd: pathlib.Path) -> None:
    """No function of version 1 has gone."""
    have = symbols(libhvd)
    expected = {f"{name}@@HVD_1" for name in (ABI / "symbols_1.txt").read_text().split()}
    assert expected <= have, sorted(expected - have)


def test_no_further_symbol(libhvd: pathlib.Path) -> None:
    """Only functions of hvd.h: a template of the C++ library must not replace another library's in the same process."""
    assert {name for name in symbols(libhvd) if not name.startswith("hvd_")} == {"HVD_1"}


def test_an_old_program_runs(libhvd: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A program that was compiled with an older hvd.h, with that version's structs, enums and symbols, works with this
    libhvd."""
    program = tmp_path / "old_program"
    command = ["cc", "-o", program, ABI / "old_program.c", f"-L{libhvd.parent}", "-lhvd", f"-Wl,-rpath,{libhvd.parent}"]
    subprocess.run(command, check=True)
    done = hvdrun.run("-np", "2", str(program))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("old program: ok") == 2
