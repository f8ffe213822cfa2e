"""Runs examples/spark_digits.ipynb from its first cell to its last."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess

import pytest

from support.hvdrun import ROOT

from . import session as s

REASON = s.why_not()


CELL = """from sparkdl import HorovodRunner

def train(layer):
    table = {}
    return table[layer]  # a line of the cell

HorovodRunner(np=-2).run(train, layer="no such layer")
"""


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.nightly
def test_an_error_in_a_cell(tmp_path: pathlib.Path) -> None:
    """Shown once, with the line of the cell that raised it in a rank, and only the last of our own frames."""
    cell = {"cell_type": "code", "source": CELL, "metadata": {}, "outputs": [], "execution_count": None, "id": "one"}
    made, out = tmp_path / "in.ipynb", tmp_path / "out.ipynb"
    made.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}))
    argv = [str(s.python()), str(s.HERE / "run_notebook.py"), str(made), str(out)]
    env = {**s.environment(tmp_path), "CELL_ERRORS": "1"}
    done = subprocess.run(argv, env=env, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-4000:]
    outputs = json.loads(out.read_text())["cells"][0]["outputs"]
    error = next(output for output in outputs if output["output_type"] == "error")
    assert "table[layer]  # a line of the cell" in error["evalue"] and "KeyError: 'no such layer'" in error["evalue"], error
    shown = re.sub("\\x1b\\[[0-9;]*m", "", "\n".join(error["traceback"]))
    assert shown.count("Traceback (most recent call last)") == 2, shown  # the cell's, and the rank's in its message
    assert "_run.py" not in shown and "_runner.py" not in shown, shown
    text = "".join("".join(output.get("text", "")) for output in outputs)
    assert "Traceback" not in text and "KeyError: 'no such layer'" in text, text


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
