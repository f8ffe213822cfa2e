"""An allgather of a few bytes that runs while the rank goes on.  No framework."""

from __future__ import annotations

from hvd import _native
from hvd._runtime import world as _world
from hvd._runtime.requests import HOST, U8, Operation, Request
from hvd._runtime.submission import hand_over
from hvd.process_sets import ProcessSet, number_of

_sent: dict[int, bytes] = {}  # by handle: the runtime reads them
_world.tables_of_handles.append(_sent)  # type: ignore[arg-type]


class BytesGather:
    """All ranks of the set make one with the same name."""

    def __init__(self, name: str, data: bytes, process_set: ProcessSet) -> None:
        operation = Operation(_native.ALLGATHER, number_of(process_set))
        self._handle = _native.submit(Request(operation, name, (data, U8, (len(data),), HOST)))
        _sent[self._handle] = data

    def arrives(self, seconds: float) -> bool:
        """Waits for `seconds` at most.  True: result() does not wait any more."""
        hand_over()
        return _native.wait_within(self._handle, seconds)

    def result(self) -> bytes:
        """The bytes of all ranks that have not joined, by rank.  Waits.  To be called once."""
        try:
            hand_over()
            _native.wait(self._handle)
        except Exception:
            del _sent[self._handle]
            _native.release(self._handle)
            raise
        del _sent[self._handle]
        return _native.take_bytes(self._handle)
