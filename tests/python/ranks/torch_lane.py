"""allreduce_async_ and synchronize in C do what the Python methods do, in every odd case too, and keep nothing."""

import gc
import inspect
import pickle
import sys

import torch

import horovod.torch as hvd
from hvd.torch.ops import collectives

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
SHORT = (hvd.allreduce_async_, hvd.synchronize)
PYTHON = (collectives.allreduce_async_, collectives.synchronize)


class Child(torch.Tensor):
    pass


class Broken:
    is_cpu = True

    def is_contiguous(self):
        raise RuntimeError("is broken")


def ones(*shape, dtype=torch.float32):
    return torch.ones(shape or (3, 2), dtype=dtype) * (RANK + 1)


# Makes (arguments, keywords) anew for each call; {} where there are none.
CALLS = {
    "plain": lambda: ((ones(),), {"name": "a"}),
    "unnamed": lambda: ((ones(),), {}),
    "all positions": lambda: ((ones(), None, "b", hvd.Sum, 0.5, 2.0, hvd.global_process_set), {}),
    "all keywords": lambda: (
        (),
        {
            "tensor": ones(),
            "average": None,
            "name": "b",
            "op": hvd.Max,
            "prescale_factor": 3.0,
            "postscale_factor": 1.0,
            "process_set": hvd.global_process_set,
        },
    ),
    "whole factors": lambda: ((ones(),), {"name": "b", "op": hvd.Sum, "prescale_factor": 2, "postscale_factor": 3}),
    "average": lambda: ((ones(), True), {"name": "c"}),
    "no average": lambda: ((ones(),), {"name": "c", "average": False}),
    "average and op": lambda: ((ones(), True), {"name": "c", "op": hvd.Sum}),
    "adasum": lambda: ((ones(),), {"name": "d", "op": hvd.Adasum}),
    "op 9": lambda: ((ones(),), {"name": "c", "op": 9}),
    "op -1": lambda: ((ones(),), {"name": "c", "op": -1}),
    "op is a bool": lambda: ((ones(),), {"name": "c", "op": True}),
    "op is huge": lambda: ((ones(),), {"name": "c", "op": 1 << 80}),
    "op is text": lambda: ((ones(),), {"name": "c", "op": "sum"}),
    "name is a number": lambda: ((ones(),), {"name": 3}),
    "name is half a character": lambda: ((ones(),), {"name": "\ud800"}),
    "a long name": lambda: ((ones(),), {"name": "n" * 1000}),
    "an empty name": lambda: ((ones(),), {"name": ""}),
    "factor is text": lambda: ((ones(),), {"name": "c", "prescale_factor": "2"}),
    "an unknown keyword": lambda: ((ones(),), {"nam": "c"}),
    "twice": lambda: ((ones(),), {"tensor": ones()}),
    "nothing": lambda: ((), {}),
    "too many": lambda: ((ones(), None, "c", 1, 1.0, 1.0, hvd.global_process_set, 1), {}),
    "set is None": lambda: ((ones(),), {"name": "c", "process_set": None}),
    "set is not there": lambda: ((ones(),), {"name": "c", "process_set": hvd.ProcessSet([0])}),
    "a scalar": lambda: ((ones()[0, 0].clone(),), {"name": "e"}),
    "no rows": lambda: ((ones(0, 4),), {"name": "f"}),
    "many dimensions": lambda: ((ones(*[1] * 20),), {"name": "g"}),
    "a view": lambda: ((ones(4, 4).t()[1:],), {"name": "h", "op": hvd.Sum}),
    "a part": lambda: ((ones(4, 4)[1:3],), {"name": "i", "op": hvd.Sum}),
    "a parameter": lambda: ((torch.nn.Parameter(ones()),), {"name": "j"}),
    "a child": lambda: ((ones().as_subclass(Child),), {"name": "k"}),
    "complex": lambda: ((ones(dtype=torch.complex64),), {"name": "l"}),
    "sparse": lambda: ((ones().to_sparse(),), {"name": "l"}),
    "meta": lambda: ((torch.ones(2, device="meta"),), {"name": "l"}),
    "a list": lambda: (([1.0],), {"name": "l"}),
    "broken": lambda: ((Broken(),), {"name": "l"}),
    **{f"{dtype}": lambda dtype=dtype: ((ones(dtype=dtype),), {"name": f"{dtype}"})
       for dtype in (torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.bool)},
}  # fmt: skip


def outcome(functions, make):
    """What the call comes to: what is returned and whether that is the tensor itself, or the error."""
    arguments, keywords = make()
    submit, synchronize = functions
    try:
        handle = submit(*arguments, **keywords)
        result = synchronize(handle)
    except Exception as error:
        return type(error), str(error).replace("Collectives.", "")
    assert synchronize(handle) is None
    given = arguments[0] if arguments else keywords["tensor"]
    return result is given, type(result), result.dtype, result.shape, result.tolist()


def check_every_call():
    for name, make in CALLS.items():
        for _ in range(2):  # first unknown, then known
            expected, got = outcome(PYTHON, make), outcome(SHORT, make)
            assert got == expected, f"{name}: {got}, but {expected} in Python"
    assert not collectives._pending


def check_handles():
    def what_comes(synchronize, *arguments, **keywords):
        try:
            return synchronize(*arguments, **keywords)
        except Exception as error:
            return type(error), str(error).replace("Collectives.", "").replace("Submissions.", "")

    for arguments in ((12345,), (True,), (None,), ("a",), (1 << 70,), (lambda: "called",), ([],), (), (1, 2)):
        assert what_comes(SHORT[1], *arguments) == what_comes(PYTHON[1], *arguments), arguments
    tensor = ones()
    assert SHORT[1](handle=SHORT[0](tensor, name="by name")) is tensor
    assert SHORT[1](PYTHON[0](tensor, name="by name")) is tensor
    assert PYTHON[1](SHORT[0](tensor, name="by name")) is tensor
    new = SHORT[1](hvd.allreduce_async(tensor, name="new"))
    assert new is not tensor and new.shape == tensor.shape
    several = SHORT[1](hvd.grouped_allreduce_async_([tensor, new], name="several"))
    assert several[0] is tensor and several[1] is new
    assert not collectives._pending


def check_failures_of_all_ranks():
    for synchronize in (SHORT[1], PYTHON[1]):
        handle = SHORT[0](torch.ones(RANK + 1), name="differ")
        try:
            synchronize(handle)
            raise AssertionError("no error")
        except hvd.HorovodInternalError as error:
            assert error.code == "mismatch" and "differ" in str(error)
        assert synchronize(handle) is None and not collectives._pending
    hvd.barrier()


def check_a_name_under_way():
    tensor = ones()
    handle = SHORT[0](tensor, name="busy") if RANK == 0 else 0
    for submit in (SHORT[0], PYTHON[0]) if RANK == 0 else ():
        try:
            submit(ones(), name="busy")
            raise AssertionError("no error")
        except ValueError as error:
            assert "under way" in str(error)
    assert len(collectives._pending) == (RANK == 0)
    hvd.barrier()
    handle = handle or SHORT[0](tensor, name="busy")
    assert SHORT[1](handle) is tensor


def check_process_sets():
    first = hvd.add_process_set([0])
    if RANK == 0:
        tensor = ones()
        assert SHORT[1](SHORT[0](tensor, op=hvd.Sum, name="alone", process_set=first)) is tensor
        assert tensor.tolist() == ones().tolist()
    hvd.remove_process_set(first)
    for submit in (SHORT[0], PYTHON[0]):
        try:
            submit(ones(), name="gone", process_set=first)
            raise AssertionError("no error")
        except ValueError as error:
            assert "does not exist" in str(error)


def check_what_is_said_of_them():
    for short, python in zip(SHORT, PYTHON):
        mine, theirs = inspect.signature(short), inspect.signature(python)
        assert [(p.name, p.kind) for p in mine.parameters.values()] == [(p.name, p.kind) for p in theirs.parameters.values()]
        for name, parameter in theirs.parameters.items():
            assert name == "process_set" or mine.parameters[name].default == parameter.default, name
        assert short.__doc__.split("\n")[0] == inspect.getdoc(python).split("\n")[0] and short.__name__ == python.__name__
        assert pickle.loads(pickle.dumps(short)) == short


def check_nothing_is_kept():
    tensor, name, group = ones(64), "kept " * 2, hvd.global_process_set
    other = ones(64).t()[::2]

    def once(steps):
        for _ in range(steps):
            assert SHORT[1](SHORT[0](tensor, name=name, op=hvd.Sum, process_set=group)) is tensor
            assert SHORT[1](handle=SHORT[0](tensor, None, name, None, 1, 1.0)) is tensor
            assert SHORT[1](SHORT[0](other, name=name)) is other
            for arguments, keywords in (((tensor,), {"op": 9}), ((Broken(),), {}), ((tensor,), {"nam": 1}), ((), {})):
                try:
                    SHORT[0](*arguments, **keywords)
                except (TypeError, ValueError):
                    continue
                raise AssertionError("no error")

    once(20)
    watched = (tensor, other, name, group, tensor.dtype, SHORT[0].__self__, collectives._pending, None, True, tensor.shape)
    gc.collect()
    before, blocks = [sys.getrefcount(thing) for thing in watched], sys.getallocatedblocks()
    once(300)
    gc.collect()
    after = [sys.getrefcount(thing) for thing in watched]
    assert all(abs(a - b) < 100 for a, b in zip(after, before)), (before, after)
    assert sys.getallocatedblocks() - blocks < 150, sys.getallocatedblocks() - blocks


def check_another_lane():
    """Made and thrown away: its parts are let go."""
    from hvd import _native

    pending, codes, streams = {}, {}, set()
    before = [sys.getrefcount(thing) for thing in (pending, codes, streams)]
    for _ in range(50):
        lane = _native.Lane(pending, codes, streams, PYTHON[0], PYTHON[1], None)
        tensor = ones()
        assert collectives.synchronize(lane.allreduce_async_(tensor, name="another")) is tensor  # it knows no dtype
        del lane
    assert [sys.getrefcount(thing) for thing in (pending, codes, streams)] == before
    for wrong in ((), (1, codes, streams, None, None, None), (pending, codes, streams)):
        try:
            _native.Lane(*wrong)
            raise AssertionError("no error")
        except TypeError:
            pass
