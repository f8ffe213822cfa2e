"""A rank for test_lost_peer.py: an elastic state is saved while the last rank's part of what is queued never comes."""

import os
import runpy
import signal
import time
from pathlib import Path

import torch

import hvd.torch as hvd

fake = runpy.run_path(str(Path(__file__).parents[1] / "python" / "ranks" / "fake_gpu.py"))
torch.cuda.is_initialized = lambda: True
torch.cuda.synchronize = lambda device=None: fake["driver"].cuStreamSynchronize(None)
signal.alarm(90)  # whatever happens to whoever is to end it
hvd.init()
for name in ("a", "a", "b"):
    hvd.allreduce(torch.ones(100), op=hvd.Sum, name=name)
weight = torch.ones(100)
state = hvd.elastic.TorchState(weight=weight, step=0)
if hvd.rank() == hvd.size() - 1:  # what makes its tensor takes long
    fake["driver"].fake_cuda_copy_later(weight.data_ptr(), weight.data_ptr(), 400, None, 900_000_000)
handle = hvd.allreduce_async_(weight, op=hvd.Sum, name="missing")
if hvd.rank() == hvd.size() - 1:
    hvd.poll(handle)
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
hvd.synchronize(handle)  # all is queued: the script goes on
state.step = 1
started = time.monotonic()
try:
    state.save()
    text = "no error"
except hvd.HorovodInternalError as error:
    text = str(error)
seconds = time.monotonic() - started
state.restore()
os.write(1, f"SURVIVOR {hvd.rank()} {seconds:.2f} {text} | step {state.step}, {float(state.weight.sum())}\n".encode())
signal.pause()  # an end of this one would be news for the others; the test ends all
