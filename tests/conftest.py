"""Settings of all suites.  Every suite can use the fixtures two_hosts and three_hosts (tests/netns)."""

import os
import pathlib
import signal

ROOT = pathlib.Path(__file__).resolve().parents[1]

# A shell starts background programs with SIGINT ignored, and nohup starts them with SIGHUP ignored.  Programs of a test
# would inherit this, and then ignore the signals that the test sends.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.environ.setdefault("HVD_SHARE_GPUS", "1")  # tests start as many ranks as they like, also where there is one GPU

# `.venv/bin/pytest tests/SUITE` uses the environment of scripts/setup, and its build unless the folder build has another one.
os.environ["PATH"] = f"{ROOT}/.venv/bin:{os.environ.get('PATH', '')}"
if not (ROOT / "build/build.ninja").exists():
    os.environ.setdefault("HVD_BUILD_DIR", str(ROOT / "build/wheel"))
for _name, _path in {
    "HVD_TEST_OPENMPI5": "openmpi5/bin/mpirun",  # the other Open MPI, beside the one in PATH
    "HVD_TEST_PMIX3": "pmix3/bin/mpirun",  # an old Open MPI 4.1, with PMIx 3.2 inside
    "HVD_TEST_TENSORFLOW": "tensorflow/bin/python",
    "HVD_TEST_MXNET": "classic/bin/python",
    "HVD_TEST_PETASTORM": "classic/bin/python",
    "HVD_TEST_SPARK": "spark/bin/python",
    "HVD_TEST_RAY": "ray/bin/python",
    "HVD_TEST_TORCH_USERS": "users/bin/python",
    "HVD_TEST_MCP": "mcp/bin/python",
}.items():
    os.environ.setdefault(_name, str(ROOT / ".cache" / _path))

pytest_plugins = ["netns.fixtures", "support.records"]
