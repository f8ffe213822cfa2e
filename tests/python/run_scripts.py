"""Scripts that call hvd.run, for test_run*.py."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from python.harness import environment, python

needs_hvdrun = pytest.mark.skipif(
    not (Path(environment().get("HVD_RUN_PROGRAM", "/nowhere")).exists() or Path(sys.executable).with_name("hvdrun").exists()),
    reason="hvdrun is not built",
)


def script(folder: Path, text: str) -> Path:
    path = folder / "job.py"
    path.write_text(textwrap.dedent(text))
    return path


def run_script(folder: Path, text: str, timeout: float = 180) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python(), str(script(folder, text))],
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )
