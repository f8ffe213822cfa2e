"""The host's waits in a trace of torch's profiler."""

from __future__ import annotations

import collections
from typing import Any


def waits(events: list[dict[str, Any]]) -> collections.Counter[str]:
    """The host's waits in a trace.

    CUPTI counts queries of events as synchronisation.  The call with the same correlation id distinguishes them.  Torch's
    profiler leaves cuEventQuery out of its traces, so an "Event Sync" without a call is a query.  libhvd calls no function of
    the driver that waits for an event (test_host_waits.py).  Waits of NCCL and torch are calls of the CUDA runtime, which the
    profiler records.  "Stream Wait Event" is the GPU's wait.
    """
    calls = {
        event["args"]["correlation"]: event["name"]
        for event in events
        if event.get("cat") in ("cuda_driver", "cuda_runtime") and "correlation" in event.get("args", {})
    }
    found: collections.Counter[str] = collections.Counter()
    for event in events:
        if event.get("cat") != "cuda_sync" or event["name"] == "Stream Wait Event":
            continue
        call = calls.get(event.get("args", {}).get("correlation"), "")
        is_query = "Query" in call or (event["name"] == "Event Sync" and not call)
        if not is_query:
            found[f"{event['name']} ({call})" if call else event["name"]] += 1
    return found
