"""hvd.run from a script, a REPL and a notebook cell; its errors; and a clean end."""

from __future__ import annotations

import errno
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from hvd._job import run as _run
from python.harness import environment, has, python

pytestmark = pytest.mark.skipif(
    not (Path(environment().get("HVD_RUN_PROGRAM", "/nowhere")).exists() or Path(sys.executable).with_name("hvdrun").exists()),
    reason="hvdrun is not built",
)


def script(folder: Path, text: str) -> Path:
    path = folder / "job.py"
    path.write_text(textwrap.dedent(text))
    return path


def run_script(folder: Path, text: str, timeout: float = 180) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python(), str(script(folder, text))],
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )


def gone(pids: list[int], seconds: float) -> list[int]:
    """Waits until the processes have ended; returns those that have not."""
    deadline = time.monotonic() + seconds
    while True:
        left = [pid for pid in pids if Path(f"/proc/{pid}").exists() and "Z" not in _state(pid)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_script(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        import os
        import hvd

        FACTOR = 100

        def work(a, b=0):
            print("working", os.environ["HVD_RANK"], flush=True)
            return {"rank": int(os.environ["HVD_RANK"]), "value": FACTOR * a + b}

        print("results", hvd.run(work, (3,), {"b": 7}, num_proc=3))
        print("again", hvd.run(lambda: os.environ["HVD_SIZE"], np=2, hosts="localhost:2"))
        print("alone", hvd.run(len, ([1, 2],)))
        """,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    expected = [{"rank": rank, "value": 307} for rank in range(3)]
    assert f"results {expected}" in done.stdout
    assert "again ['2', '2']" in done.stdout
    assert "alone [2]" in done.stdout
    for rank in range(3):
        assert f"working {rank}" in done.stdout


def test_collectives_inside(tmp_path: Path) -> None:
    if not has("numpy"):
        pytest.skip(f"{python()} has no numpy")
    done = run_script(
        tmp_path,
        """
        import horovod

        def total():
            import numpy as np
            import hvd.numpy as hvd

            hvd.init()
            return float(hvd.allreduce(np.array([hvd.rank() + 1.0]), op=hvd.Sum)[0])

        if __name__ == "__main__":
            print("totals", horovod.run(total, np=2))
        """,
    )
    assert "totals [3.0, 3.0]" in done.stdout, done.stdout + done.stderr


def test_output_is_live(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        import hvd

        def slow():
            import time
            print("first", flush=True)
            time.sleep(120)

        hvd.run(slow, num_proc=1)
        """,
    )
    process = subprocess.Popen([python(), str(path)], env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        start = time.monotonic()
        while "first" not in process.stdout.readline():
            assert time.monotonic() - start < 90, "the line did not come while the job ran"
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=90)


def test_modules_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("def work():\n    return 'from the neighbour'\n")
    done = run_script(tmp_path, "import hvd, neighbour\nprint(hvd.run(neighbour.work, np=2))\n")
    assert "['from the neighbour', 'from the neighbour']" in done.stdout, done.stdout + done.stderr


def test_large_results(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        import hvd

        def big(data):
            import os
            return data + bytes([int(os.environ["HVD_RANK"])]) * 20_000_000

        results = hvd.run(big, (b"x" * 5_000_000,), np=2)
        print([(len(r), r[0], r[-1]) for r in results])
        """,
    )
    assert "[(25000000, 120, 0), (25000000, 120, 1)]" in done.stdout, done.stdout + done.stderr


def test_failure_names_the_rank(tmp_path: Path) -> None:
    done = run_script(
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
    done = run_script(
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


def test_the_function_is_on_no_disk(tmp_path: Path) -> None:
    """During the run: nothing stays if this process is killed."""
    checks = Path(__file__).parents[1] / "spark" / "checks.py"
    source = checks.read_text()
    function = source[source.index("def payload_of_ancestors") : source.index("def folders_while_ranks_run")]
    text = "import os, pathlib, time\nimport hvd\n\n" + function + "\nprint(hvd.run(payload_of_ancestors, np=2))\n"
    done = run_script(tmp_path, text)
    assert done.stdout == "['', '']\n", done.stdout + done.stderr


def test_one_ranks_result(tmp_path: Path) -> None:
    """The others' results are neither read nor pickled."""
    done = run_script(
        tmp_path,
        """
        import hvd

        def main():
            import os
            return "mine" if os.environ["HVD_RANK"] == "0" else (i for i in ())

        print(hvd.run(main, np=2, only=0))
        try:
            hvd.run(main, np=2, only=2)
        except ValueError as error:
            print(error)
        """,
    )
    assert done.stdout == "['mine']\nonly=2: there are ranks 0 to 1\n", done.stdout + done.stderr


@pytest.mark.parametrize("where", ['hosts="localhost:2"', 'hostfile="hosts"'])
def test_without_a_number_each_slot_has_a_rank(tmp_path: Path, where: str) -> None:
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    done = run_script(
        tmp_path,
        f"""
        import hvd

        def main():
            import os
            return os.environ["HVD_RANK"] + os.environ["HVD_SIZE"]

        print(hvd.run(main, {where}), hvd.run(main, {where}, only=1), hvd.run(main, {where}, num_proc=1))
        try:
            hvd.run(main, {where}, only=2)
        except ValueError as error:
            print(error)
        """,
    )
    assert done.stdout == "['02', '12'] ['12'] ['01']\nonly=2: there are ranks 0 to 1\n", done.stdout + done.stderr


def test_one_ranks_result_of_an_elastic_job(tmp_path: Path) -> None:
    """The rank is one of those at the end; the others' results are not pickled."""
    done = run_script(
        tmp_path,
        """
        import hvd

        def main(last):
            import os
            return "last" if int(os.environ["HVD_RANK"]) == last else (i for i in ())

        print(hvd.run(main, (1,), np=2, min_np=1, only=1))
        try:
            hvd.run(main, (0,), np=1, min_np=1, only=1)
        except RuntimeError as error:
            print(error)
        """,
    )
    assert done.stdout == "['last']\nonly=1: no rank 1 has returned a result; the ranks at the end are: 0\n", done.stderr


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


def test_exit_code_and_signal(tmp_path: Path) -> None:
    done = run_script(
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
    done = run_script(
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
    done = run_script(
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
    done = run_script(
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


SLEEPER = """
import hvd

def sleep(folder):
    import os, subprocess, time
    child = subprocess.Popen(["sleep", "300"], start_new_session=True)
    with open(os.path.join(folder, "pids." + os.environ["HVD_RANK"]), "w") as file:
        file.write(f"{os.getpid()} {child.pid} ")
    time.sleep(300)

hvd.run(sleep, (__FOLDER__,), np=2)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left(tmp_path: Path, how: signal.Signals) -> None:
    path = script(tmp_path, SLEEPER.replace("__FOLDER__", repr(str(tmp_path))))
    env = environment(TMPDIR=str(tmp_path))
    env.pop("XDG_RUNTIME_DIR", None)
    process = subprocess.Popen([python(), str(path)], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    pids: list[int] = []
    deadline = time.monotonic() + 60
    while len(pids) < 4:
        assert time.monotonic() < deadline and process.poll() is None, "the ranks did not start"
        time.sleep(0.05)
        pids = [int(word) for file in tmp_path.glob("pids.*") for word in file.read_text().split()]
    process.send_signal(how)
    output, _ = process.communicate(timeout=90)
    assert not gone(pids, 60), f"processes are left: {gone(pids, 0)}"
    if how == signal.SIGINT:
        assert "KeyboardInterrupt" in output
        assert not list(tmp_path.glob("hvd-run-*")), "the payload's folder is left"


class Terminal:
    """The far end of a pseudo-terminal."""

    def __init__(self, master: int) -> None:
        self.master = master
        self.unread = ""

    def until(self, text: str, seconds: float = 90) -> str:
        """The output up to and including the text; the rest stays for the next call."""
        deadline = time.monotonic() + seconds
        while text not in self.unread:
            ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not come:\n{self.unread}"
            self.unread += os.read(self.master, 65536).decode(errors="replace")
        seen, _, self.unread = self.unread.partition(text)
        return seen + text

    def type(self, line: str) -> None:
        """Types a line."""
        os.write(self.master, (line + "\n").encode())


def test_repl() -> None:
    """Functions typed at the prompt; Ctrl-C at the terminal; and the prompt works afterwards."""
    master, slave = pty.openpty()
    env = environment(TERM="dumb", PYTHON_BASIC_REPL="1")
    # Without readline, which discards input before it is ready.
    plain = "import sys; del sys.__interactivehook__"
    process = subprocess.Popen(
        [python(), "-q", "-i", "-c", plain],
        env=env,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        close_fds=True,
    )
    os.close(slave)

    terminal = Terminal(master)
    try:
        terminal.until(">>> ")
        terminal.type("import hvd, os, time")
        terminal.until(">>> ")
        terminal.type("def work(n): print('at', os.environ['HVD_RANK'], flush=True); time.sleep(n); return os.getpid()\n")
        terminal.until(">>> ")
        terminal.type("'two', len(set(hvd.run(work, (0,), np=2)))")
        seen = terminal.until("('two', 2)", 60)
        assert "at 0" in seen and "at 1" in seen, seen
        terminal.until(">>> ")
        terminal.type("hvd.run(work, (120,), np=2)")
        terminal.until("at 1", 90)
        process.send_signal(signal.SIGINT)
        terminal.until("KeyboardInterrupt", 90)
        terminal.type("print('still', 'here')")
        terminal.until("still here")
        terminal.type("exit()")
        process.wait(20)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)


def test_notebook(tmp_path: Path) -> None:
    """A cell's function: its output appears in the cell, and an interrupt of the kernel ends the job."""
    if not has("ipykernel"):
        pytest.skip(f"{python()} has no ipykernel")
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    cells = [
        "import hvd, os\n\ndef work(n):\n    print('in rank', os.environ['HVD_RANK'], flush=True)\n    return n * 2",
        "hvd.run(work, (21,), np=2)",
        "def fail():\n    raise ValueError('in a cell')\n\n"
        "try:\n    hvd.run(fail, np=2)\nexcept RuntimeError as error:\n    print('CAUGHT', error)",
    ]
    kernels = tmp_path / "kernels" / "ranks"
    kernels.mkdir(parents=True)
    command = f'["{python()}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"]'
    (kernels / "kernel.json").write_text(f'{{"argv": {command}, "display_name": "ranks", "language": "python"}}')
    notebook: Any = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    env = environment(JUPYTER_PATH=str(tmp_path), IPYTHONDIR=str(tmp_path))
    before = dict(os.environ)
    os.environ.update(env)
    try:
        nbclient.NotebookClient(
            notebook, timeout=120, kernel_name="ranks", resources={"metadata": {"path": tmp_path}}
        ).execute()
    finally:
        os.environ.clear()
        os.environ.update(before)
    streams = ["".join(out.get("text", "") for out in cell.outputs if out.output_type == "stream") for cell in notebook.cells]
    assert "in rank 0" in streams[1] and "in rank 1" in streams[1], notebook.cells[1].outputs
    results = [out.data["text/plain"] for out in notebook.cells[1].outputs if out.output_type == "execute_result"]
    assert results == ["[42, 42]"]
    assert "ValueError: in a cell" in streams[2] and "CAUGHT rank" in streams[2], streams[2]
