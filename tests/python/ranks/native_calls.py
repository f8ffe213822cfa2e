"""The C module's conversion of Python's integers, and its release of the GIL.  One rank."""

import fcntl
import json
import os
import tempfile
import threading

import numpy as np
from refusals import raises

import hvd.numpy as hvd
from hvd import _native
from hvd._runtime import requests as _requests

LARGE = (2**32, -(2**32), 2**63, 2**70)  # truncated, the first two would be rank 0, and process set 0


def check_ranks_of_the_world():
    for number in LARGE:
        raises(ValueError, lambda: hvd.init(comm=[number]), str(number))  # noqa: B023
    for what in (0.5, "0", True, None):
        raises(ValueError, lambda: hvd.init(comm=[what]), f"comm [{what!r}]: {what!r} is not a rank")  # noqa: B023
    hvd.init(comm=[np.int64(0)])
    assert hvd.size() == 1


def check_process_sets():
    for number in LARGE:
        raises(ValueError, lambda: hvd.add_process_set([number]), str(number))  # noqa: B023
        raises(ValueError, lambda: _native.set_remove(number), str(number))  # noqa: B023
        removed = hvd.ProcessSet([0])
        removed.process_set_id = number
        raises(ValueError, lambda: hvd.remove_process_set(removed), str(number))  # noqa: B023
        raises(ValueError, lambda: hvd.allreduce(np.ones(2), process_set=removed), str(number))  # noqa: B023
    raises(ValueError, lambda: _native.set_add(range(2**32)), "there are no 4294967296 ranks")
    raises(TypeError, lambda: hvd.remove_process_set(2**32), "process_set is 4294967296")
    raises(TypeError, lambda: _native.set_remove("0"), "process_set_id is '0'")


def check_arguments_of_operations():
    for number in LARGE:
        raises(ValueError, lambda: hvd.broadcast(np.ones(2), number), f"root_rank is {number}")  # noqa: B023
    raises(TypeError, lambda: hvd.broadcast(np.ones(2), "0"), "root_rank is '0'")
    for number in (2**32, 2**70):
        raises(ValueError, lambda: hvd.alltoall(np.ones(2), splits=[number]), "splits")  # noqa: B023
    good = _requests.Request(_requests.Operation(_native.ALLREDUCE, 0), None, (0, 0, (0,), -1))
    for wrong in (
        good._replace(view=(0, 2**32, (0,), -1)),
        good._replace(view=(0, 0, (2**70,), -1)),
        good._replace(view=(0, 0, (0,), 2**32)),
        good._replace(view=(0, 0, (0,), (2**32, 0))),
        good._replace(operation=good.operation._replace(kind=2**32)),
        good._replace(operation=good.operation._replace(reduce=2**32)),
    ):
        raises(ValueError, lambda: _native.submit(wrong), "bits")  # noqa: B023
    raises(ValueError, lambda: _native.poll(2**70), "handle is")
    raises(ValueError, lambda: _native.finish_many([2**70]), "handle is")
    raises(ValueError, lambda: _native.part_begin(2**32), "part is")


def check_a_timeline_lets_other_threads_run():
    """A FIFO's reader is a thread of this process: begin waits for it, and end waits until it has read enough."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.json")
        os.mkfifo(path)
        stops, parts = threading.Event(), []

        def read():
            with open(path, "rb", buffering=0) as fifo:
                fcntl.fcntl(fifo, fcntl.F_SETPIPE_SZ, 4096)
                stops.wait(60)
                parts.append(fifo.readall())

        reader = threading.Thread(target=read, daemon=True)
        timer = threading.Timer(0.2, reader.start)
        timer.start()
        hvd.start_timeline(path)
        for _ in range(100):
            hvd.allreduce(np.ones(2))
        threading.Timer(0.2, stops.set).start()
        hvd.stop_timeline()
        reader.join(60)
        assert json.loads(parts[0])


def check_a_timeline_begins_once():
    """A second begin, under its own name or another, changes no file."""
    with tempfile.TemporaryDirectory() as folder:
        path, other = os.path.join(folder, "t.json"), os.path.join(folder, "other.json")
        hvd.start_timeline(path)
        hvd.allreduce(np.ones(2), name="first")
        hvd.start_timeline(path)
        hvd.start_timeline(other)
        hvd.stop_timeline()
        with open(path) as file:
            names = [event["name"] for event in json.load(file)]
        assert "hvd_file" in names and "ALLREDUCE" in names, names
        assert not os.path.exists(other)
