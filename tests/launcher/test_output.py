"""Output at speed: every line of every rank arrives whole, in its rank's order, on its own stream."""

from __future__ import annotations

import collections
import os
import pathlib
import pty
import re
import select
import subprocess
import termios
import time

import pytest

from support import hvdrun

RANKS, LINES = 8, 25_000
# Each rank prints without a pause, a tenth of it on stderr, in writes that end within lines.
TALKER = """
import os, sys
rank, lines = os.environ["HVD_RANK"], int(sys.argv[1])
out = "".join(f"o{rank}.{i}.{'x' * (i % 97)}.end\\n" for i in range(lines)).encode()
err = "".join(f"e{rank}.{i}.end\\n" for i in range(lines // 10)).encode()
while out or err:
    out = out[os.write(1, out[:7919]):]
    err = err[os.write(2, err[:797]):]
"""


def rank_code(tmp_path: pathlib.Path, code: str) -> list[str]:
    """A command for the ranks that runs the code."""
    (tmp_path / "job.py").write_text(code + "\n")
    return [*hvdrun.python_args(), str(tmp_path / "job.py")]


def counted(text: str, letter: str) -> dict[int, int]:
    """The numbers of lines of each rank; AssertionError for a torn, unordered, repeated or foreign line."""
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
    """220 000 lines from eight ranks, to a file and to a slow reader."""
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
    """States that end with a carriage return: whole, at most one a second, and always the last; the file has them all."""
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


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors_stay_out_of_the_way(closed: str) -> None:
    """New files do not get the numbers of standard streams: the job ends, with its code."""
    shell = f"exec {hvdrun.program()} -np 2 -- sh -c 'echo word; exit 3' {closed}"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=60, env=hvdrun.environment())
    assert done.returncode == 3
    assert ("word" in done.stdout) == (closed == "2>&-")


def test_a_line_in_pieces_is_told_once() -> None:
    """The screen shows it once."""
    done = hvdrun.run("-np", "1", "--", "python3", "-c", "print('x' * 300000)")
    assert done.stdout.count("x") == 300000
    assert done.stderr.count("is longer than 64 KiB and shown in pieces") == 1


def on_a_terminal(argv: list[str], answer: tuple[str, str] | None = None, **extra: str) -> str:
    """All bytes that hvdrun sends to a terminal; with (prompt, words), the words are typed after the prompt."""
    main, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    env = hvdrun.environment(TERM="xterm", **extra)
    job = subprocess.Popen([hvdrun.program(), *argv], stdin=terminal, stdout=terminal, stderr=terminal, env=env)
    os.close(terminal)
    shown = b""
    limit = time.monotonic() + 60
    try:
        while time.monotonic() < limit:
            if not select.select([main], [], [], 1)[0]:
                continue
            try:
                shown += os.read(main, 65536)
            except OSError:  # all ends are closed
                break
            if answer and answer[0].encode() in shown:
                os.write(main, answer[1].encode())
                answer = None
        assert job.wait(10) == 0
    finally:
        job.kill()
        job.wait()
        os.close(main)
    return shown.decode()


def test_progress_bars_are_redrawn_in_place(tmp_path: pathlib.Path) -> None:
    """One row for each rank below the lines, none of which is lost; only the last state of a bar stays."""
    code = (
        "import os, sys, time\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "open('up' + os.environ['HVD_RANK'], 'w').close()\n"
        "while not (os.path.exists('up0') and os.path.exists('up1')): time.sleep(0.01)\n"  # so the bars are there at once
        "for i in range(11):\n"
        "    print(f'\\r{i}/10', end='', file=sys.stderr, flush=True)\n"
        "    if i == 5: print('half', flush=True)\n"
        "    time.sleep(0.06)\n"
        "print(file=sys.stderr)\n"
    )
    shown = on_a_terminal(["-np", "2", "--no-report", "--no-collapse", *rank_code(tmp_path, code)], NO_COLOR="1")
    assert "\x1b[1A\x1b[J" in shown  # two rows, drawn again
    left = screen(shown)
    for rank in (0, 1):
        assert left.count(f"[{rank} localhost] half") == 1
        assert left.count(f"[{rank} localhost] 10/10") == 1
    assert len(left) == 4, left


def test_a_prompt_is_seen_before_its_answer(tmp_path: pathlib.Path) -> None:
    """The prompt has no newline."""
    code = "print('got', input('Name? '))"
    argv = ["-np", "1", "--no-report", "--stdin", "0", *rank_code(tmp_path, code)]
    shown = on_a_terminal(argv, answer=("[0 localhost] Name? ", "Ada\n"), NO_COLOR="1")
    assert screen(shown)[-1] == "[0 localhost] Name? got Ada"


def screen(shown: str) -> list[str]:
    """The lines that stay on the screen, for the few escapes that hvdrun uses."""
    lines, row, column = [""], 0, 0
    for token in re.findall(r"\x1b\[\d*[A-Z]|\r|\n|[^\x1b\r\n]+", shown):
        if token == "\r":
            column = 0
        elif token == "\n":
            row, column = row + 1, 0
        elif token.endswith("A") and token[0] == "\x1b":
            row -= int(token[2:-1] or 1)
        elif token == "\x1b[J":
            lines[row] = lines[row][:column]
            del lines[row + 1 :]
        else:
            lines[row] = lines[row][:column] + token + lines[row][column + len(token) :]
            column += len(token)
        while len(lines) <= row:
            lines.append("")
    return [line for line in lines if line]
