"""c10d's operations on whole tensors: the runtime writes into the caller's tensor, without a separate result and a copy.

Also over the fake GPU (fake_gpu.py), where tensors are treated as a GPU's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

import hvd.torch as hvd
from hvd import _native

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


started = []


def start() -> None:
    if not dist.is_initialized():
        started.append("here")
        name = hvd.broadcast_object(tempfile.mkdtemp() if RANK == 0 else None, 0)
        dist.init_process_group("hvd", init_method=f"file://{name}/store", rank=RANK, world_size=SIZE)


@contextmanager
def nothing_taken() -> Iterator[list[Any]]:
    """Asserts that the runtime made no memory meanwhile.  Yields the operations submitted with memory for their results."""
    taken, given = [], []
    take, submit, submit_many = _native.take, _native.submit, _native.submit_many

    def note(request: Any) -> None:
        given.append(request[3][0] if isinstance(request[3], tuple) else request[3])

    def counted_submit(request: Any) -> Any:
        note(request)
        return submit(request)

    def counted_submit_many(requests: Any, together: bool) -> Any:
        for request in requests:
            note(request)
        return submit_many(requests, together)

    _native.take = lambda *args: taken.append(args) or take(*args)
    _native.submit, _native.submit_many = counted_submit, counted_submit_many
    try:
        yield given
    finally:
        _native.take, _native.submit, _native.submit_many = take, submit, submit_many
    assert not taken, f"{len(taken)} results were made by the runtime, and copied"


def check_results_lie_in_the_callers_tensor() -> None:
    start()
    mine = torch.arange(6.0).view(3, 2) + 10 * RANK
    for dtype in (torch.float32, torch.float64, torch.int32, torch.bfloat16):
        part = mine.to(dtype)
        whole = torch.zeros(3 * SIZE, 2, dtype=dtype)
        with nothing_taken() as given:
            dist.all_gather_into_tensor(whole, part)
        assert given == [whole.data_ptr() + r * part.nbytes for r in range(SIZE)]
        assert torch.equal(whole, torch.cat([part + 10 * (r - RANK) for r in range(SIZE)]))

        rows = torch.cat([part + 10 * (r - RANK) for r in range(SIZE)])
        summed = torch.zeros_like(part)
        with nothing_taken() as given:
            dist.reduce_scatter_tensor(summed, rows)
        assert given == [summed.data_ptr()]
        assert torch.equal(summed, part * SIZE)

        exchanged = torch.zeros(SIZE, 2, dtype=dtype)
        with nothing_taken() as given:
            dist.all_to_all_single(exchanged, part[:1].expand(SIZE, 2).contiguous())
        assert given == [exchanged.data_ptr()]
        assert torch.equal(exchanged, torch.cat([part[:1] + 10 * (r - RANK) for r in range(SIZE)]))


def check_unequal_splits() -> None:
    """Rank r sends s + 1 rows to rank s, so rank r receives r + 1 rows from each rank."""
    start()
    send = [s + 1 for s in range(SIZE)]
    sent = torch.full((sum(send), 3), float(RANK))
    out = torch.zeros(SIZE * (RANK + 1), 3)
    with nothing_taken() as given:
        dist.all_to_all_single(out, sent, [RANK + 1] * SIZE, send)
    assert given == [out.data_ptr()]
    assert torch.equal(out, torch.arange(float(SIZE)).repeat_interleave(RANK + 1)[:, None].expand(-1, 3))


def check_its_own_part_of_the_input() -> None:
    start()
    whole = torch.arange(4.0 * SIZE)
    part = whole.view(SIZE, 4)[RANK]
    with nothing_taken():
        dist.reduce_scatter_tensor(part, whole)
    assert torch.equal(part, torch.arange(4.0 * RANK, 4.0 * RANK + 4) * SIZE)


def check_what_does_not_lie_so_is_copied() -> None:
    """A result that is not contiguous, or overlaps the input, is still right."""
    start()
    mine = torch.arange(4.0) + RANK
    spread = torch.zeros(2 * 4)[::2]
    dist.reduce_scatter_tensor(spread, torch.cat([mine] * SIZE))
    assert torch.equal(spread, torch.arange(4.0) * SIZE + sum(range(SIZE)))
    over = torch.arange(float(SIZE))
    dist.all_to_all_single(over, over)
    assert torch.equal(over, torch.full((SIZE,), float(RANK)))
    if started:
        dist.destroy_process_group()
