"""A rank for test_torch_elastic.py: one rank ends with success during the others' training, and never returns."""

import sys

import torch

import horovod.torch as hvd
from horovod.torch.elastic import TorchState, run

hvd.init()
if hvd.rank() == 1:
    hvd.shutdown()
    sys.stdin.read()  # this process lives on, but not in the job's world
    sys.exit(0)


@run
def train(state):
    hvd.allreduce(torch.ones(3))


hvd.allreduce_async(torch.ones(1), name="the other one will have left")
state = TorchState(batch=0)
train(state)
