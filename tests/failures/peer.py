"""A rank for test_peers.py: peer.py HOW WHEN. The last rank ends, and each other rank must print the error that it got.

HOW: kill, exit0, exit1, shutdown.  WHEN: idle (the others wait for it), large (during a large allreduce) or polled (it ends
while no operation is pending; the others submit later, and only poll).
"""

import os
import signal
import sys
import threading
import time

import numpy as np

import hvd.numpy as hvd

how, when = sys.argv[1:3]
hvd.init()
rank, size = hvd.rank(), hvd.size()
small, large = np.ones(100, "float32"), np.ones(24 << 20, "float32")
for name in ("a", "a", "b"):
    hvd.allreduce(small, op=hvd.Sum, name=name)


def go() -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "shutdown":
        hvd.shutdown()
        time.sleep(20)  # still alive, but no peer any more
        os._exit(0)
    os._exit(0 if how == "exit0" else 1)


if rank == size - 1:
    if when == "large":
        # All ranks submit the operation, and this rank ends while it runs.
        threading.Timer(0.15, go).start()
        while True:
            try:
                hvd.allreduce_(large, op=hvd.Sum, name="large")
            except hvd.HorovodInternalError:
                time.sleep(20)
    time.sleep(0.3)
    go()

if when == "polled":
    time.sleep(2)  # all threads are asleep by then
started = time.monotonic()
try:
    if when == "polled":
        handle = hvd.allreduce_async(small, op=hvd.Sum, name="a")
        while not hvd.poll(handle):
            time.sleep(0.01)
        hvd.synchronize(handle)
    while True:
        hvd.allreduce_(large if when == "large" else small, op=hvd.Sum, name="large" if when == "large" else "a")
        started = time.monotonic()
except hvd.HorovodInternalError as error:
    text = str(error)
    os.write(1, f"SURVIVOR {rank} {time.monotonic() - started:.2f} {text}\n".encode())
os._exit(0)
