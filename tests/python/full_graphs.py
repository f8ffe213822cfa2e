"""For the files torch_full_graph*.py: calls of a function with and without torch.compile.  CHECK_COMPILER: its backend."""

import faulthandler
import os

import torch

import hvd.torch as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
BACKEND = os.environ.get("CHECK_COMPILER", "aot_eager")


def compiled(function):
    """The function as one graph."""
    torch._dynamo.config.capture_dynamic_output_shape_ops = True  # rows of an allgather or alltoall
    if BACKEND == "inductor":
        faulthandler.dump_traceback_later(400, exit=True)  # the C++ compiler takes a minute on a busy machine
    return torch.compile(function, fullgraph=True, backend=BACKEND)


def same(function, *shapes, derive=True):
    """Calls it plainly and compiled, with equal numbers, and compares results and the tensors' gradients."""
    found = []
    for form in (function, compiled(function)):
        numbers = torch.Generator().manual_seed(RANK)
        tensors = [torch.randn(shape, generator=numbers).requires_grad_(derive) for shape in shapes]
        out = form(*tensors)
        outs = list(out) if isinstance(out, (tuple, list)) else [out]
        if derive:
            sum(o.pow(2).sum() for o in outs if o.requires_grad).backward()
        found.append([*outs, *(t.grad for t in tensors if derive)])
    torch.testing.assert_close(found[1], found[0])
