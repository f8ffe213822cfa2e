"""Becoming Python: every interpreter of the machine, in a venv, embedded and by exec, with the same result."""

from __future__ import annotations

import pickle
import subprocess
import textwrap
from pathlib import Path

import pytest
from rank_bench import manifest


def force(mode: str) -> dict[str, str]:
    return {"HVD_RANK_EXEC": "1"} if mode == "exec" else {}


def expect(d, mode: str, interpreter: str) -> None:
    """Embedded if the interpreter has a shared libpython beside it."""
    if mode == "exec":
        assert d.started()["python"] == "exec"
    elif "pyenv" in interpreter:
        assert d.started()["python"] == "embedded"


SCRIPT = """
import os, sys, only_in_venv
print(sys.executable)
print(sys.prefix)
print(sys.argv)
print(sys.path[0])
print(only_in_venv.WHERE, __name__, __file__)
print(sorted(v for v in os.environ if v in ("HVD_LIBPYTHON", "HVD_BOOT", "HVD_JOB_KEYS", "HVD_JOB_DIR")))
print(sorted(sys.flags[:3]), sys.version_info[:2], sys.base_prefix)
"""


def test_a_script_sees_what_python_shows_it(run, interpreter: str, venv: str, mode: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    d = run(manifest(kind="script", name=str(script), args=["--lr", "1"], python=venv, env=force(mode)))
    expect(d, mode, interpreter)
    assert d.death()["cause"] == "finished", d.death()
    plain = subprocess.run([venv, str(script), "--lr", "1"], capture_output=True, text=True, cwd="/tmp", check=True)
    assert d.text() == plain.stdout


def test_a_module(run, interpreter: str, venv: str, mode: str, tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__main__.py").write_text("import sys; print(__package__, sys.argv[1:])")
    d = run(manifest(kind="module", name="pkg", args=["x"], python=venv, cwd=str(tmp_path), env=force(mode)))
    assert d.text() == "pkg ['x']\n"


@pytest.mark.parametrize(
    ("code", "cause", "number"),
    [
        ("raise SystemExit(7)", "exited", 7),
        ("import sys; sys.exit('bye')", "exited", 1),
        ("1/0", "exited", 1),
        ("import os; os._exit(300)", "exited", 44),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "signalled", 11),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signalled", 9),
        ("raise KeyboardInterrupt", "signalled", 2),
        ("pass", "finished", 0),
    ],
)
def test_exit_codes_are_pythons(run, mode: str, venv: str, code: str, cause: str, number: int, tmp_path: Path) -> None:
    script = tmp_path / "end.py"
    script.write_text(code)
    d = run(manifest(kind="script", name="end.py", python=venv, cwd=str(tmp_path), env=force(mode)))
    assert (d.death()["cause"], d.death()["code"]) == (cause, number)


def dumps(interpreter: str, source: str, folder: Path) -> bytes:
    """The plain pickle of `payload`, made by @p interpreter from a module `job` in @p folder."""
    (folder / "job.py").write_text(textwrap.dedent(source))
    code = f"import sys, pickle; sys.path.insert(0, {str(folder)!r}); import job\n"
    code += "sys.stdout.buffer.write(pickle.dumps(job.payload))"
    return subprocess.run([interpreter, "-c", code], capture_output=True, check=True).stdout


JOB = """
import sys
def train(steps, lr=0.1):
    print("training", steps, lr, sys.argv)
    return {"rank": __import__("os").environ["HVD_RANK"], "steps": steps, "big": b"x" * 200000}
payload = (train, (3,), {"lr": 0.5})
"""


def test_a_pickle_runs_and_returns(run, pickled, interpreter: str, venv: str, mode: str, tmp_path: Path) -> None:
    data = dumps(interpreter, JOB, tmp_path)
    env = {**force(mode), "PYTHONPATH": str(tmp_path)}
    one = pickled(data, python=venv, args=["a"], collect_results=True, env=env, size=2, local_size=2, rank=0)
    two = pickled(data, python=venv, collect_results=True, env=env, size=2, local_size=2, rank=1, local_rank=1, deliver=False)
    d = run(one, two, payload=data)
    expect(d, mode, interpreter)
    assert d.death(0)["cause"] == d.death(1)["cause"] == "finished", d.events
    assert d.text(rank=0) == "training 3 0.5 ['train.pkl', 'a']\n"
    assert pickle.loads(d.result(1)) == {"rank": "1", "steps": 3, "big": b"x" * 200000}


FAILING = """
def helper():
    raise LookupError("no such batch")
def payload():
    try:
        helper()
    except LookupError:
        raise ValueError("first line\\nsecond line")
"""


def test_an_exception_is_an_ordinary_traceback(run, pickled, interpreter, venv, mode, tmp_path: Path) -> None:
    data = dumps(interpreter, FAILING, tmp_path)
    d = run(pickled(data, python=venv, env={**force(mode), "PYTHONPATH": str(tmp_path)}), payload=data)
    death = d.death()
    assert (death["cause"], death["code"]) == ("exited", 1)
    lines = death["traceback"].splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "During handling of the above exception, another exception occurred:" in lines
    assert lines[-2:] == ["ValueError: first line", "second line"]
    assert "<hvdrank>" not in death["traceback"]
    assert "<string>" not in death["traceback"]
    assert d.text("stderr") == ""  # it is in the record, so that it is printed once
    assert not death["traceback_shown"]


def test_sys_exit_in_a_pickle(run, pickled, venv, mode, tmp_path: Path, interpreter) -> None:
    data = dumps(interpreter, "import sys\ndef payload():\n    sys.exit(5)\n", tmp_path)
    d = run(pickled(data, python=venv, env={**force(mode), "PYTHONPATH": str(tmp_path)}), payload=data)
    assert (d.death()["cause"], d.death()["code"]) == ("exited", 5)
    assert d.death()["traceback"] == ""


# Imitates torch: a C++ thread releases a Python object while Python finalises, in a noexcept frame.
LATE = """
#include <dlfcn.h>
#include <unistd.h>
#include <thread>
static void drop(int (*ends)(), int (*take)()) noexcept {
  while (!ends()) usleep(1000);
  take();
}
extern "C" void begin() {
  auto* ends = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "_Py_IsFinalizing"));
  if (!ends) ends = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "Py_IsFinalizing"));
  std::thread(drop, ends, reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Ensure"))).detach();
}
"""
ENDS_SLOWLY = """
import ctypes, sys, time
class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(0.2)
slow = Slow()
ctypes.CDLL(sys.argv[1]).begin()
"""


def test_a_thread_that_is_late_does_not_end_a_rank_that_is_done(run, venv, tmp_path: Path) -> None:
    library = tmp_path / "late.so"
    (tmp_path / "late.cc").write_text(LATE)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, tmp_path / "late.cc"], check=True)
    (tmp_path / "ends.py").write_text(ENDS_SLOWLY)
    d = run(manifest(kind="script", name=str(tmp_path / "ends.py"), args=[str(library)], python=venv))
    if d.started()["python"] != "embedded":
        pytest.skip("this Python has no shared libpython beside it: the rank is the interpreter itself")
    assert d.death()["cause"] == "finished", d.death()
