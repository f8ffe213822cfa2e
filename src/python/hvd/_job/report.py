"""hvdrun's report on the running job's steps, for loggers."""

from __future__ import annotations

import json
from typing import Any

from hvd import _native


def report() -> dict[str, Any] | None:
    """Returns how the job's steps spent the last half minute, as hvdrun sees all ranks.

    Returns None before the first report has arrived, and in a job that hvdrun did not start.  The first call asks for
    reports; hvdrun then sends one every two seconds, with the steps.  Not collective, and never waits: any rank and any
    thread may call it, for example the first rank's logger.

    Keys; times are in seconds, as means of a step over all ranks:
    - ``steps``: number of steps until now
    - ``step_seconds``
    - ``waiting_seconds``: for other ranks, data and messages
    - ``communication_seconds``: the part of it for data and messages
    - ``step_parts``: a dict of input, saving, collecting garbage, no core, asleep, computing, ...
    - ``findings``: a list of dicts, the costliest first, with ``cause``, ``ranks``, ``host``, ``seconds_a_step``,
      ``what`` and ``advice``
    Errors: ValueError before init().
    """
    text = _native.report()
    return dict(json.loads(text)) if text else None
