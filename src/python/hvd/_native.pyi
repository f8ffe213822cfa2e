"""Types of the C module, for mypy and for readers."""

from collections.abc import Callable, Sequence
from typing import Any

# -1 for host memory, or a GPU and the stream that the tensor comes from
Device = int | tuple[int, int]
# kind, dtype, reduce, name, shape, root, set, device, prescale, postscale, address in, address out
Request = tuple[int, int, int, str | None, tuple[int, ...], int, int, Device, float, float, int, int]
# the same, and an alltoall's splits
SplitRequest = tuple[
    int, int, int, str | None, tuple[int, ...], int, int, Device, float, float, int, int, tuple[int, ...] | None
]

GROUP: int

def init(ranks: Sequence[int] | None, /) -> None: ...
def shutdown() -> None: ...
def is_initialized() -> bool: ...
def world() -> tuple[int, int, int, int, int, int, int, int]: ...
def submit(
    kind: int,
    dtype: int,
    reduce: int,
    name: str | None,
    shape: tuple[int, ...],
    root: int,
    set: int,
    device: Device,
    prescale: float,
    postscale: float,
    address_in: int,
    address_out: int,
    /,
) -> int: ...
def submit_many(requests: list[Request] | list[SplitRequest], flags: int, /) -> list[int]: ...
def run(
    kind: int,
    dtype: int,
    reduce: int,
    name: str | None,
    shape: tuple[int, ...],
    root: int,
    set: int,
    device: Device,
    prescale: float,
    postscale: float,
    address_in: int,
    address_out: int,
    owner: object,
    /,
) -> None: ...
def poll(handle: int, /) -> bool: ...
def wait(handle: int, /) -> None: ...
def finish(handle: int, /) -> None: ...
def finish_many(handles: list[int], /) -> None: ...
def take(handle: int, bytes_per_element: int, gpu: int = -1, /) -> tuple[Any, tuple[int, ...]]: ...
def take_splits(handle: int, ranks: int, /) -> tuple[int, ...]: ...
def alloc(bytes: int, /) -> Any: ...
def release(handle: int, /) -> None: ...
def leak(obj: object, /) -> None: ...
def gather_bytes(name: str | None, data: bytes, set: int, /) -> bytes: ...
def join(set: int, /) -> int: ...
def set_add(ranks: Sequence[int], /) -> int: ...
def set_remove(set: int, /) -> None: ...
def timeline_start(path: str, mark_cycles: bool, /) -> None: ...
def timeline_stop() -> None: ...
def built(what: str, /) -> int: ...
def use_memory(framework: str, /) -> bool: ...
def version() -> str: ...

class Lane:
    """allreduce_async_ and synchronize of plain tensors in host memory; other calls go to the two methods given."""

    def __new__(
        cls,
        pending: dict[int, Any],
        codes: dict[Any, int],
        streams: set[tuple[int, int]],
        allreduce_async_: Callable[..., int],
        synchronize: Callable[..., Any],
        found_by: Callable[[], Lane],
        /,
    ) -> Lane: ...
    def allreduce_async_(
        self,
        tensor: Any,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: Any = ...,
    ) -> int: ...
    def synchronize(self, handle: Any) -> Any: ...
