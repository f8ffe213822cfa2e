"""What hvdrun knows of the running job's steps, for loggers."""

from __future__ import annotations

import json
from typing import Any

from hvd import _native


def report() -> dict[str, Any] | None:
    """What the job's steps of the last half minute spent their time on, as hvdrun sees all ranks.

    None where nothing is known yet (the first call asks for it; hvdrun then sends it every two seconds, with the steps),
    and in a job that hvdrun did not start.  Not collective, and without waiting: any rank and any thread may call it, the
    first rank's logger for one.

    Keys, times in seconds and as means of a step over all ranks: ``steps`` (ended until now), ``step_seconds``,
    ``waiting_seconds`` (for other ranks, data and messages), ``communication_seconds`` (of that, data and messages),
    ``step_parts`` (a dict of input, saving, collecting garbage, no core, asleep, computing, ...) and ``findings`` (a list,
    the costliest first, of dicts with ``cause``, ``ranks``, ``host``, ``seconds_a_step``, ``what`` and ``advice``).
    Errors: ValueError before init().
    """
    text = _native.report()
    return dict(json.loads(text)) if text else None
