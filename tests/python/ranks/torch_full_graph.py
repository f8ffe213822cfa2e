"""torch.compile(fullgraph=True) around our operations: results and gradients equal those of plain calls."""

import torch
from full_graphs import RANK, SIZE, compiled, same

import hvd.torch as hvd


def check_a_reduction_and_its_gradient():
    same(lambda x: hvd.allreduce(x * 2, op=hvd.Sum, name="a", prescale_factor=0.5) + 1, (3, 2))


def check_unused_results_stay_and_keep_their_order():
    def lopsided(x):
        first = hvd.allreduce(x, op=hvd.Sum, name="first")
        hvd.allreduce(x * 2, op=hvd.Sum, name="second")
        third = hvd.broadcast(x, 0)
        return first if RANK else third

    assert compiled(lopsided)(torch.ones(2)).tolist() == [SIZE if RANK else 1] * 2


def check_an_asynchronous_operation_is_refused_in_a_full_graph():
    try:
        compiled(lambda x: hvd.synchronize(hvd.allreduce_async(x)))(torch.ones(2))
        raise AssertionError("it compiled")
    except torch._dynamo.exc.Unsupported as error:
        assert "blocking operations can be inside" in str(error), error


def check_rows_of_an_allgather():
    same(lambda x: hvd.allgather(x * 2) * 3, (2 + RANK, 2))
