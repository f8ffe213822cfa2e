"""hvd.run: a job started from Python.  The work is hvdrun's; this file hands it a pickle and brings back the results."""

from __future__ import annotations

import codecs
import json
import os
import pickle
import re
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Callable

from hvd._payload import pickled_call

__all__ = ["run"]

# How long hvdrun may take to end its job after Ctrl-C, beyond which it is killed.
_END_SECONDS = 30.0
_VERDICT = 0xFFFFFFFF


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
    shown: Callable[[], Callable[[str, bool], str]] | None = None,
) -> list[Any]:
    """Calls func(*args, **kwargs) on num_proc ranks and returns their results, in rank order.

    What the ranks print appears here while they run, in a script, a REPL and a notebook cell.  hosts: "h1:2,h2:2";
    executable: the ranks' Python, this one by default; shown(): makes a filter of a stream's output; the other
    arguments are hvdrun's options of the same names.

    Errors: RuntimeError with the traceback of the rank that failed first; ValueError for an option that hvdrun
    refuses; TypeError for something that cannot be pickled; FileNotFoundError without hvdrun.  KeyboardInterrupt
    ends the job first.
    """
    if not callable(func):
        raise TypeError(f"hvd.run needs something to call, not a {type(func).__name__}")
    options: dict[str, Any] = {
        "--min-np": min_num_proc if min_num_proc is not None else min_np,
        "--max-np": max_num_proc if max_num_proc is not None else max_np,
        "--slots-per-host": slots,
        "--reset-limit": reset_limit,
        "--blacklist-cooldown-range": cooldown_range,
        "-H": hosts,
        "--hostfile": hostfile,
        "--host-discovery-script": host_discovery_script,
        "--start-timeout": start_timeout,
        "--ssh-port": ssh_port,
        "--ssh-identity-file": ssh_identity_file,
        "--disable-cache": bool(disable_cache),
        "--output-filename": output_filename,
        "--verbose": bool(verbose),
        "--gloo": bool(use_gloo),
        "--mpi": bool(use_mpi),
        "--mpi-args": mpi_args,
        "--network-interfaces": _joined(network_interfaces or network_interface),
    }
    ranks = _count(num_proc, np)
    payload = pickled_call(func, tuple(args), dict(kwargs or {}))
    with tempfile.TemporaryDirectory(prefix="hvd-run-", dir=os.environ.get("XDG_RUNTIME_DIR") or None) as folder:
        name = re.sub(r"\W+", "_", getattr(func, "__name__", type(func).__name__)).strip("_") or "payload"
        file, results = Path(folder, name + ".pkl"), Path(folder, "results")
        _write_private(file, payload)
        _write_private(results, b"")
        command = [_program(), "-np", str(ranks), "--python", executable or sys.executable, *_words(options)]
        command += ["--results", str(results), "--parent", str(os.getpid()), str(file)]
        code, errors = _supervise(command, shown)
        return _results(results.read_bytes(), ranks, code, errors)


def _count(num_proc: int | None, np: int | None) -> int:
    if num_proc is not None and np is not None and num_proc != np:
        raise ValueError(f"num_proc={num_proc} and np={np} are both given: np is the older name, leave it out")
    ranks = num_proc if num_proc is not None else np if np is not None else 1
    if not isinstance(ranks, int) or ranks < 1:
        raise ValueError(f"num_proc is {ranks!r}: it must be at least 1")
    return ranks


def _joined(names: str | Iterable[str] | None) -> str | None:
    return names if names is None or isinstance(names, str) else ",".join(names)


def _words(options: dict[str, Any]) -> list[str]:
    """The command-line words of the options that were given."""
    words: list[str] = []
    for flag, value in options.items():
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, (tuple, list)):
            words += [flag, *map(str, value)]
        elif flag.startswith("--"):
            words.append(f"{flag}={value}")  # a value may begin with a dash
        else:
            words += [flag, str(value)]
    return words


def _program() -> str:
    """hvdrun: HVD_RUN_PROGRAM, else of this installation, else on the PATH."""
    chosen = os.environ.get("HVD_RUN_PROGRAM")
    if chosen:
        return chosen
    folders = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts")), Path(__file__).parent]
    for folder in folders:
        if os.access(folder / "hvdrun", os.X_OK):
            return str(folder / "hvdrun")
    found = shutil.which("hvdrun")
    if found is None:
        raise FileNotFoundError(f"hvdrun is not in {', '.join(map(str, folders))} nor on the PATH (reinstall hvdrun)")
    return found


def _write_private(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)


def _environment() -> dict[str, str]:
    """This process's, with the folders that it imports from: the ranks must find the same modules."""
    own = {Path(path) for path in sysconfig.get_paths().values()}
    added = []
    for entry in sys.path:
        path = Path(entry or os.getcwd()).absolute()
        standard = any(path == base or base in path.parents for base in own)
        if path.is_dir() and not standard and "site-packages" not in path.parts and "dist-packages" not in path.parts:
            added.append(str(path))
    environment = dict(os.environ)
    inherited = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(added + inherited))
    return environment


class _Echo:
    """Passes one pipe on to sys.stdout or sys.stderr, whichever object that is just then."""

    def __init__(self, stream: Any, target: str, shown: Callable[[str, bool], str] | None = None) -> None:
        """shown(text, end): what of the text is passed on."""
        self.stream = stream
        self.target = target
        self.shown = shown
        self.text = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.tail = ""

    def pump(self) -> bool:
        """False at the end."""
        data = os.read(self.stream.fileno(), 65536)
        text = self.text.decode(data, final=not data)
        self.tail = (self.tail + text)[-8192:]
        if self.shown is not None:
            text = self.shown(text, not data)
        if text:
            target = getattr(sys, self.target)
            if target is not None:
                target.write(text)
                target.flush()
        return bool(data)


def _supervise(command: list[str], shown: Callable[[], Callable[[str, bool], str]] | None = None) -> tuple[int, str]:
    """Runs hvdrun to its end.  Returns its exit code and the end of what it wrote to stderr."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
        start_new_session=True,  # Ctrl-C reaches it through us, once
    )
    streams = ((process.stdout, "stdout"), (process.stderr, "stderr"))
    echoes = [_Echo(stream, target, shown() if shown else None) for stream, target in streams]
    try:
        _pump(process, echoes, None)
        return process.wait(), echoes[1].tail
    except BaseException:
        _end(process, echoes)
        raise
    finally:
        for echo in echoes:
            echo.stream.close()


def _pump(process: subprocess.Popen[bytes], echoes: list[_Echo], deadline: float | None) -> None:
    """Passes output on until both streams end, or the process has ended and they are silent, or the deadline."""
    with selectors.DefaultSelector() as selector:
        for echo in echoes:
            selector.register(echo.stream, selectors.EVENT_READ, echo)
        while selector.get_map():
            ready = selector.select(0.2)
            for key, _ in ready:
                if not key.data.pump():
                    selector.unregister(key.fileobj)
            if not ready and process.poll() is not None:
                return
            if deadline is not None and time.monotonic() > deadline:
                return


def _end(process: subprocess.Popen[bytes], echoes: list[_Echo]) -> None:
    """Ends the job as Ctrl-C would; a second Ctrl-C, or too long a wait, kills hvdrun, and its guards end the rest."""
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


def _records(data: bytes) -> dict[int, bytes]:
    """What hvdrun left: per record u32 rank, u32 zero, u64 length, bytes; little endian."""
    found, at = {}, 0
    while at + 16 <= len(data):
        rank, _, length = struct.unpack_from("<IIQ", data, at)
        found[rank] = data[at + 16 : at + 16 + length]
        at += 16 + length
    return found


def _results(data: bytes, ranks: int, code: int, errors: str) -> list[Any]:
    records = _records(data)
    verdict = records.pop(_VERDICT, None)
    if code == 0:
        missing = [rank for rank in range(ranks) if rank not in records]
        if missing:
            raise RuntimeError(f"hvdrun ended well, but brought no result of rank {missing[0]}")
        return [pickle.loads(records[rank]) for rank in range(ranks)]
    if verdict is not None:
        raise RuntimeError(_verdict_text(json.loads(verdict)))
    last = errors.strip() or f"hvdrun ended with code {code}"
    if code == 2:
        raise ValueError(last)
    raise RuntimeError(f"{last}\nhvdrun ended with code {code}")


def _verdict_text(verdict: dict[str, Any]) -> str:
    """How the first rank failed, with its traceback."""
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
