"""The console of `hvdrun attach`: pdb over a connection, at the current line of the main thread.

The console ends with the connection; the rank then goes on.
"""

from __future__ import annotations

import contextlib
import pdb
import socket
import sys
import types

_open: Console | None = None


class _Stream:
    """Text lines over a socket.  A broken connection reads as end of file and discards written text."""

    def __init__(self, link: socket.socket) -> None:
        self.link, self.reader = link, link.makefile("r", encoding="utf-8", errors="replace", newline="\n")

    def readline(self) -> str:
        try:
            return self.reader.readline()
        except OSError:
            return ""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self.link.sendall(text.encode("utf-8", "replace"), socket.MSG_NOSIGNAL)
        return len(text)

    def flush(self) -> None:
        pass

    def is_alive(self) -> bool:
        """Returns whether more input can arrive."""
        try:
            return self.link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        self.reader.close()
        self.link.close()


class Console(pdb.Pdb):
    """pdb, except that quit and the end of input let the rank continue."""

    def __init__(self, stream: _Stream) -> None:
        super().__init__(stdin=stream, stdout=stream, nosigint=True, readrc=False)  # type: ignore[arg-type]
        self.use_rawinput, self.prompt = False, "(hvd) "
        self.stream, self.detached = stream, False

    def do_quit(self, arg: str) -> bool:
        """quit: ends the console; the rank continues."""
        self.detached = True
        self.clear_all_breaks()
        self.set_continue()
        return True

    do_q = do_exit = do_EOF = do_quit

    def do_run(self, arg: str) -> None:
        """Not available: hvdrun started this rank."""
        self.message("a rank cannot be started again from here")

    do_restart = do_run

    def do_interact(self, arg: str) -> None:
        """Not available: it would read the rank's own input."""
        self.message("there is no interact here; statements work at the prompt")

    def _runs_on(self) -> bool:
        """Returns whether pdb has no place to stop: no breakpoint, and no step in progress."""
        return self.detached or (self.stoplineno == -1 and not self.breaks)

    def interaction(self, frame, traceback) -> None:  # type: ignore[no-untyped-def]
        super().interaction(frame, traceback)
        if self._runs_on():
            _end()

    def begin(self, frame: types.FrameType) -> None:
        self.reset()
        outermost = frame
        while outermost.f_back is not None:
            outermost = outermost.f_back
        self.botframe = outermost
        self.interaction(frame, None)
        if self._runs_on():
            return
        at: types.FrameType | None = frame
        while at is not None:
            at.f_trace = self.trace_dispatch
            at = at.f_back
        sys.settrace(self.trace_dispatch)


def _end() -> None:
    global _open
    if _open is not None:
        _open.stream.close()
        _open = None


def _is_inside(frame: types.FrameType | None) -> bool:
    """Returns whether the thread is in a console, or is leaving one."""
    while frame is not None:
        if frame.f_globals is globals():
            return True
        frame = frame.f_back
    return False


def open_at(frame: types.FrameType, link: socket.socket) -> None:
    """Opens a console on a connection.  The first byte sent is + if it opens, or - if another console is open."""
    global _open
    if _is_inside(frame) or (_open is not None and _open.stream.is_alive()):
        with contextlib.suppress(OSError):
            link.sendall(b"-", socket.MSG_NOSIGNAL)
        return link.close()
    if _open is not None:  # killed between two breakpoints
        _open.clear_all_breaks()
        sys.settrace(None)
        _end()
    _open = Console(_Stream(link))
    _open.stream.write("+")
    _open.begin(frame)
