"""Errors of every framework's operations for wrong arguments: the argument, its value and the valid ones.  At once, and on
each rank by itself."""

import inspect

REDUCING = ("allreduce", "allreduce_", "grouped_allreduce", "reducescatter", "grouped_reducescatter")
MOVING = ("allgather", "grouped_allgather", "alltoall", "broadcast", "broadcast_")
WRONG = [
    ("name", 5, (TypeError,), "name is 5"),
    ("name", "a\0b", (ValueError,), "NUL"),
    ("process_set", None, (TypeError,), "process_set is None"),
    ("process_set", [0], (TypeError,), "process_set is [0]"),
]
WRONG_REDUCTION = [
    ("op", 77, (ValueError, NotImplementedError), "op"),
    ("op", "Sum", (ValueError, NotImplementedError), "op"),
    ("prescale_factor", "2", (TypeError,), "prescale_factor is '2'"),
    ("postscale_factor", None, (TypeError,), "postscale_factor is None"),
]


def says(call, kinds, words, what):
    try:
        call()
    except Exception as error:
        assert isinstance(error, kinds), f"{what}: {type(error).__name__}: {error}"
        assert words in str(error), f"{what}: {error}"
        return
    raise AssertionError(f"{what}: nothing was said")


def refused_by(hvd, tensor, way=lambda function: function):
    """way: converts a function of a tensor, for example by compiling it."""
    for operation in (*REDUCING, *MOVING):
        function = getattr(hvd, operation, None)
        if function is None:
            continue
        many = operation.startswith("grouped") or (
            operation == "broadcast_" and "variables" in inspect.signature(function).parameters
        )
        more = {"root_rank": 0} if operation.startswith("broadcast") else {}
        for argument, value, kinds, words in WRONG + (WRONG_REDUCTION if operation in REDUCING else []):
            given = {**more, argument: value}
            call = way(lambda x: function([x] if many else x, **given))  # noqa: B023
            says(lambda: call(tensor), kinds, words, f"{operation}({argument}={value!r})")  # noqa: B023
    if hasattr(hvd, "reducescatter"):
        kinds = (ValueError, NotImplementedError)
        says(lambda: hvd.reducescatter(tensor, op=hvd.Min), kinds, "Min", "reducescatter(op=Min)")
    says(lambda: hvd.broadcast_object(1, 0, process_set=None), (TypeError,), "process_set is None", "broadcast_object")
    says(lambda: hvd.allgather_object(1, name=5), (TypeError,), "name is 5", "allgather_object")


def predivide_refused_by(make):
    """make(**arguments): anything with gradient_predivide_factor, op and process_set."""
    for factor in (0, -1.0, float("nan"), float("inf"), None, "2"):
        given = {"gradient_predivide_factor": factor}
        says(lambda: make(**given), (ValueError,), f"gradient_predivide_factor is {factor!r}", str(given))  # noqa: B023


def optimizer_refused_by(make):
    """The other arguments of optimizers, tapes and gradients."""
    predivide_refused_by(make)
    says(lambda: make(op=77), (ValueError,), "op is 77", "op=77")
    says(lambda: make(process_set=None), (TypeError,), "process_set is None", "process_set=None")
