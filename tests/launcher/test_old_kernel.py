"""Jobs on a kernel like RHEL 8's: without pidfds, close_range and clone3."""

from __future__ import annotations

import os
import pathlib
import signal

from support import hvdrun, old_kernel

SUM_THEN_DIE = """
import os, signal
import numpy as np
import hvd.numpy as hvd
hvd.init()
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # libhvd, not hvdrun, must end the wait of rank 0
assert hvd.allreduce(np.ones(3), op=hvd.Sum).tolist() == [2, 2, 2]
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    hvd.allreduce(np.ones(3))
except RuntimeError as error:
    print(error, flush=True)
"""


def test_a_job_and_its_end(tmp_path: pathlib.Path) -> None:
    """Two ranks sum; one is killed; the other one and hvdrun say so."""
    script = tmp_path / "sum.py"
    script.write_text(SUM_THEN_DIE)
    done = hvdrun.run("-np", "2", "--grace", "30", *hvdrun.python_args(), str(script), preexec_fn=old_kernel.enter)
    assert done.returncode == 137, done.stderr
    assert "rank 1 on localhost was killed by signal 9 (SIGKILL)" in done.stderr
    assert "is gone" in done.stdout, done.stdout


def test_a_stopped_job_is_killed(tmp_path: pathlib.Path) -> None:
    env = {"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": ""}
    nap = ["sh", "-c", "echo up; exec sleep 60"]
    with hvdrun.started("-np", "1", "--grace", "1", "--", *nap, env=env, preexec_fn=old_kernel.enter) as job:
        assert hvdrun.next_line(job.stdout).endswith("up\n")
        os.kill(job.pid, signal.SIGSTOP)
        hvdrun.wait_until(lambda: hvdrun.state(job.pid) == "T", "its stop")
        killed = hvdrun.run("kill", str(job.pid), env=env, preexec_fn=old_kernel.enter)
        assert (killed.returncode, killed.stderr) == (0, "")
        assert job.wait(30) == 143
