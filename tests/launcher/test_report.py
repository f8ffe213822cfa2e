"""The report on slow steps: at the end, as text, JSON, page and metrics; hvdrun top while the job runs."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest

from support import hvdrun
from support.forms import measured
from support.late_steps import LATE, PACKAGE, argv


@pytest.fixture
def env(tmp_path: pathlib.Path) -> dict[str, str]:
    """The package of the build folder; reports are stored in the test's own folder."""
    return {"PYTHONPATH": str(PACKAGE), "XDG_STATE_HOME": str(tmp_path / "state")}


@measured
def test_the_late_rank_is_named_and_what_it_costs(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    page, metrics = tmp_path / "report.html", tmp_path / "job.prom"
    done = hvdrun.run(*argv("--report", "--report-filename", str(page), "--metrics", str(metrics)), env=env)
    assert done.returncode == 0, done.stderr
    first = r"hvdrun: (\d+) steps, ([\d.]+) ms each; (\d+) % of it \([\d.]+ ms\) was waiting\n"
    found = re.search(first + r"  (.*)\n  (.*)", done.stderr)
    assert found, done.stderr
    assert 190 <= int(found[1]) <= 200
    assert float(found[2]) >= 15
    assert found[4].startswith("STRAGGLER  rank 1 (localhost): was asleep for "), done.stderr
    assert "1 rank waited for it" in found[4]
    assert re.fullmatch(r"Without it: .* a step \(−\d+ %\)\. Try: hvdrun stacks, which shows .*", found[5].strip()), done.stderr

    text = page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600
    assert "http" not in re.sub(r"http://www\.w3\.org/2000/svg|http-equiv", "", text)
    data = re.search(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)
    assert data
    report = json.loads(data[1])
    assert report["steps"] == int(found[1])
    assert (report["findings"][0]["cause"], report["findings"][0]["ranks"]) == ("STRAGGLER", [1])
    assert (
        report["ranks"][1]["step_parts"]["asleep_seconds"] > 0.01 > report["ranks"][1]["step_parts"]["waited_for_ranks_seconds"]
    )
    assert sum(point["seconds"] for point in report["course"]) > 2
    check_metrics(metrics.read_text())
    assert not list(tmp_path.glob("*.new"))


def check_metrics(text: str) -> None:
    """Each line has the right format, and each family is declared once, before its values."""
    declared: list[str] = []
    for line in text.splitlines():
        if head := re.fullmatch(r"# TYPE (\w+) (gauge|counter)", line):
            assert head[1] not in declared
            declared.append(head[1])
        elif not line.startswith("# HELP "):
            value = re.fullmatch(r'(\w+)\{job="\w+"(,\w+="[^"]*")*\} [-+.\de]+', line)
            assert value, line
            assert value[1] == declared[-1]
    assert re.search(r'^hvdrun_steps_total\{job="\w+"\} 1\d\d$', text, re.MULTILINE), text
    assert 'cause="STRAGGLER",rank="1",host="localhost"' in text


def test_a_board_shows_what_the_metrics_file_has(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """examples/grafana.json uses only names that are written."""
    metrics = tmp_path / "job.prom"
    done = hvdrun.run(*argv("--metrics", str(metrics)), env=env)
    assert done.returncode == 0, done.stderr
    names = set(re.findall(r"^# TYPE (\w+)", metrics.read_text(), re.MULTILINE))
    board = json.loads((hvdrun.ROOT / "examples/grafana.json").read_text())
    asked = set(re.findall(r"hvdrun_\w+", json.dumps([panel["targets"] for panel in board["panels"]])))
    assert len(asked) >= 9
    assert asked <= names


# Rank 0 prints its last report.
READER = (
    LATE
    + """
    report = hvd.report() or (report if step else None)
if hvd.rank() == 0:
    import json
    print("REPORT", json.dumps(report))
"""
)


@measured
def test_a_rank_reads_the_report_while_it_runs(env: dict[str, str]) -> None:
    """hvd.report() on any rank; the guard's next look notices the request, and the report comes with the following steps."""
    done = hvdrun.run("-np", "2", "--", sys.executable, "-c", READER, "500", env=env)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.split("REPORT ")[1])
    assert report, "none came in 7 s"
    assert report["steps"] > 0 and report["step_seconds"] > 0.015
    assert (report["findings"][0]["cause"], report["findings"][0]["ranks"]) == ("STRAGGLER", [1])
    assert set(report["step_parts"]) >= {"input_seconds", "asleep_seconds", "computing_seconds", "moved_seconds"}


def test_no_report_without_hvdrun(env: dict[str, str]) -> None:
    words = "import hvd.numpy as hvd; hvd.init(); assert hvd.report() is None"
    done = subprocess.run([sys.executable, "-c", words], env={**os.environ, **env}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.ci
@measured
def test_slower_than_the_last_time(env: dict[str, str]) -> None:
    """The second run of a job in the same folder, with a planted delay, is reported as slower than the first."""
    slow = LATE.replace("0.015", "float(open('pause').read())")
    job = ["-np", "2", "--report", "--", sys.executable, "-c", slow, "100"]
    folder = pathlib.Path(env["XDG_STATE_HOME"]).parent
    shutil.rmtree(env["XDG_STATE_HOME"], ignore_errors=True)
    told = []
    for pause in ("0.01", "0.02", "0.01"):
        (folder / "pause").write_text(pause)
        done = hvdrun.run(*job, env=env, cwd=folder)
        assert done.returncode == 0, done.stderr
        told.append(re.findall(r"hvdrun: \d+ % (slower|faster) than the last time", done.stderr))
    assert told[0] == []
    assert told[1:] == [["slower"], ["faster"]]


def test_top_shows_a_running_job(env: dict[str, str]) -> None:
    with hvdrun.started(*argv(steps=100_000), env=env) as running:
        job = str(running.pid)  # other jobs may run here
        limit = time.monotonic() + 60
        while True:
            done = hvdrun.run("top", "--json", job, env=env)
            report = json.loads(done.stdout) if done.returncode == 0 and done.stdout.startswith("{") else {"findings": []}
            if any((finding["cause"], finding["ranks"]) == ("STRAGGLER", [1]) for finding in report["findings"]):
                break
            assert time.monotonic() < limit, done.stdout + done.stderr
            time.sleep(0.2)
        shown = hvdrun.run("top", job, env=env)
        assert shown.returncode == 0, shown.stderr
        assert re.match(r"\d+ steps until now; the last half minute:\n", shown.stdout), shown.stdout
        assert re.search(r"\n +RANK +HOST .*\n +1 +localhost .*\n +0 +localhost ", shown.stdout), shown.stdout
        assert "\033" not in shown.stdout
    assert hvdrun.run("top", "nothing-of-that-name", env=env).returncode == 2
