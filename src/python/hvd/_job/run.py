"""hvd.run: starts a job from Python.  This file passes a pickle to hvdrun and returns the results."""

from __future__ import annotations

import codecs
import inspect
import operator
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

from hvd._job.options import RUN_KEYWORDS
from hvd._job.payload import pickled_call
from hvd._job.results import Ranked, elastic_results, ranks_of_job, results, results_file, true_code, wanted_ranks
from hvd._runtime import environment as _environment

__all__ = ["run"]

# Time for hvdrun to end its job after Ctrl-C; then it is killed.
_END_SECONDS = 30.0
# Any of these makes a job elastic.
_ELASTIC = ("min_num_proc", "min_np", "max_num_proc", "max_np", "host_discovery_script")


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: tuple[int, int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | bool | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: str | Sequence[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
    *,
    state_dir: str | None = None,
    spares: int | None = None,
    only: int | None = None,
    shown: Callable[[], Callable[[str, bool], str]] | None = None,
) -> list[Any]:
    """Calls func(*args, **kwargs) on num_proc ranks and returns their results, in rank order.

    An elastic job (min_num_proc, max_num_proc, host_discovery_script) returns the results of the ranks at its end.  The
    ranks' output appears here while they run, in a script, a REPL and a notebook cell.

    num_proc: by default one rank for each slot of the hosts or the hostfile; without these, one rank.
    hosts: "h1:2,h2:2".  executable: the ranks' Python, this one by default.  only: the one rank that returns a result.
    shown(): makes a filter of a stream's output.  The other arguments are hvdrun's options of the same names.

    Errors: JobError, a RuntimeError, with the traceback of the rank that failed first, and the verdict as data.
    ValueError for an option that hvdrun refuses.  TypeError for a generator function, and for an object that cannot be pickled.
    FileNotFoundError without hvdrun.  RuntimeError if a function ended its process before it returned.  RuntimeError if an
    elastic job ends without the rank `only`.
    KeyboardInterrupt ends the job first.
    """
    given = {name: value for name, value in locals().items() if name in RUN_KEYWORDS}
    __tracebackhide__ = True  # IPython leaves this frame out
    if not callable(func):
        raise TypeError(f"hvd.run needs something to call, not a {type(func).__name__}")
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise TypeError(
            "hvd.run cannot call a generator function: its call alone runs nothing; give a function with a loop over it"
        )
    ranks = _count(num_proc, np)
    given["executable"] = executable or sys.executable
    is_elastic = any(given.get(name) is not None for name in _ELASTIC)
    by_slots = not is_elastic and num_proc is None and np is None and (hosts is not None or hostfile is not None)
    given["num_proc"] = None if by_slots else ranks
    if is_elastic:
        given["only"] = None  # hvdrun knows only the processes' first ranks
        ranks = max_num_proc or max_np or max(ranks, (only or 0) + 1)
    if not by_slots:
        wanted_ranks(ranks, only)  # an error comes before the job
    payload = pickled_call(Ranked(func, only) if is_elastic else func, tuple(args), dict(kwargs or {}))
    name = re.sub(r"\W+", "_", getattr(func, "__name__", type(func).__name__)).strip("_") or "payload"
    own, file = _payload_file(name + ".pkl", payload)
    with own as folder, results_file() as brought:
        command = [hvdrun_program(), *command_words(given)]
        command += ["--results", str(brought.fileno()), "--parent", str(os.getpid()), str(file)]

        def tick() -> None:
            # hvdrun writes a record after it has read its files.  The files are then removed, so that no disk holds the
            # function while it runs.
            if file.exists() and os.fstat(brought.fileno()).st_size:
                shutil.rmtree(folder, ignore_errors=True)

        code, errors = supervise(command, brought.fileno(), tick, shown)
        code = true_code(brought, code)
        if not is_elastic:
            ranks = ranks_of_job(brought) if by_slots else ranks
            return results(brought, () if code else wanted_ranks(ranks, only), code, errors)
        return elastic_results(brought, code, errors, only)


def _payload_file(name: str, payload: bytes) -> tuple[tempfile.TemporaryDirectory[str], Path]:
    """A private folder, and the payload's file in it.  The folder is in XDG_RUNTIME_DIR if there is room, else in TMPDIR."""
    runtime = _environment.whole.get("XDG_RUNTIME_DIR", "")
    for parent in [runtime, None] if os.path.isabs(runtime) else [None]:
        own = None
        try:
            own = tempfile.TemporaryDirectory(prefix="hvd-run-", dir=parent)
            write_private(Path(own.name, name), payload)
            return own, Path(own.name, name)
        except OSError:
            if own is not None:
                own.cleanup()
            if parent is None:
                raise
    raise AssertionError


def _count(num_proc: int | None, np: int | None) -> int:
    if num_proc is not None and np is not None and num_proc != np:
        raise ValueError(f"num_proc={num_proc} and np={np} are both given: np is the older name, leave it out")
    ranks = num_proc if num_proc is not None else np if np is not None else 1
    try:
        ranks = operator.index(ranks)
    except TypeError:
        raise ValueError(f"num_proc is {ranks!r}: it must be a whole number") from None
    if ranks < 1:
        raise ValueError(f"num_proc is {ranks!r}: it must be at least 1")
    return ranks


def command_words(given: dict[str, Any]) -> list[str]:
    """hvdrun's command-line words for run()'s keywords; None means that a keyword was not given."""
    words: dict[str, list[str]] = {}
    for keyword, (option, kind) in RUN_KEYWORDS.items():
        value = given.get(keyword)
        if value is None or option in words:
            continue
        if kind == "flag":
            words[option] = [option] if value else []
        elif kind == "pair":
            if len(value) != 2:
                raise ValueError(f"{keyword} is a pair of numbers, not {value!r}")
            words[option] = [option, *map(str, value)]
        else:
            shown = value if isinstance(value, (str, int, float)) else ",".join(value)
            words[option] = [f"{option}={shown}"]  # one word, since a value may begin with a dash
    return [word for words_of_option in words.values() for word in words_of_option]


def hvdrun_program() -> str:
    """hvdrun: HVD_RUN_PROGRAM, else of this installation, else on the PATH."""
    if _environment.given("HVD_RUN_PROGRAM"):
        return _environment.text("HVD_RUN_PROGRAM")
    folders = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts")), Path(__file__).parent]
    for folder in folders:
        if os.access(folder / "hvdrun", os.X_OK):
            return str(folder / "hvdrun")
    found = shutil.which("hvdrun")
    if found is None:
        raise FileNotFoundError(f"hvdrun is not in {', '.join(map(str, folders))} nor on the PATH (reinstall hvdrun)")
    return found


def write_private(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)


def ranks_environment() -> dict[str, str]:
    """Returns this process's environment plus its import folders, so that the ranks find the same modules."""
    own = {Path(path) for path in sysconfig.get_paths().values()}
    added = []
    for entry in sys.path:
        path = Path(entry or os.getcwd()).absolute()
        standard = any(path == base or base in path.parents for base in own)
        if path.is_dir() and not standard and "site-packages" not in path.parts and "dist-packages" not in path.parts:
            added.append(str(path))
    environment = dict(_environment.whole)
    inherited = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(added + inherited))
    return environment


def _show(target: Any, text: str) -> None:
    """Writes text to a stream of the user's program, which may lack some characters, or flush()."""
    try:
        target.write(text)
    except UnicodeEncodeError:
        encoding = getattr(target, "encoding", None) or "ascii"
        target.write(text.encode(encoding, "backslashreplace").decode(encoding))
    if hasattr(target, "flush"):
        target.flush()


class StreamEcho:
    """Copies one pipe to the current sys.stdout or sys.stderr."""

    def __init__(self, stream: Any, target: str, shown: Callable[[str, bool], str] | None = None) -> None:
        """shown(text, end): the part of the text that is copied."""
        self.stream = stream
        self.target = target
        self.shown = shown
        self.text = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.tail = ""

    def pump(self) -> bool:
        """Copies available text.  Returns False at the end."""
        data = os.read(self.stream.fileno(), 65536)
        text = self.text.decode(data, final=not data)
        self.tail = (self.tail + text)[-8192:]
        if self.shown is not None:
            text = self.shown(text, not data)
        if text:
            target = getattr(sys, self.target)
            if target is not None:
                _show(target, text)
        return bool(data)


def supervise(
    command: list[str],
    results_fd: int,
    tick: Callable[[], None],
    shown: Callable[[], Callable[[str, bool], str]] | None = None,
    environment: dict[str, str] | None = None,
) -> tuple[int, str]:
    """Runs hvdrun to its end, with tick() now and then.  Returns its exit code and the end of its stderr."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(results_fd,),
        env=ranks_environment() if environment is None else environment,
        start_new_session=True,  # Ctrl-C reaches it through this process, once
    )
    streams = ((process.stdout, "stdout"), (process.stderr, "stderr"))
    echoes = [StreamEcho(stream, target, shown() if shown else None) for stream, target in streams]
    try:
        _pump(process, echoes, None, tick)
        return process.wait(), echoes[1].tail
    except BaseException:
        _end(process, echoes)
        raise
    finally:
        for echo in echoes:
            echo.stream.close()


def _pump(
    process: subprocess.Popen[bytes], echoes: list[StreamEcho], deadline: float | None, tick: Callable[[], None] | None = None
) -> None:
    """Copies output until both streams end, or the process has ended and they are silent, or the deadline."""
    with selectors.DefaultSelector() as selector:
        for echo in echoes:
            selector.register(echo.stream, selectors.EVENT_READ, echo)
        while selector.get_map():
            ready = selector.select(0.2)
            if tick is not None:
                tick()
            for key, _ in ready:
                if not key.data.pump():
                    selector.unregister(key.fileobj)
            if not ready and process.poll() is not None:
                return
            if deadline is not None and time.monotonic() > deadline:
                return


def _end(process: subprocess.Popen[bytes], echoes: list[StreamEcho]) -> None:
    """Ends the job as Ctrl-C would.  A second Ctrl-C, or too long a wait, kills hvdrun; its guards then end the
    ranks."""
    try:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            _pump(process, echoes, time.monotonic() + _END_SECONDS)
            process.wait(1.0)
    except (KeyboardInterrupt, subprocess.TimeoutExpired, OSError, ValueError):
        pass
    if process.poll() is None:
        process.kill()
        process.wait()
