"""torch's own tests of its process groups, from the installed torch, over the backend "hvd": torchs_own.py NAME…

The tests are torch's tests for gloo. A request for the backend "gloo" gets "hvd". The ranks are hvdrun's, not torch's own
processes. Each rank prints "RESULT name OK", "… SKIP why" or "… FAIL why"; a test that fails ends the rank.
"""

import faulthandler
import functools
import inspect
import os
import sys
import tempfile
import traceback
import unittest
from datetime import timedelta

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

import hvd.torch as hvd

SECONDS = 100.0  # of one test


def for_hvd(function):
    """The function, with "hvd" wherever a test asks for gloo."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args, **options):
        bound = signature.bind_partial(*args, **options)
        if bound.arguments.get("backend") == "gloo":
            bound.arguments["backend"] = "hvd"
        return function(*bound.args, **bound.kwargs)

    return call


def from_rank_0(make):
    return hvd.broadcast_object(make() if hvd.rank() == 0 else None)


def main():
    hvd.init()
    folder = from_rank_0(tempfile.mkdtemp)
    for name in ("barrier", "test_dir", "init_dir"):
        os.makedirs(f"{folder}/{name}", exist_ok=True)
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(hvd.size()), TEMP_DIR=folder, INIT_METHOD="file://none")
    for module in (c10d, dist):
        for name in ("init_process_group", "new_group", "new_subgroups", "new_subgroups_by_enumeration"):
            setattr(module, name, for_hvd(getattr(module, name)))

    from torch.testing._internal import common_distributed, common_utils
    from torch.testing._internal.distributed import distributed_test

    class Own(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            """torch's would make processes."""

        def tearDown(self):
            """torch's would wait for processes."""

    skips = {skip.exit_code: skip.message for skip in common_distributed.TEST_SKIPS.values()}
    for name in sys.argv[1:]:
        if hvd.rank() == 0:
            print("BEGIN", name, flush=True)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        path = from_rank_0(tempfile.mktemp)
        case = Own(name)
        case.rank, case.file_name = hvd.rank(), path
        seconds = min(60, distributed_test.CUSTOM_PG_TIMEOUT.get(name, 60))
        dist.init_process_group(
            "gloo", init_method=f"file://{path}", rank=hvd.rank(), world_size=hvd.size(), timeout=timedelta(seconds=seconds)
        )
        common_utils.set_rng_seed()
        said = "OK"
        try:
            case._barrier()
            getattr(case, name)()
            case._barrier()
        except unittest.SkipTest as why:
            said = f"SKIP {why}"
        except SystemExit as why:
            said = f"SKIP {skips.get(why.code, why.code)}"
        except BaseException as error:
            traceback.print_exc()
            said = f"FAIL {type(error).__name__}: {error}"
        print("RESULT", name, said.splitlines()[0], flush=True)
        if said.startswith("FAIL"):
            os._exit(1)
        if dist.is_initialized():
            dist.destroy_process_group()
        faulthandler.cancel_dump_traceback_later()


main()
