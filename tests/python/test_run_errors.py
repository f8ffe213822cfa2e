"""hvd.run from a script: functions, arguments and results that fail."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hvd._job import run as _run
from python import run_scripts

pytestmark = run_scripts.needs_hvdrun


def test_failure_names_the_rank(tmp_path: Path) -> None:
    done = run_scripts.run_script(
        tmp_path,
        """
        import hvd

        def fail():
            import os, time
            if os.environ["HVD_RANK"] == "1":
                raise KeyError("the reason")
            time.sleep(60)

        try:
            hvd.run(fail, np=2)
        except RuntimeError as error:
            print("CAUGHT", error)
        """,
    )
    caught = done.stdout[done.stdout.index("CAUGHT") :]
    assert "rank 1" in caught and "KeyError: 'the reason'" in caught and "in fail" in caught, done.stdout + done.stderr
    assert "rank 0" not in caught


def test_a_cells_error_comes_once_with_its_line(tmp_path: Path) -> None:
    """A cell as IPython compiles it: under a name that is no file, with its text in linecache."""
    done = run_scripts.run_script(
        tmp_path,
        """
        import linecache
        import hvd

        text = "def train():\\n    table = {}\\n    return table['no such layer']  # a line of the cell\\n"
        name = "/tmp/ipykernel_1/1234.py"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        exec(compile(text, name, "exec"), globals())
        try:
            hvd.run(train, np=2)
        except RuntimeError as error:
            print("CAUGHT", error)
        """,
    )
    assert 'ipykernel_1/1234.py", line 3, in train\n    return table[' in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("# a line of the cell") == 1
    assert "Traceback" not in done.stderr and "KeyError: 'no such layer'" in done.stderr, done.stderr


def test_exit_code_and_signal(tmp_path: Path) -> None:
    done = run_scripts.run_script(
        tmp_path,
        """
        import os, signal, sys
        import hvd

        endings = (
            lambda: sys.exit(7),
            lambda: os.kill(os.getpid(), signal.SIGKILL),
            lambda: (i for i in ()),
            lambda: sys.exit(0),
        )
        for end in endings:
            try:
                print(hvd.run(end, np=2))
            except RuntimeError as error:
                print("CAUGHT", " ".join(str(error).split()))
        """,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("CAUGHT")]
    assert len(lines) == 4, done.stdout + done.stderr
    assert "7" in lines[0] and "9" in lines[1] and "pickle" in lines[2], lines
    assert "returned no result: it ended its process" in lines[3], lines


def test_what_cannot_be_pickled(tmp_path: Path) -> None:
    done = run_scripts.run_script(
        tmp_path,
        """
        import threading
        import hvd

        LOCK = threading.Lock()

        def use():
            return LOCK

        def inner():
            mine = threading.Lock()
            return lambda: mine

        for call in (
            lambda: hvd.run(use),
            lambda: hvd.run(inner()),
            lambda: hvd.run(print, (1, LOCK)),
            lambda: hvd.run(print, kwargs={"end": LOCK}),
        ):
            try:
                call()
            except TypeError as error:
                print("CAUGHT", error)
        """,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("CAUGHT")]
    assert len(lines) == 4, done.stdout + done.stderr
    for line, word in zip(lines, ("'LOCK'", "'mine'", "argument 1", "argument end=")):
        assert word in line and "lock" in line, line


def test_a_result_that_cannot_be_unpickled(tmp_path: Path) -> None:
    done = run_scripts.run_script(
        tmp_path,
        """
        import os
        import hvd

        class Breaks:
            def __reduce__(self):
                return int, ("no number",)

        try:
            hvd.run(lambda: Breaks() if os.environ["HOROVOD_RANK"] == "1" else 0, np=2)
        except RuntimeError as error:
            print("CAUGHT", error)
        """,
    )
    assert "CAUGHT rank 1's result cannot be unpickled here: ValueError: invalid literal" in done.stdout, (
        done.stdout + done.stderr
    )


def test_wrong_arguments(tmp_path: Path) -> None:
    done = run_scripts.run_script(
        tmp_path,
        """
        import hvd

        for arguments in (dict(np=0), dict(num_proc=2, np=3), dict(np=2, hosts="a b:x"), dict(np=4, hosts="localhost:2")):
            try:
                hvd.run(print, **arguments)
            except ValueError as error:
                print("CAUGHT", " ".join(str(error).split()))
        try:
            hvd.run(3)
        except TypeError as error:
            print("CAUGHT", error)
        """,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("CAUGHT")]
    assert len(lines) == 5, done.stdout + done.stderr
    assert "4" in lines[3] and "2" in lines[3], lines[3]


@pytest.mark.parametrize("fault", ["missing", "relative", "full"])
def test_a_runtime_folder_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """The payload's folder is then made where tempfile makes folders."""
    runtime = tmp_path / "runtime"
    if fault != "missing":
        runtime.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "runtime" if fault == "relative" else str(runtime))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    write = _run.write_private

    def full(path: Path, data: bytes) -> None:
        write(path, data)
        if path.is_relative_to(runtime):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(_run, "write_private", full if fault == "full" else write)
    own, file = _run._payload_file("work.pkl", b"payload")
    with own:
        assert file.parent.parent == tmp_path
        assert file.read_bytes() == b"payload"
    assert fault == "missing" or not list(runtime.iterdir())


def test_a_generator_function_is_refused() -> None:
    """A call of a generator function runs none of its code, so run() refuses such a function."""

    def steps() -> Iterator[int]:
        yield 1

    async def later() -> AsyncIterator[int]:
        yield 1

    for function in (steps, later):
        with pytest.raises(TypeError, match="its call alone runs nothing; give a function with a loop over it"):
            _run.run(function, np=2)
