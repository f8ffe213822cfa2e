"""Output at speed: every line of every rank arrives, whole, in its rank's order, on its own stream."""

from __future__ import annotations

import collections
import pathlib
import re
import subprocess
import time

import pytest

from support import hvdrun

RANKS, LINES = 8, 25_000
# Each rank prints without a pause, a tenth of it on stderr, in writes that end in the middle of lines.
TALKER = """
import os, sys
rank, lines = os.environ["HVD_RANK"], int(sys.argv[1])
out = "".join(f"o{rank}.{i}.{'x' * (i % 97)}.end\\n" for i in range(lines)).encode()
err = "".join(f"e{rank}.{i}.end\\n" for i in range(lines // 10)).encode()
while out or err:
    out = out[os.write(1, out[:7919]):]
    err = err[os.write(2, err[:797]):]
"""


def counted(text: str, letter: str) -> dict[int, int]:
    """Lines of each rank; an assertion where one is torn, out of order, doubled or another's."""
    seen: collections.Counter[int] = collections.Counter()
    pattern = re.compile(rf"\d\d:\d\d:\d\d\.\d\d\d \[(\d) localhost\] {letter}(\d)\.(\d+)\.(x*)\.?end")
    for line in text.splitlines():
        found = pattern.fullmatch(line)
        assert found, line
        rank, number = int(found[1]), int(found[3])
        assert found[1] == found[2], line
        assert number == seen[rank], f"rank {rank}: line {number} after {seen[rank] - 1}"
        assert letter == "e" or len(found[4]) == number % 97, line
        seen[rank] += 1
    return dict(seen)


@pytest.mark.parametrize("reader", ["file", "slow pipe"])
def test_no_line_is_torn_or_lost(tmp_path: pathlib.Path, reader: str) -> None:
    """220 000 lines from eight ranks, to a file and to a reader that is slower than they are."""
    (tmp_path / "talker.py").write_text(TALKER)
    options = ["-np", str(RANKS), "--prefix-timestamp", "--output-filename", str(tmp_path / "logs")]
    argv = [hvdrun.program(), *options, *hvdrun.python_args(), str(tmp_path / "talker.py"), str(LINES)]
    begin = time.monotonic()
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        target = out if reader == "file" else subprocess.PIPE
        job = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=target, stderr=err, env=hvdrun.environment())
        try:
            while job.stdout is not None and (piece := job.stdout.read1(1 << 16)):
                out.write(piece)
                time.sleep(0.0005)
            assert job.wait(100) == 0
        finally:
            job.kill()
            job.wait()
    seconds = time.monotonic() - begin
    print(f"{RANKS * LINES * 1.1 / seconds:.0f} lines a second, start and end included")
    assert counted((tmp_path / "out").read_text(), "o") == dict.fromkeys(range(RANKS), LINES)
    assert counted((tmp_path / "err").read_text(), "e") == dict.fromkeys(range(RANKS), LINES // 10)
    for rank in range(RANKS):
        lines = (tmp_path / f"logs/rank.{rank}/stdout").read_text().splitlines()
        assert len(lines) == LINES
        assert lines[-1].startswith(f"o{rank}.{LINES - 1}.")
        assert (tmp_path / f"logs/rank.{rank}/stderr").read_text().count("\n") == LINES // 10


def test_progress_bars_stay_whole(tmp_path: pathlib.Path) -> None:
    """States that end with a carriage return: whole, at most one a second, the last one always; the file has them all."""
    (tmp_path / "bar.py").write_text(
        "import sys\nfor i in range(101): sys.stderr.write(f'\\r{i:3}% of it'); sys.stderr.flush()\nsys.stderr.write('\\n')\n"
    )
    done = hvdrun.run("-np", "2", "--output-filename", "logs", *hvdrun.python_args(), "bar.py", cwd=tmp_path)
    for rank in range(2):
        states = re.findall(rf"^\[{rank} localhost\] (.*)$", done.stderr, re.M)
        assert all(re.fullmatch(r" *\d+% of it", state) for state in states), states
        assert states[-1] == "100% of it"
        assert len(states) <= 5
        assert (tmp_path / f"logs/rank.{rank}/stderr").read_bytes().count(b"\r") == 101
