"""A rank for test_lost_peer.py: an elastic state is saved while the last rank's part of the queued operations is missing."""

import os
import signal
import time

import missing_part
import torch

import hvd.torch as hvd

torch.cuda.is_initialized, torch.cuda.is_current_stream_capturing = lambda: True, lambda: False
torch.cuda.synchronize = lambda device=None: missing_part.driver.cuStreamSynchronize(None)
missing_part.start()
weight = torch.ones(100)
state = hvd.elastic.TorchState(weight=weight, step=0)
handle = missing_part.exchange(weight)
hvd.synchronize(handle)  # everything is queued: the script continues
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
signal.pause()  # stays: an ended rank would be noticed by the others; the test ends all
