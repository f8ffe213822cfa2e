"""What every suite shares.  The fixtures two_hosts and three_hosts (tests/netns) are there for all."""

import os
import pathlib
import signal

ROOT = pathlib.Path(__file__).resolve().parents[1]

# A shell starts what it leaves in the background with SIGINT ignored, nohup all with SIGHUP; so would be whatever a test
# starts and sends them to.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.environ.setdefault("HVD_SHARE_GPUS", "1")  # tests start as many ranks as they like, also where there is one GPU

# What scripts/setup made, unless somebody says otherwise: so `.venv/bin/pytest tests/SUITE` works as it stands.
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
    "HVD_TEST_MCP": "mcp/bin/python",
}.items():
    os.environ.setdefault(_name, str(ROOT / ".cache" / _path))

pytest_plugins = ["netns.fixtures", "support.records"]
