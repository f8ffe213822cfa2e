"""The verdict as data: --verdict-filename, hvd.JobError, hvdrun explain, the termination log."""

from __future__ import annotations

import json
import pathlib
import pickle
import signal
import sys

import pytest

import hvd
from support import hvdrun, verdicts

BOOM = """
import os
def step():
    raise ValueError("boom")
if os.environ["HVD_RANK"] == "1":
    step()
import time
time.sleep(60)
"""


def test_an_exception(tmp_path: pathlib.Path) -> None:
    """Rank, line, advice, the other rank; explained; in the termination log of a pod."""
    script, file, log = tmp_path / "boom.py", tmp_path / "v.json", tmp_path / "log"
    script.write_text(BOOM)
    log.touch()
    options = ["-np", "2", "--grace", "1", "--verdict-filename", str(file), *hvdrun.python_args()]
    done = hvdrun.run(*options, str(script), env={"HVD_TERMINATION_LOG": str(log)})
    found = verdicts.check_file(file, done.returncode)
    assert found is not None and (file.stat().st_mode & 0o777) == 0o600
    assert (found["outcome"], found["cause"], found["rank"], found["host"]) == ("failed", "exception", 1, "localhost")
    assert found["frame"] == {"file": str(script), "line": 4, "function": "step"}
    assert found["others"] == [{"end": "stopped", "count": 1, "ranks": "0"}]
    assert found["advice"]["action"] == "FIX_CODE" and found["evidence"][-1] == "ValueError: boom"
    assert done.stderr.startswith(f"hvdrun: {found['headline']}\n")
    text = hvdrun.run("explain", str(file)).stdout
    assert f"where     rank 1 on localhost, {script}:4 (step)\n" in text and "\nadvice    FIX_CODE: " in text
    assert log.read_text().startswith(f"hvdrun: {found['headline']}\n        advice: FIX_CODE: ")
    hvdrun.run("-np", "1", "--", "true", env={"HVD_TERMINATION_LOG": str(log)})
    assert log.read_text() == ""
    hvdrun.run("-np", "1", "--", "false", env={"HVD_TERMINATION_LOG": str(tmp_path / "none")})
    assert not (tmp_path / "none").exists()


def test_an_interrupted_job_and_one_that_cannot_start(tmp_path: pathlib.Path) -> None:
    """No rank is to blame."""
    file = tmp_path / "v.json"
    with hvdrun.started("-np", "1", "--verdict-filename", str(file), "--", "sh", "-c", "echo here; sleep 60") as job:
        assert "here" in hvdrun.next_line(job.stdout)
        job.send_signal(signal.SIGINT)
        job.communicate(timeout=60)
    found = verdicts.check_file(file, 130)
    assert found is not None and (found["outcome"], found["cause"]) == ("interrupted", "interrupted")
    assert found["advice"]["action"] == "STOP" and found["rank"] is None
    done = hvdrun.run("-np", "1", "--verdict-filename", str(file), "/no/such/program")
    found = verdicts.check_file(file, done.returncode)
    assert found is not None and (found["outcome"], found["cause"]) == ("not_started", "not_started")
    folder = tmp_path / "gone"  # by the job's end; one that is missing at the start is refused there
    folder.mkdir()
    done = hvdrun.run("-np", "1", "--verdict-filename", str(folder / "v.json"), "--", "sh", "-c", f"rmdir {folder}; exit 3")
    assert done.returncode == 3 and f"the verdict is not written: {folder}" in done.stderr


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "is incomplete, or is not JSON"),
        ("[]", "is no object"),
        ('{"schema": "x"}', "is no verdict of hvdrun"),
        ('{"schema": "hvdrun-verdict", "version": 0}', "has version 0; no hvdrun writes this version"),
        ('{"schema": "hvdrun-verdict", "version": 7, "hvdrun": "9.0"}', "is of version 7; hvdrun "),
        ('{"schema": "hvdrun-verdict", "version": 1}', 'has no field "'),
    ],
)
def test_explain_refuses(text: str, why: str, tmp_path: pathlib.Path) -> None:
    """Each message names the file and the fault."""
    file = tmp_path / "v.json"
    file.write_text(text)
    done = hvdrun.run("explain", str(file))
    assert done.returncode == 2 and done.stderr.startswith(f"hvdrun: {file}: {why}"), done.stderr


def fail() -> None:
    """Runs in a rank."""
    raise KeyError("planted")


def test_the_exception_of_run() -> None:
    """hvd.run() raises a JobError, which is a RuntimeError, has the verdict, and can be pickled."""
    with pytest.raises(hvd.JobError, match="KeyError: 'planted'") as raised:
        hvd.run(fail, np=1, executable=sys.executable)
    assert isinstance(raised.value, RuntimeError) and raised.value.verdict is not None
    found = verdicts.checked(json.dumps(raised.value.verdict))
    assert (found["cause"], found["rank"], found["frame"]["function"]) == ("exception", 0, "fail")
    assert pickle.loads(pickle.dumps(raised.value)).verdict == found


def test_the_schema_is_in_the_package() -> None:
    """The installed package has the same schema as the source tree, as the manual promises."""
    installed = pathlib.Path(hvd.__file__).with_name("verdict.schema.json")
    assert json.loads(installed.read_text()) == json.loads(verdicts.SCHEMA.read_text())
