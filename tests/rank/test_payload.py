"""Faulty payloads, and the user's message: one line and a hint, never a crash."""

from __future__ import annotations

import functools
import pickle
import random
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from rank_bench import manifest

cloudpickle = pytest.importorskip("cloudpickle", reason="cloudpickle is not installed for this interpreter")
SITE = str(Path(cloudpickle.__file__).parents[1])


def force(mode: str) -> dict[str, str]:
    return {"HVD_RANK_EXEC": "1"} if mode == "exec" else {}


def refusal(run, manifest_, payload=None) -> dict:
    d = run(manifest_, payload=payload)
    death = d.death()
    assert death["cause"] == "unstarted", death
    assert "\n" not in death["text"]
    assert death["traceback"] == ""
    assert d.text("stderr") == ""
    return death


def reference(module: str, name: str) -> bytes:
    return b"\x80\x04c" + f"{module}\n{name}\n".encode() + b"."


@pytest.mark.parametrize(
    ("data", "said", "code"),
    [
        (b"", "train.pkl is empty", 2),
        (b"\x80\x05garbage", "train.pkl is not a pickle: ", 2),
        (b"print('this is a script')\n", "train.pkl is not a pickle: ", 2),
        (b"\x00" + random.Random(1).randbytes(4096), "train.pkl is not a pickle: ", 2),
        (pickle.dumps(print)[:-3], "train.pkl is not a pickle: ", 2),
        (b"P12\n.", "train.pkl is not a pickle: ", 2),
        (b"PK\x03\x04zip", "train.pkl is not a pickle but a zip archive", 2),
        (b"\x80\x09abc", "train.pkl was made by Python newer than 3", 2),
        (pickle.dumps({"a": 1}), "train.pkl holds a dict, not a function", 2),
        (pickle.dumps((1, 2)), "train.pkl holds a tuple, not a function", 2),
        (pickle.dumps((print, 5)), "train.pkl holds a function without its arguments: ", 2),
        (pickle.dumps((print, (), [1])), "train.pkl holds a function without its arguments: ", 2),
        (reference("no_such_module.sub", "f"), "train.pkl needs the module no_such_module, which ", 4),
        (reference("__main__", "train"), "train.pkl refers to the script that made it: ", 2),
        (reference("json", "no_such_name"), "train.pkl was made with another version of a package: ", 4),
    ],
    ids=lambda v: str(v)[:24] if not isinstance(v, int) else "",
)
def test_a_bad_pickle_is_one_line(run, pickled, mode: str, data: bytes, said: str, code: int) -> None:
    death = refusal(run, pickled(data, python=sys.executable, env=force(mode)), data)
    assert death["text"].startswith(said), death["text"]
    assert death["code"] == code
    assert death["hint"]


def test_an_absent_module_is_named_with_host_and_interpreter(run, pickled) -> None:
    data = reference("no_such_module", "f")
    death = refusal(run, pickled(data, python=sys.executable), data)
    assert death["text"] == f"train.pkl needs the module no_such_module, which {sys.executable} on testhost lacks"
    assert "-m pip install no_such_module" in death["hint"]


def test_cloudpickle_itself_absent(run, pickled) -> None:
    data = cloudpickle.dumps(lambda: 1)
    death = refusal(run, pickled(data, python="/usr/bin/python3", env={"PYTHONPATH": "", "PYTHONNOUSERSITE": "1"}), data)
    assert "needs the module cloudpickle" in death["text"]


def code_args(arguments: int, code: bytes) -> tuple:
    head = (0, 0, 0, 0, 1, 0, code, (None,), (), (), "file.py", "f")
    return (*head, "f", 1, b"", b"", (), ()) if arguments == 18 else (*head, 1, b"", (), ())


@pytest.mark.parametrize(
    ("args", "made"),
    [
        (code_args(18, bytes([149, 0, 103, 0])), "3.13"),
        (code_args(18, bytes([128, 0, 36, 0])), "3.14 or later"),
        (code_args(18, bytes([151, 0, 166, 0, 0, 0, 171, 0, 83, 0])), "3.11"),
        (code_args(18, bytes([151, 0, 171, 0, 83, 0])), "3.12"),
        (code_args(16, bytes([100, 0, 83, 0])), "3.8 to 3.10"),
    ],
)
def test_the_bytecode_of_another_python_is_refused_not_run(run, pickled, mode: str, args: tuple, made: str) -> None:
    """Bytecode of another version can crash the interpreter. The message names the version that made the bytecode, if known."""
    mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if made == mine or (made == "3.8 to 3.10" and sys.version_info < (3, 11)):
        pytest.skip("made by this very version")
    code_type = cloudpickle.cloudpickle._builtin_type
    data = b"\x80\x04" + pickle.dumps(code_type, 4)[2:-1] + b"\x8c\x08CodeType\x85R" + pickle.dumps(args, 4)[2:-1] + b"R."
    death = refusal(run, pickled(data, python=sys.executable, env={"PYTHONPATH": SITE, **force(mode)}), data)
    assert death["text"] == f"train.pkl was made by Python {made}, and {sys.executable} is Python {mine}"


def test_a_pickle_made_by_another_python_end_to_end(run, pickled, interpreter, venv) -> None:
    """A real function, pickled by this Python and run by each Python of the machine."""
    data = cloudpickle.dumps(eval("lambda: print(sum(range(4)))"))
    d = run(pickled(data, python=venv, env={"PYTHONPATH": SITE}), payload=data)
    death = d.death()
    if f"python{sys.version_info[0]}.{sys.version_info[1]}" in interpreter:
        assert d.text() == "6\n"
        return
    assert death["cause"] == "unstarted"
    assert "was made by" in death["text"]


def test_the_wrong_bytes(run, pickled) -> None:
    data = pickle.dumps(print)
    death = refusal(run, pickled(data, sha256="0" * 64, python=sys.executable), data)
    assert death["text"].startswith("train.pkl is not what hvdrun read: its SHA-256 is ")


def test_no_interpreter_no_script_no_command(run) -> None:
    death = refusal(run, manifest(kind="script", name="/tmp/x.py", python="/no/python3"))
    assert death["text"] == "there is no Python interpreter /no/python3 on this host"
    assert death["code"] == 4
    death = refusal(run, manifest(kind="script", name="no_such.py", python=sys.executable))
    assert death["text"].startswith("no_such.py does not exist on this host")
    death = refusal(run, manifest(name="no-such-command"))
    assert death["text"] == "command not found: no-such-command"


def test_a_program_whose_interpreter_is_absent(run, tmp_path: Path) -> None:
    program = tmp_path / "job.sh"
    for first_line, hint in (("#!/bin/sh\r", "its lines end as on Windows"), ("#!/no/sh", "correct that line")):
        program.write_bytes(f"{first_line}\necho\n".encode())
        program.chmod(0o755)
        death = refusal(run, manifest(name=str(program)))
        said = f"cannot run {program}: its first line names no program of this host: {first_line.strip()}"
        assert death["text"] == said
        assert death["hint"].startswith(hint)


def test_an_async_function_runs_to_its_end(run, pickled) -> None:
    async def train() -> None:
        import asyncio

        await asyncio.sleep(0.01)
        print("trained")

    data = cloudpickle.dumps(train)
    d = run(pickled(data, python=sys.executable, env={"PYTHONPATH": SITE}), payload=data)
    assert d.text() == "trained\n"


class Trainer:
    """Each way to call a generator function."""

    def steps(self, last: int = 2):
        print("ran")
        yield last

    async def later(self):
        print("ran")
        yield 1

    __call__ = steps


@pytest.mark.parametrize(
    ("function", "name", "loop"),
    [
        (Trainer.steps, "steps", "for"),
        (Trainer().steps, "steps", "for"),
        (functools.partial(Trainer().steps, 3), "steps", "for"),
        (Trainer(), "steps", "for"),
        (Trainer().later, "later", "async for"),
    ],
    ids=["function", "method", "partial", "object", "async"],
)
def test_a_generator_function_is_refused(run, pickled, function: Any, name: str, loop: str) -> None:
    """A call of a generator function runs none of its code, so the rank would end with success."""
    here = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(here)
    try:
        data = cloudpickle.dumps(function)
    finally:
        cloudpickle.unregister_pickle_by_value(here)
    death = refusal(run, pickled(data, python=sys.executable, env={"PYTHONPATH": SITE}), data)
    assert death["text"] == f"train.pkl holds {name}, a generator function, whose call alone runs nothing"
    assert death["hint"] == f"pickle a function with a loop over it: {loop} x in {name}(): ..."
    assert death["code"] == 2


def test_a_result_that_cannot_be_pickled_is_an_exception(run, pickled) -> None:
    data = cloudpickle.dumps(lambda: __import__("threading").Lock())
    d = run(pickled(data, python=sys.executable, collect_results=True, env={"PYTHONPATH": SITE}), payload=data)
    assert d.death()["cause"] == "exited"
    assert "the result of this rank, a lock, cannot be pickled" in d.death()["traceback"]


def test_a_module_that_raises_on_import_shows_its_traceback(run, pickled, tmp_path: Path) -> None:
    (tmp_path / "broken_module.py").write_text("raise RuntimeError('broken on import')\n")
    data = reference("broken_module", "f")
    d = run(pickled(data, python=sys.executable, env={"PYTHONPATH": str(tmp_path)}), payload=data)
    assert d.death()["cause"] == "exited"
    assert "broken_module.py" in d.death()["traceback"]


@pytest.mark.parametrize("by_value", [True, False], ids=["by-value", "from-module"])
def test_a_setstate_that_raises_shows_its_traceback(run, pickled, mode: str, by_value: bool, tmp_path: Path) -> None:
    """The pickle itself is valid. The message shows the line of the class that raised."""
    body = "class Trainer:\n    def __setstate__(self, state):\n        raise ValueError('no such state')\n"
    body += "    def __call__(self):\n        pass\n"
    (tmp_path / "own_trainer.py").write_text(body)
    space: dict = {"__name__": "__main__" if by_value else "own_trainer"}
    sys.modules["own_trainer"] = module = types.ModuleType("own_trainer")
    try:
        exec(compile(body, str(tmp_path / "own_trainer.py"), "exec"), space)
        module.Trainer = space["Trainer"]
        trainer = space["Trainer"]()
        trainer.rate = 0.1
        data = cloudpickle.dumps(trainer)
    finally:
        del sys.modules["own_trainer"]
    env = {**force(mode), "PYTHONPATH": f"{SITE}:{tmp_path}"}
    death = run(pickled(data, python=sys.executable, env=env), payload=data).death()
    assert death["cause"] == "exited", death
    assert death["code"] == 1
    assert "in __setstate__" in death["traceback"] and "ValueError: no such state" in death["traceback"], death
