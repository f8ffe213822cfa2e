"""The results of a job: hvdrun's records, and the checking and loading of each rank's result."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pickle
import struct
import tempfile
import zlib
from collections.abc import Sequence
from typing import Any, BinaryIO, Callable

from hvd._runtime import environment as _environment
from hvd.exceptions import JobError

__all__ = ["Ranked", "elastic_results", "ranks_of_job", "results", "results_file", "true_code", "wanted_ranks"]

_VERDICT = 0xFFFFFFFF  # in place of a rank: the first cause of a failure
_VERDICT_DATA = 0xFFFFFFFC  # in place of a rank: the verdict of a job that failed, hvdrun-verdict(5)
_RANKS = 0xFFFFFFFB  # in place of a rank: the number of ranks; the lowest number that is no rank
_EXIT = 0xFFFFFFFD  # in place of a rank: hvdrun's exit code
_UNKNOWN = -1  # an unknown exit code
_RECORD = struct.Struct("<IIQ")  # rank, zero, bytes that follow
_END = struct.Struct("<QI")  # after a rank's pickle: its length and CRC-32
_PART = 1 << 20


def results_file(folder: str | None = None) -> BinaryIO:
    """Returns an unnamed file for hvdrun's records.  Its descriptor is above 2, because hvdrun uses 0 to 2 as its standard
    streams."""
    with tempfile.TemporaryFile(buffering=0, dir=folder) as file:
        return os.fdopen(fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, 3), "w+b", buffering=0)


class _Pieces(io.RawIOBase):
    """The bytes of one rank.  The file stores them in pieces, between the pieces of other ranks."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.places: list[tuple[int, int]] = []  # offset, bytes
        self.size = self.next = self.done = 0  # done: bytes of places[next] that were read

    def add(self, at: int, size: int) -> None:
        """The next piece."""
        self.places.append((at, size))
        self.size += size

    def readable(self) -> bool:
        return True

    def rewind(self) -> _Pieces:
        """Goes back to the beginning."""
        self.next = self.done = 0
        return self

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer) as given, given.cast("B") as view:
            read = 0
            while read < len(view) and self.next < len(self.places):
                at, size = self.places[self.next]
                self.file.seek(at + self.done)
                count = self.file.readinto(view[read : read + size - self.done])  # type: ignore[attr-defined]
                if not count:
                    break
                read, self.done = read + count, self.done + count
                if self.done == size:
                    self.next, self.done = self.next + 1, 0
            return read


def _records(file: BinaryIO) -> dict[int, _Pieces]:
    """hvdrun's records, by rank (launcher/control/result_stream.h)."""
    found: dict[int, _Pieces] = {}
    end, at = file.seek(0, io.SEEK_END), 0
    while at + _RECORD.size <= end:
        file.seek(at)
        rank, _, size = _RECORD.unpack(file.read(_RECORD.size))
        at += _RECORD.size
        if size and at + size <= end:  # the last one may be cut off
            found.setdefault(rank, _Pieces(file)).add(at, size)
        at += size
    return found


def _checked(rank: int, pieces: _Pieces) -> BinaryIO:
    """The rank's pickle, after a check of its length and checksum."""
    size, found, total = pieces.size - _END.size, 0, 0
    pieces.rewind()
    while total < size:
        part = pieces.read(min(_PART, size - total))
        if not part:
            break
        found, total = zlib.crc32(part, found), total + len(part)
    length, crc = _END.unpack(end) if size >= 0 and len(end := pieces.read(_END.size) or b"") == _END.size else (0, 0)
    if length != size or crc != found:
        raise RuntimeError(f"rank {rank}'s result did not come whole: a piece is missing or wrong ({pieces.size} bytes came)")
    return io.BufferedReader(pieces.rewind(), _PART)


def _loaded(rank: int, pieces: _Pieces) -> Any:
    whole = _checked(rank, pieces)
    try:
        return pickle.load(whole)
    except Exception as error:  # an object's own methods may raise anything
        raise RuntimeError(f"rank {rank}'s result cannot be unpickled here: {type(error).__name__}: {error}") from error


def ranks_of_job(file: BinaryIO) -> int:
    """The number of ranks of a job that has begun; 0: it has not."""
    record = _records(file).get(_RANKS)
    return int(record.rewind().readall()) if record is not None else 0


def wanted_ranks(ranks: int, only: int | None) -> Sequence[int]:
    """The ranks that must return a result.  Errors: ValueError for a rank that does not exist."""
    if only is None:
        return range(ranks)
    if only not in range(ranks):
        raise ValueError(f"only={only!r}: there are ranks 0 to {ranks - 1}")
    return [only]


def true_code(file: BinaryIO, code: int) -> int:
    """hvdrun's exit code from its own record, else the code from subprocess.

    subprocess returns 0 if the kernel, or another waitpid(), has reaped hvdrun, for example because this program ignores
    SIGCHLD. A 0 without hvdrun's record therefore counts as an unknown failure.
    """
    record = _records(file).get(_EXIT)
    if record is not None:
        return int(record.rewind().readall())
    return code or _UNKNOWN


def results(file: BinaryIO, wanted: Sequence[int], code: int, errors: str) -> list[Any]:
    """The results of the wanted ranks, from hvdrun's records; one at a time is read.

    code: hvdrun's exit code; errors: the end of its stderr.
    Errors: RuntimeError with the first rank's failure, or for an incomplete result; ValueError for an option that hvdrun
    refused.
    """
    __tracebackhide__ = True  # IPython leaves this frame out
    records = _records(file)
    if code == 0:
        missing = [rank for rank in wanted if rank not in records]
        if missing:
            raise RuntimeError(
                f"the job ended well, but the function of rank {missing[0]} returned no result: it ended its process, "
                "for example by sys.exit(0) or os._exit(0)"
            )
        return [_loaded(rank, records[rank]) for rank in wanted]
    raise _failure(records, code, errors)


class Ranked:
    """A function that returns its rank with its result.  In an elastic job hvdrun knows only processes, and their ranks
    change."""

    def __init__(self, func: Callable[..., Any], only: int | None = None) -> None:
        """only: other ranks return None in place of their result."""
        self.__wrapped__ = func
        self._only = only
        self.__name__ = getattr(func, "__name__", type(func).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[int, Any]:
        result = self.__wrapped__(*args, **kwargs)
        rank = _environment.integer("HOROVOD_RANK")
        return rank, result if self._only in (None, rank) else None


def elastic_results(file: BinaryIO, code: int, errors: str, only: int | None = None) -> list[Any]:
    """The results of a Ranked function, of the ranks at the end, in their order; only: as Ranked's.

    Errors: as results(); RuntimeError if no rank of that number is there at the end.
    """
    __tracebackhide__ = True  # IPython leaves this frame out
    records = _records(file)
    if code != 0:
        raise _failure(records, code, errors)
    ranked = [_loaded(number, pieces) for number, pieces in records.items() if number < _RANKS]
    found = dict(sorted(ranked, key=lambda pair: pair[0]))
    if only is None:
        return list(found.values())
    if only not in found:
        there = ", ".join(map(str, found)) or "none"
        raise RuntimeError(f"only={only}: no rank {only} has returned a result; the ranks at the end are: {there}")
    return [found[only]]


def _failure(records: dict[int, _Pieces], code: int, errors: str) -> Exception:
    data = json.loads(records[_VERDICT_DATA].rewind().readall()) if _VERDICT_DATA in records else None
    if _VERDICT in records:
        return JobError(_verdict_text(json.loads(records[_VERDICT].rewind().readall())), data)
    ended = "hvdrun ended before its job did" if code == _UNKNOWN else f"hvdrun ended with code {code}"
    last = errors.strip() or ended
    if code == 2:
        return ValueError(last)
    return JobError(last if last == ended else f"{last}\n{ended}", data)


def _verdict_text(verdict: dict[str, Any]) -> str:
    """Returns the text on the first failed rank, with its traceback."""
    code = verdict.get("code", 0)
    how = {
        "exited": f"ended with exit code {code}",
        "signalled": f"was killed by signal {code}",
        "oom": "was killed by the kernel for lack of memory",
        "stopped": "was stopped",
        "unstarted": "could not start",
        "vanished": "is gone with its host or its guard",
    }.get(verdict.get("cause", ""), "failed")
    lines = [f"rank {verdict.get('rank')} on {verdict.get('host')} {how}"]
    lines += [verdict[key] for key in ("text", "hint") if verdict.get(key)]
    if verdict.get("traceback"):
        lines.append(verdict["traceback"].rstrip())
    elif verdict.get("tail"):
        lines += ["its last output:", *verdict["tail"]]
    return "\n".join(lines)
