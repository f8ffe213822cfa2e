"""`hvdrun mcp`: an agent sees the user's own jobs through the real client over stdio, and can do nothing else."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import threading
from typing import Any

import pytest

from support import hvdrun

PYTHON = os.environ.get("HVD_TEST_MCP", "")
CLIENT = hvdrun.ROOT / "tests/support/mcp_client.py"

pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason="no Python with mcp (scripts/setup --tests, or HVD_TEST_MCP)"),
]


def talk(calls: list[tuple[str, dict[str, Any]]], path: str = "", **options: Any) -> dict[str, Any]:
    """The client's output.  path: PYTHONPATH of the server only."""
    env = hvdrun.environment()
    command = [PYTHON, str(CLIENT), hvdrun.program(), PYTHON, path]
    done = subprocess.run(command, input=json.dumps(calls), capture_output=True, text=True, timeout=120, env=env, **options)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_an_agent_sees_jobs_and_verdicts(tmp_path: pathlib.Path) -> None:
    """All tools, on a running job and on files of an ended one."""
    files = {"report": tmp_path / "report.json", "verdict": tmp_path / "verdict.json"}
    options = [word for name, file in files.items() for word in (f"--{name}-filename", str(file))]
    hvdrun.run("-np", "1", *options, "--", "sh", "-c", "exit 3")
    with hvdrun.started("-np", "2", "--", "sleep", "60") as job:
        hvdrun.wait_until(lambda: f'"pid": {job.pid}' in hvdrun.run("ps", "--json").stdout, "the job")
        one = {"job": str(job.pid)}
        said = talk(
            [
                ("ps", {}),
                ("top", one),
                ("stacks", one),
                ("stacks", {**one, "operations": True}),
                *((name, {"file": str(file)}) for name, file in files.items()),
            ]
        )
        job.terminate()
        job.wait(30)
    assert set(said["tools"]) == {"ps", "top", "stacks", "report", "verdict"}
    for about in said["tools"].values():
        assert (about.get("read_only_hint", about.get("readOnlyHint"))) is True, about
    failed, texts = zip(*said["answers"])
    assert not any(failed), said["answers"]
    assert job.pid in [one["pid"] for one in json.loads(texts[0])]
    assert "rank 1 on " in texts[2] and "rank 1" in texts[3]
    assert json.loads(texts[4])["exit_code"] == 3
    assert json.loads(texts[5])["advice"]["action"] == "FIX_CODE"


def test_an_agent_can_do_nothing_else(tmp_path: pathlib.Path) -> None:
    """Names that are options, other tools, files that are none of hvdrun's, links, pipes; a trap in the working folder."""
    secret = tmp_path / "secret.json"
    secret.write_text('{"password": "planted-secret"}')
    verdict = tmp_path / "verdict.json"
    hvdrun.run("-np", "1", "--verdict-filename", str(verdict), "--", "true")
    (tmp_path / "link.json").symlink_to(verdict)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "nested.json").write_text("[" * 100_000)
    trap = f"open({str(tmp_path / 'trapped')!r}, 'w')"
    for name in ("hvd.py", "mcp.py", "json.py", "sitecustomize.py"):
        (tmp_path / name).write_text(trap)
    (tmp_path / "relative").mkdir()
    (tmp_path / "relative/sitecustomize.py").write_text(trap)
    (tmp_path / "large.json").write_text(json.dumps({"schema": "hvdrun-verdict", "version": 1, "x": "x" * (1 << 20)}))
    calls: list[tuple[str, dict[str, Any]]] = [
        *(("stacks", {"job": name}) for name in ("--help", "-h", "a b", "../x", "x;id", "a\nb", "a" * 40)),
        ("top", {"job": "--once"}),
        ("kill", {"job": "x"}),
        ("attach", {"job": "x", "rank": 0}),
        *(("verdict", {"file": name}) for name in ("/etc/passwd", "/proc/self/environ", "/dev/zero", "/nowhere", "a\0b")),
        *((tool, {"file": str(file)}) for tool in ("verdict", "report") for file in (secret, tmp_path, tmp_path / "fifo")),
        *(("verdict", {"file": str(tmp_path / name)}) for name in ("link.json", "nested.json", "large.json")),
        ("report", {"file": str(verdict)}),
    ]
    if os.geteuid() == 0:  # another user's file, a whole verdict
        other = tmp_path / "other.json"
        other.write_bytes(verdict.read_bytes())
        os.chown(other, 65534, 65534)
        calls.append(("verdict", {"file": str(other)}))
    before = {path.name for path in tmp_path.iterdir()}
    opened: list[int] = []
    writer = threading.Thread(target=lambda: opened.append(os.open(tmp_path / "fifo", os.O_WRONLY)), daemon=True)
    writer.start()
    answers = talk(calls, path="relative:/nowhere:", cwd=tmp_path)["answers"]
    assert opened == [], "the server has opened the FIFO"
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    writer.join(20)
    for end in (reader, *opened):
        os.close(end)
    assert [call for call, (failed, _) in zip(calls, answers) if not failed] == []
    assert "too large for an answer" in str(answers)
    assert "planted-secret" not in str(answers) and "root:" not in str(answers) and "Usage:" not in str(answers)
    assert {path.name for path in tmp_path.iterdir()} == before


def test_without_the_package() -> None:
    """A message says what to install."""
    done = hvdrun.run("mcp", "--python", sys.executable)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'hvdrun[mcp]'" in done.stderr
