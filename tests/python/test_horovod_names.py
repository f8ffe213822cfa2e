"""Every name that scripts for Horovod import is there, with Horovod's parameters, their order and their defaults."""

import json
import subprocess
from functools import cache
from pathlib import Path

import pytest

from python import horovod_names
from python.harness import environment, has, python, tensorflow


@cache
def _problems(interpreter: str, modules: tuple[str, ...]) -> dict[str, list[str]]:
    command = [interpreter, str(Path(horovod_names.__file__)), *modules]
    done = subprocess.run(command, env=environment(TF_CPP_MIN_LOG_LEVEL="2"), timeout=110, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("module", [*horovod_names.PLAIN, *horovod_names.TORCH])
def test_torch_and_common(module):
    if not has("torch"):
        pytest.skip(f"{python()} has no torch")
    assert _problems(python(), (*horovod_names.PLAIN, *horovod_names.TORCH))[module] == []


@pytest.mark.parametrize("module", horovod_names.TENSORFLOW)
def test_tensorflow_and_keras(module):
    if not has("tensorflow", interpreter=tensorflow()):
        pytest.skip(f"{tensorflow()} has no TensorFlow")
    assert _problems(tensorflow(), tuple(horovod_names.TENSORFLOW))[module] == []


def test_horovodrun():
    """Launch lines for Horovod call it: the wheel installs it for this module."""
    done = subprocess.run(
        [python(), "-m", "horovod.runner.launch", "--version"], env=environment(), timeout=60, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout[:6]) == (0, "hvdrun"), done.stderr
