"""hvd.run from a script: functions, output and results."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from python import run_scripts
from python.harness import environment, has, python

pytestmark = run_scripts.needs_hvdrun


def test_script(tmp_path: Path) -> None:
    done = run_scripts.run_script(
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
    done = run_scripts.run_script(
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
    path = run_scripts.script(
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
    done = run_scripts.run_script(tmp_path, "import hvd, neighbour\nprint(hvd.run(neighbour.work, np=2))\n")
    assert "['from the neighbour', 'from the neighbour']" in done.stdout, done.stdout + done.stderr


def test_large_results(tmp_path: Path) -> None:
    done = run_scripts.run_script(
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


def test_the_function_is_on_no_disk(tmp_path: Path) -> None:
    """During the run: nothing stays if this process is killed."""
    checks = Path(__file__).parents[1] / "spark" / "checks.py"
    source = checks.read_text()
    function = source[source.index("def payload_of_ancestors") : source.index("def folders_while_ranks_run")]
    text = "import os, pathlib, time\nimport hvd\n\n" + function + "\nprint(hvd.run(payload_of_ancestors, np=2))\n"
    done = run_scripts.run_script(tmp_path, text)
    assert done.stdout == "['', '']\n", done.stdout + done.stderr


def test_one_ranks_result(tmp_path: Path) -> None:
    """The others' results are neither read nor pickled."""
    done = run_scripts.run_script(
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
    done = run_scripts.run_script(
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
    done = run_scripts.run_script(
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
