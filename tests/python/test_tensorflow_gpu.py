"""hvd.tensorflow's kernels for a GPU, on a simulated one: a pluggable device over the fake driver and the fake NCCL."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from failures.test_peers import SLACK, SOON, survivors
from python.harness import ROOT, checks_of, environment, mpirun, tensorflow
from python.test_torch_gpu import FAKE, FAKES

PLUGIN = FAKES / "tf_device.so"
GPU = {
    **FAKE,
    "HVD_TENSORFLOW_GPU": "1",
    "HVD_TENSORFLOW_DEVICE_TYPE": "FAKEGPU",
    "HVD_TEST_TF_DEVICE": str(PLUGIN),
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}


KNOWN = "2.21."  # the TensorFlow for which the device was made; another's interface may differ
LOAD = """import sys, tensorflow as tf
from tensorflow.python.framework import load_library
tf.load_op_library(sys.argv[1])
load_library.load_pluggable_device_library(sys.argv[1])
sys.exit("" if tf.config.list_physical_devices("FAKEGPU") else "it shows no device")"""


def tensorflow_there() -> tuple[Path, str]:
    """TensorFlow's folder, and its version."""
    where = "import importlib.util as u; s = u.find_spec('tensorflow'); print(s and s.submodule_search_locations[0])"
    home = Path(subprocess.run([tensorflow(), "-c", where], capture_output=True, text=True, timeout=60).stdout.strip())
    if not (home / "include/tensorflow/c/experimental/stream_executor/stream_executor.h").exists():
        pytest.skip(f"{tensorflow()} lacks TensorFlow, or TensorFlow its headers")
    named = (re.fullmatch(r"tensorflow(_cpu)?-(.*)\.dist-info", found.name) for found in home.parent.glob("tensorflow*"))
    return home, next((name[2] for name in named if name), "of unknown version")


@pytest.fixture(scope="module", autouse=True)
def plugin() -> None:
    """Compiles the plugin with the installed TensorFlow."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or ""
    if not compiler:
        pytest.skip("there is no C++ compiler for the fake device")
    home, version = tensorflow_there()
    made = PLUGIN.with_suffix(f".{os.getpid()}")
    libraries = [f"-L{home}", "-l:libtensorflow_framework.so.2", "-l:libtensorflow_cc.so.2", "-ldl"]
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", f"-I{home / 'include'}"]
    source = ROOT / "tests" / "gpu" / "fakes" / "tf_device.cc"
    compile_it = [*compiler.split(), *flags, "-o", str(made), str(source), *libraries]
    load_it = [tensorflow(), "-c", LOAD, str(made)]
    for command in (compile_it,) if version.startswith(KNOWN) else (compile_it, load_it):
        done = subprocess.run(command, env=environment(**GPU), capture_output=True, text=True, timeout=120)
        if done.returncode != 0 and version.startswith(KNOWN):
            pytest.fail(done.stderr, pytrace=False)
        if done.returncode != 0:
            why = next((line for line in done.stderr.splitlines() if "error" in line.lower()), done.stderr[-200:])
            pytest.skip(f"the fake device is for TensorFlow {KNOWN}*, not for this one, {version}: {why}")
    made.replace(PLUGIN)


test_two_ranks = pytest.mark.ci(checks_of("tensorflow_gpu.py", needs=("tensorflow",), interpreter=tensorflow(), **GPU))

# Work that TensorFlow itself places on a device: all operations, and a Keras model.
ALL = ("tensorflow_gpu.py", "keras_gpu.py", "tensorflow_operations.py")
test_all_operations = pytest.mark.nightly(
    checks_of(*ALL, needs=("tensorflow", "keras"), interpreter=tensorflow(), KERAS_BACKEND="tensorflow", **GPU)
)


def said_at_import(**env: str) -> str:
    code = "import hvd.tensorflow as h; print(sorted(h._library.ON_GPUS))"
    done = subprocess.run(
        [tensorflow(), "-c", code], env=environment(**{**GPU, **env}), capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("hvd.tensorflow: ")]
    return "".join(lines) + "|" + done.stdout.strip()


@pytest.mark.nightly
def test_a_driver_that_is_too_old_is_told_once() -> None:
    said = said_at_import(FAKE_CUDA_VERSION="12040")
    assert "a CUDA driver for 12.5 or later is needed, this one is for 12.4" in said
    assert said.endswith("copied to the host|[]")


@pytest.mark.nightly
@pytest.mark.timeout(100)
def test_survivors_hear_of_a_peer_that_dies(tmp_path: Path) -> None:
    if not shutil.which("mpirun"):
        pytest.skip("mpirun is not installed")
    rank = ROOT / "tests" / "gpu" / "tensorflow_lost_peer.py"
    keep = ["--enable-recovery", "--mca", "btl_vader_backing_directory", str(tmp_path)]
    given = ["env", *(f"{name}={value}" for name, value in GPU.items())]
    heard = survivors(["timeout", "-k", "5", "80", *given, *mpirun(2), *keep, tensorflow(), str(rank)], 2, 0)
    for number, (seconds, text) in heard.items():
        assert seconds < SOON + SLACK, f"rank {number} waited {seconds} s"
        assert "rank 1" in text
