"""The sanitizers' builds, made in the background while suites run that leave a core idle most of the time.

`python scripts/lib/ahead.py` is that background process, at the lowest priority; Ahead starts and ends it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys


class Ahead:
    """One background build.  Ending it in its midst is safe: ninja builds anew what was not finished."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def end(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def main() -> None:
    from context import Context, Part
    from parts import build_ahead
    from tally import Tally

    os.nice(19)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Context.command then ends what it has started
    part = Part("ahead", "the sanitizers' builds, in the background", lambda _: Tally())
    build_ahead(Context(part, dict(os.environ), False))


if __name__ == "__main__":
    main()
