"""The part of a rank's death record about its GPU, with an imitation of NVIDIA's library (fakes/nvml.cc)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rank_bench import BUILD, PLACEMENT, Driver, manifest

OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 3.00 GiB is free."
)
# Writes the driver's answers, and continues when the guard has asked three times after that.  The first question may have
# been in progress, and the third begins when the second's answer has been stored.
TELL = """
import os, sys, time
def tell(*lines, times=3):
    name = sys.argv[1]
    open(name + ".new", "w").write("\\n".join(lines) + "\\n")
    os.rename(name + ".new", name)
    asked = lambda: os.path.exists(name + ".asked") and os.path.getsize(name + ".asked") or 0
    before, end = asked(), time.monotonic() + 60
    while asked() < before + times and time.monotonic() < end:
        time.sleep(0.01)
"""


@pytest.fixture
def death(tmp_path: Path):
    """The death record of a rank that runs this Python text."""

    def run(text: str, gpu: str = "GPU-f", **env: str) -> dict:
        script = tmp_path / "rank.py"
        script.write_text(TELL + text)
        placement = {**PLACEMENT, "planned": True, "gpu": gpu, "visible_gpus": gpu}
        rank = manifest(name=sys.executable, args=[str(script), str(tmp_path / "nvml")], placement=placement)
        fakes = {"LD_LIBRARY_PATH": str(BUILD / "tests/rank"), "HVD_FAKE_NVML": str(tmp_path / "nvml")}
        driver = Driver(tmp_path / "driver", [rank], env={**fakes, **env})
        try:
            return driver.finish().death()
        finally:
            driver.process.kill()
            driver.process.wait()

    return run


def test_memory_that_ran_out_names_who_had_it(death) -> None:
    got = death(f"""
class OutOfMemoryError(RuntimeError): __module__ = "torch"
child = os.fork()
if child == 0:
    time.sleep(100)
tell(f"process {{os.getpid()}} 4096", f"process {{child}} 1024", f"process {{os.getppid()}} 5120", "process 999999999 36864")
raise OutOfMemoryError({OUT_OF_MEMORY!r})
""")
    assert (got["cause"], got["code"]) == ("exited", 1), got
    text = got["text"]
    assert text.startswith(
        "its GPU's memory ran out: it asked for 20.00 GiB when 3.00 GiB of 79.11 GiB were free; it held 5.0 GiB"
    )
    assert "so did a process not seen from here (pid 999999999) 36.0 GiB, hvdrank (pid " in text
    assert text.endswith(") 5.0 GiB"), text
    assert got["hint"].startswith("others use this GPU")


def test_errors_of_the_gpu_are_in_the_death_record(death) -> None:
    """Errors during the rank's run, the last just before its end; a successful end is no death."""
    got = death(r"""
tell("ecc 2", times=1)
open(sys.argv[1], "a").write("xid 79\n")
sys.exit(3)
""")
    assert got["code"] == 3
    assert got["text"].startswith("the GPU's driver reports Xid 79 (the GPU has fallen off the bus)"), got
    got = death("sys.exit(0)")
    assert (got["cause"], got["text"]) == ("finished", "")


def test_words_of_a_rank_without_a_gpu_are_its_own(death) -> None:
    """The text is the rank's last line; the guard adds no judgement."""
    assert death(f"sys.exit({OUT_OF_MEMORY!r})", gpu="")["text"] == OUT_OF_MEMORY.splitlines()[-1]


def test_memory_that_a_rank_has_left_behind(death) -> None:
    """The record has the bytes only if the driver named the rank as a user of the GPU earlier; else it has -1."""
    seen = 'tell(f"process {os.getpid()} 4096", "process 999999999 1024", times=2)\n'
    assert death(seen)["gpu_bytes_left"] == 4 << 30
    freed = 'open(sys.argv[1], "w").write("process 999999999 1024\\n")\n'
    assert death(seen + freed)["gpu_bytes_left"] == 0
    assert death('tell("process 999999999 1024", times=2)')["gpu_bytes_left"] == -1
