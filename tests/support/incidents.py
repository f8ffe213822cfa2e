"""Incidents that hvdrun tells of while a job runs."""

from __future__ import annotations

import re
import subprocess

from support import hvdrun


def told(job: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """hvdrun's next line that matches.  The job's stderr must be a pipe.

    Skips the ranks' output.  Skips incidents whose ranks go on, because any rank may be late on a busy machine.
    AssertionError for another incident that lasts: hvdrun tells of it again.
    """
    unexpected = ""
    while line := hvdrun.next_line(job.stderr):
        if found := re.fullmatch(pattern, line):
            return found
        if line.startswith("["):
            continue
        assert not unexpected or line.startswith("  ") or " on after " in line, unexpected + line
        unexpected = "" if " on after " in line else unexpected + line
    raise AssertionError(f"not told: {pattern}\n{unexpected}")
