"""Each public name of Horovod exists with Horovod's parameters, or answers.txt says how it differs or why it is refused."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from python.harness import environment, has, mxnet_interpreter, python, tensorflow
from python.horovod import horovod_answers

FOLDER = Path(horovod_answers.__file__).parent
ROOT = FOLDER.parents[2]
SPARK, RAY = os.environ.get("HVD_TEST_SPARK", ""), os.environ.get("HVD_TEST_RAY", "")
INTERPRETERS = {
    "torch": python,
    "tensorflow": tensorflow,
    "mxnet": mxnet_interpreter,
    "pyspark": lambda: SPARK,
    "ray": lambda: RAY,
}


@cache
def problems(interpreter: str) -> dict[str, list[str]]:
    """compare.py's problems in the modules that this interpreter can import."""
    command = [interpreter, str(FOLDER / "compare.py")]
    done = subprocess.run(command, env=environment(TF_CPP_MIN_LOG_LEVEL="2"), timeout=110, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("framework", INTERPRETERS)
def test_names(framework: str) -> None:
    interpreter = INTERPRETERS[framework]()
    if not Path(interpreter).exists() or not has(framework, interpreter=interpreter):
        pytest.skip(f"{interpreter} has no {framework}")
    found = problems(interpreter)
    name = {"pyspark": "horovod.spark.torch"}.get(framework, f"horovod.{framework}")
    assert name in found, "its modules cannot be imported"
    assert {module: wrong for module, wrong in found.items() if wrong} == {}


def test_each_module_is_compared_or_refused() -> None:
    """No module is skipped because every interpreter lacks a dependency."""
    here = [make() for framework, make in INTERPRETERS.items() if has(framework, interpreter=make())]
    if len(here) < len(INTERPRETERS):
        pytest.skip("a framework is not installed")
    compared = {module for interpreter in here for module in problems(interpreter)}
    refused = {module for module in horovod_answers.modules() if horovod_answers.refusal(module)}
    assert set(horovod_answers.modules()) - compared - refused == set()
    assert compared & refused == set()


def test_each_rule_is_used() -> None:
    listed = [(module, name) for module, names in horovod_answers.modules().items() for name in names]
    used = {horovod_answers.rule_for(module, name) for module, name in listed}
    assert set(horovod_answers.rules()) - used == set()


def test_the_page_is_up_to_date(tmp_path: Path) -> None:
    page = subprocess.run([sys.executable, ROOT / "scripts/horovod-names", "page", "-"], capture_output=True, text=True)
    assert page.returncode == 0, page.stderr
    assert page.stdout == (ROOT / "docs/horovod-names.md").read_text(), "run scripts/horovod-names page"


def test_horovodrun() -> None:
    """Launch lines for Horovod call it: the wheel installs it for this module."""
    done = subprocess.run(
        [python(), "-m", "horovod.runner.launch", "--version"], env=environment(), timeout=60, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout[:6]) == (0, "hvdrun"), done.stderr
