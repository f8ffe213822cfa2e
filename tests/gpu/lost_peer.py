"""A rank for test_lost_peer.py: the last rank dies before its part of the operations queued on the GPUs has arrived."""

import os
import signal
import time

import missing_part
import torch

import hvd.torch as hvd

missing_part.start()
handle = missing_part.exchange(torch.ones(100))
time.sleep(1)
started = time.monotonic()
try:
    assert not hvd.poll(handle)
    while not hvd.poll(handle):
        time.sleep(0.01)
    hvd.synchronize(handle)
    text = "no error"
except hvd.HorovodInternalError as error:
    text = str(error)
again = "no error"
try:
    hvd.allreduce(torch.ones(1), name="after")
except hvd.HorovodInternalError as error:
    again = str(error)
os.write(1, f"SURVIVOR {hvd.rank()} {time.monotonic() - started:.2f} {text} | {again}\n".encode())
signal.pause()  # stays: an ended rank would be noticed by the others; the test ends all
