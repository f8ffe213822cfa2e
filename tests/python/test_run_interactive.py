"""hvd.run at a prompt and in a notebook, and its end by a signal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from python import run_scripts
from python.harness import environment, has, python

pytestmark = run_scripts.needs_hvdrun


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
    path = run_scripts.script(tmp_path, SLEEPER.replace("__FOLDER__", repr(str(tmp_path))))
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
