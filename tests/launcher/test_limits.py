"""hvdrun with tight limits on its processes (ulimit): the job runs, or one message says what to raise."""

from __future__ import annotations

import resource

import pytest

from support import hvdrun


@pytest.mark.parametrize("kibibytes", [64, 128])
def test_a_small_stack(kibibytes: int) -> None:
    """hvdrun, its daemon and its guards need little stack."""
    done = hvdrun.run(
        *("-np", "2", "--", "sh", "-c", "ulimit -s"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (kibibytes << 10, kibibytes << 10)),
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[-1] for line in done.stdout.splitlines()] == [str(kibibytes)] * 2
