"""Results that go into a FIFO: its reader is looked for before the start, and gets the whole text at the end."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import pytest

from support import hvdrun

OPTIONS = ["--verdict-filename", "--report-filename", "--metrics"]


@pytest.mark.parametrize("option", OPTIONS)
def test_a_pipe_without_a_reader_is_told_at_the_start(option: str, tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with hvdrun.started("-np", "1", option, "pipe", "--", "sh", "-c", "echo up; sleep 60", cwd=tmp_path) as job:
        assert hvdrun.next_line(job.stdout).endswith("up\n")
        assert hvdrun.next_line(job.stderr) == (
            f"hvdrun: {option}: pipe: is a pipe that no process reads; start its reader before the job ends\n"
        )


def comm(pid: int) -> str:
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()


def test_a_reader_gets_the_verdict_though_the_job_is_long(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as reader:
        opens = lambda: comm(reader.pid) == "cat" and hvdrun.state(reader.pid) == "S"  # noqa: E731
        hvdrun.wait_until(opens, "the reader's wait for a writer")
        program = [hvdrun.program(), "-np", "1", "--verdict-filename", "pipe", "--", "sh", "-c", "sleep 1; exit 3"]
        done = subprocess.run(program, cwd=tmp_path, env=hvdrun.environment(), capture_output=True, text=True, timeout=60)
        assert reader.stdout is not None
        text = reader.stdout.read()
    assert done.returncode == 3
    assert "pipe" not in done.stderr
    assert json.loads(text)["exit_code"] == 3
