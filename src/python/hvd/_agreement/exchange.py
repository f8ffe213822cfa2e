"""Compares the hashes of a window of tensors between ranks, for each step.  No framework.

A small allgather carries a digest of the window while the next step runs.  Only if a digest differs, a second exchange tells
the window's pieces and their hashes.  No rank waits long for a rank that skips a step.
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

from hvd._agreement import findings
from hvd._agreement.host_windows import host_digest
from hvd._runtime import environment as _environment
from hvd._runtime import world as _world
from hvd._runtime.bytes_gather import BytesGather
from hvd.exceptions import DivergedAgainError, DivergedError
from hvd.process_sets import ProcessSet, number_of

__all__ = ["IN_HOST", "ON_BOTH", "ON_GPU", "Exchange", "Gather", "NamedPiece", "flags_of", "outvoted"]

_PATIENCE = 2.0  # seconds that a step waits for ranks that have made fewer steps; then training goes on
_LEAST_PATIENCE = 0.1  # after several such waits
_PATIENCE_FOR_DETAILS = 5.0
IN_HOST, ON_GPU, ON_BOTH = 1, 2, 3  # where hashes are made: these have different hashes

_exchanges: WeakSet[Exchange] = WeakSet()
_begun: Counter[int] = Counter()  # exchanges that have begun in this world, by number of their process set
_repairs = 0  # of this process


class Gather(Protocol):
    """An allgather of the digests that is under way."""

    def arrives(self, seconds: float) -> bool:
        """Waits for `seconds` at most.  True: result() does not wait any more."""

    def result(self) -> bytes:
        """The rows of all ranks that have not joined.  Waits."""


class NamedPiece(Protocol):
    """A part of a tensor.  begin and end: in elements."""

    @property
    def name(self) -> str: ...
    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...


class _Details(NamedTuple):
    """The facts that a rank sends to all ranks after a window differed, or a sum was not finite."""

    rank: int
    host: str
    pieces: list[tuple[str, int, int]]  # name, begin and end in elements
    hashes: list[int]
    repairs: int  # how often this process has been repaired
    not_finite: str  # the runtime's line about a NaN in the sums of that step


_ROW = struct.Struct("=qqq")  # digest, step, flags


class _Sent(NamedTuple):
    """A comparison that is under way."""

    gather: Gather
    expected: bytes  # the rows if all ranks have what this rank has; empty: to be looked at
    step: int
    window: Sequence[NamedPiece]
    hashes: Callable[[], list[int]]
    not_finite: str


class _Asked(NamedTuple):
    """The exchange of details that is under way.  All ranks begin it after the same comparison."""

    gather: BytesGather
    tells_sum: bool
    digests: list[int]  # by rank of the set; empty: no window is reported


def outvoted(values: Sequence[Any]) -> list[int]:
    """The places of values that differ from the majority's.  Without a majority: all places.  All equal: empty."""
    (value, votes), *others = Counter(values).most_common()
    if not others:
        return []
    return [at for at, one in enumerate(values) if 2 * votes <= len(values) or one != value]


def flags_of(where: int, not_finite: str) -> int:
    """A row's third number: where the hashes were made, and whether a sum was not finite."""
    return 4 * where + bool(not_finite)


class Exchange:
    """The comparisons of one model, step by step.  A subclass chooses the windows and hashes them.

    In a step: _compares(), _begins(), _has_ended(), then one of the functions that send.
    """

    _has_common_names = True  # False: names of equal tensors may differ between ranks

    def __init__(self, process_set: ProcessSet) -> None:
        self._set = process_set
        self._mode = _environment.text("HVD_AGREEMENT")
        self._stops = self._mode in ("stop", "repair")
        self._steps = _environment.integer("HVD_AGREEMENT_STEPS")
        self.found = 0  # windows that differed
        self.not_finite = 0  # steps on sums with a NaN or an infinity
        self._forget()
        _exchanges.add(self)

    def check(self) -> None:
        """Waits for the last comparison and reports it.  Collective if there is anything to report.

        Errors, with --agreement stop: DivergedError; FloatingPointError after a step on a NaN or an infinity.  With repair:
        the same, except for the first difference of a rank.
        """
        self._has_ended(None)

    def finish(self) -> None:
        """Reports the last comparison, like check(), but waits as long as a step at most."""
        self._has_ended(self._patience)

    def close(self) -> None:
        """Ends the comparison.  All ranks must call it after the same step."""
        self.check()
        _exchanges.discard(self)

    def _overwrite(self, source: int) -> bool:
        """Gives all ranks the tensors of rank `source`.  Collective.  False, on all ranks: that is not possible."""
        return False

    def _forget(self) -> None:
        """Starts again, in a new world."""
        self._step = 0
        self._name = ""  # of the operations; "" before the first step in this world, or since a join
        self._mixed = False  # some ranks use a GPU, others none
        self._ranks = 0  # number of the ranks that are compared
        self._sent: _Sent | None = None
        self._asked: _Asked | None = None
        self._patience = _PATIENCE
        self._since = [0, 0]  # steps on sums that are not finite, and windows that differed: the same on all ranks

    def _joined(self) -> None:
        """All ranks of the set have joined (hvd.join): they may have made other numbers of steps, some of them none."""
        for pending in (self._sent, self._asked):
            if pending is not None:
                pending.gather.result()
        self._forget()

    def _compares(self) -> bool:
        """Returns whether this rank takes part in a comparison now."""
        return _world.is_active() and _world.size() > 1 and bool(self._set.included())

    def _begins(self, name: str = "") -> bool:
        """Gives the exchange the name of its operations: True in its first step in this world.

        Without a name, it has a number.  The first steps come in the same order on all ranks of a set.  Ranks outside of it,
        and copies of an optimizer on one rank, make exchanges of their own.
        """
        if self._name:
            return False
        group = number_of(self._set) or 0
        self._name = f"hvd.agreement.{name or _begun[group]}"
        _begun[group] += not name
        self._ranks = len(self._set.ranks or ())
        return True

    def _send_hashes(self, window: Sequence[NamedPiece], hashes: list[int], not_finite: str = "") -> None:
        """Sends the hashes of the window's pieces, made in host memory."""
        row = _ROW.pack(host_digest(hashes), self._step, flags_of(IN_HOST, not_finite))
        expected = b"" if not_finite else row * self._ranks
        gather = BytesGather(self._name, row, self._set)
        self._sent = _Sent(gather, expected, self._step, window, lambda: hashes, not_finite)

    def _send_by(self, gather: Gather, window: Sequence[NamedPiece], hashes: Callable[[], list[int]], not_finite: str) -> None:
        """Like _send_hashes(), for hashes on a GPU. gather: carries int64 [3] of each rank: digest, step, flags."""
        self._sent = _Sent(gather, b"", self._step, window, hashes, not_finite)

    def _has_ended(self, patience: float | None) -> bool:
        """Ends the exchange under way, and reports its result.  Returns False if other ranks have not sent theirs within
        `patience` seconds.

        patience None: waits without a limit.  A rank that skips a step takes part in its next step.  The other ranks must not
        wait for it without a limit, because it may wait for their next gradients.
        """
        if self._sent is not None:
            if patience is not None and not self._sent.gather.arrives(patience):
                self._patience = max(_LEAST_PATIENCE, self._patience / 2)
                return False
            sent, self._sent = self._sent, None
            rows = sent.gather.result()
            if rows != sent.expected or not rows:
                self._look(sent, list(_ROW.iter_unpack(rows)))
        if self._asked is not None:
            # After this exchange, all ranks are in the same step again.
            if patience is not None and not self._asked.gather.arrives(_PATIENCE_FOR_DETAILS):
                return False
            asked, self._asked = self._asked, None
            self._report(asked)
        return True

    def _look(self, sent: _Sent, rows: list[tuple[int, int, int]]) -> None:
        """Asks for details if a window differs, or a sum was not finite.  rows: of all ranks that have not joined."""
        self._step = max(row[1] for row in rows)  # a rank that had joined goes on with the others' windows
        if len(rows) != len(self._set.ranks or ()) or any(row[1] != sent.step for row in rows):
            return  # a rank has joined (hvd.join), or has made another number of steps
        tells_sum, differing = False, []
        if any(row[2] & 1 for row in rows):
            self.not_finite += 1
            tells_sum = self._is_worth_telling(0)
        digests = [row[0] for row in rows]
        if outvoted(digests) and outvoted([row[2] & ~1 for row in rows]):
            if not self._mixed:
                text = "parameters are on a GPU on some ranks, and in host memory on others: they are not compared"
                self._print(text, self._set.ranks or [])
            self._mixed = True
        elif outvoted(digests):
            self.found += 1
            differing = digests if self._is_worth_telling(1) else []
        if tells_sum or differing:
            places = [(piece.name, piece.begin, piece.end) for piece in sent.window]
            mine = _Details(_world.rank(), socket.gethostname(), places, sent.hashes(), _repairs, sent.not_finite)
            gather = BytesGather(f"{self._name}.details", pickle.dumps(mine), self._set)
            self._asked = _Asked(gather, tells_sum, differing)

    def _is_worth_telling(self, what: int) -> bool:
        """A line for the first, second, fourth, eighth … time."""
        self._since[what] += 1
        return self._stops or not self._since[what] & (self._since[what] - 1)

    def _report(self, asked: _Asked) -> None:
        data = io.BytesIO(asked.gather.result())
        details: list[_Details] = []
        while data.tell() < len(data.getbuffer()):
            details.append(pickle.load(data))
        if asked.tells_sum and any(one.not_finite for one in details):
            self._tell_not_finite(details)
        if not asked.digests:
            return
        bad, text = self._describe(details, asked.digests)
        more = f"; {self.found} windows have differed so far" if self.found > 1 else ""
        self._print(text + more, [one.rank for one in details], "parameter_differs", bad)
        if self._mode == "repair" and len(bad) < len(asked.digests) == len(details):
            self._repair(bad, details, text)
        elif self._stops:
            raise DivergedError(text)

    def _repair(self, bad: list[int], details: list[_Details], text: str) -> None:
        """Gives the ranks `bad` the tensors of another rank.

        Errors: a rank that was repaired before raises DivergedAgainError, and the others DivergedError.  DivergedError if the
        tensors cannot be overwritten.
        """
        global _repairs
        again = [one.rank for one in details if one.rank in bad and one.repairs]
        if again:
            if _world.rank() in again:
                raise DivergedAgainError(f"{text}, and this rank was repaired before")
            raise DivergedError(text)
        source = next(one.rank for one in details if one.rank not in bad)
        if not self._overwrite(source):
            raise DivergedError(text)
        _repairs += _world.rank() in bad
        listed = ", ".join(map(str, bad))
        self._print(
            f"rank {listed} has got the parameters and the optimizer's state of rank {source}",
            self._set.ranks or [],
            "repaired",
            bad,
        )

    def _print(self, text: str, ranks: Sequence[int], kind: str = "", found: Sequence[int] = ()) -> None:
        """Prints the line, on the first of `ranks` only. kind, found: reported to the verdict and the timeline, with the ranks
        that the line is about."""
        if ranks[0] == _world.rank():
            print(f"hvd: agreement: {text}", file=sys.stderr, flush=True)
            findings.tell(kind, text, self._step, found)

    def _tell_not_finite(self, details: list[_Details]) -> None:
        """Prints the line of the first rank that has one."""
        text = next(one.not_finite for one in details if one.not_finite)
        more = f"; in {self.not_finite} steps so far" if self.not_finite > 1 else ""
        self._print(text + more, [one.rank for one in details], "not_finite")
        if self._stops:
            raise FloatingPointError(text)

    def _describe(self, details: list[_Details], digests: list[int]) -> tuple[list[int], str]:
        """The ranks that differ, and one line.

        details: of the ranks that have not joined since.  digests: of the window, of all ranks of the set.
        """
        ranks = self._set.ranks or []
        bad = [ranks[place] for place in outvoted(digests)]
        places = [one.pieces for one in details]
        layouts = [[piece if self._has_common_names else piece[1:] for piece in one] for one in places]
        what = "the list of tensors" if outvoted([str(one) for one in layouts]) else "a window of the parameters"
        for at, (name, begin, end) in enumerate(places[0]) if what != "the list of tensors" else ():
            values = [one.hashes[at] for one in details]
            if outvoted(values):
                what = f"{name}, elements {begin}-{end},"
                if len(details) == len(ranks):
                    bad = [ranks[place] for place in outvoted(values)]
                break
        hosts = {one.rank: f" ({one.host})" for one in details}
        named = ", ".join(f"{rank}{hosts.get(rank, '')}" for rank in bad)
        if len(bad) < len(ranks):
            return bad, f"{what} is not on rank {named} what it is on the others"
        return bad, f"{what} differs between ranks {named}, none of which has a majority"


def _world_left() -> None:
    _begun.clear()
    for one in list(_exchanges):
        one._forget()


def _all_joined(group: int) -> None:
    _begun.pop(group, None)
    for one in list(_exchanges):
        if number_of(one._set) == group:
            one._joined()


_world.when_left.append(_world_left)
_world.when_joined.append(_all_joined)
