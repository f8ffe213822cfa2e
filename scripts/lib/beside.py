"""Parts that wait more than they compute, run one after the other beside the rest of the suite.

Their output is kept and shown as a whole, in the table's order, when everything else that they may run beside is over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from context import Part, kill_all


class Beside:
    """run(part, say) makes a part's result; results come in order from finish()."""

    def __init__(self, parts: list[Part], run: Callable[[Part, Callable[[str], None]], None]) -> None:
        self.parts = parts
        self._run = run
        self._said: list[str] = []
        self._over = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Once; later calls do nothing."""
        if self._thread is None and self.parts:
            self._thread = threading.Thread(target=self._all, daemon=True)
            self._thread.start()

    def _all(self) -> None:
        for part in self.parts:
            if not self._over:
                self._run(part, self._said.append)

    def finish(self) -> None:
        """Waits for the end of all, and shows what they said."""
        self.start()
        if self._thread is not None:
            self._thread.join()  # each command has a limit of its own
            print("\n".join(self._said), flush=True)
            self._said, self.parts = [], []

    def end(self) -> None:
        """Where the whole run is broken off."""
        self._over = True
        kill_all()
