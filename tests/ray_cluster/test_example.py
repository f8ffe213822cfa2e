"""The example, and the programs of docs/ray.md."""

from __future__ import annotations

import re
import subprocess

import pytest

from spark.session import Driver
from support.hvdrun import patience

from . import session as s

REASON = s.why_not()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.timeout(300)]


@pytest.mark.nightly
def test_example(cluster: Driver) -> None:
    command = [str(s.python()), str(s.ROOT / "examples/ray_digits.py"), cluster.good("address")]
    done = subprocess.run(command, env=s.environment(), capture_output=True, text=True, timeout=120 * patience())
    assert done.returncode == 0, done.stderr[-3000:]
    assert "{'epoch': 4, 'loss':" in done.stdout
    assert float(re.findall(r"loss ([0-9.]+) on 2 ranks", done.stdout)[0]) < 0.5


@pytest.mark.parametrize(("number", "said"), [(0, r"\[0, 10\]"), (1, r"\{'loss': [0-9.]+e-[0-9]+, 'ranks': 2\}")])
def test_page(cluster: Driver, number: int, said: str) -> None:
    page = (s.ROOT / "docs/ray.md").read_text()
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[number]
    answer = cluster.ask("page_program", limit=200, text=program)
    assert "value" in answer, answer
    assert re.search(said, answer["out"]), answer
