"""examples/spark_digits.ipynb, run from its first cell to its last."""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest

from support.hvdrun import ROOT

from . import session as s

REASON = s.why_not()


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.timeout(900)
@pytest.mark.nightly
def test_the_example(tmp_path: pathlib.Path) -> None:
    """Every cell runs; curves are drawn; the ranks' lines are below their cell."""
    out = tmp_path / "out.ipynb"
    argv = [str(s.python()), str(s.HERE / "run_notebook.py"), str(ROOT / "examples/spark_digits.ipynb"), str(out)]
    env = {**s.environment(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1", "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    done = subprocess.run(argv, env=env, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr[-4000:]
    outputs = [output for cell in json.loads(out.read_text())["cells"] for output in cell.get("outputs", [])]
    text = "".join("".join(output.get("text", "")) for output in outputs)
    assert "rank 0 of 2" in text and "rank 1 of 2" in text and "accuracy 0." in text, text
    assert any("image/png" in output.get("data", {}) for output in outputs)
