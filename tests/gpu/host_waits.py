"""The host's waits in a trace of torch's profiler."""

from __future__ import annotations

import collections
from typing import Any


def waits(events: list[dict[str, Any]]) -> collections.Counter[str]:
    """The host's waits in a trace.  CUPTI calls queries of events synchronisation too: the call that belongs to it, by the
    correlation id, tells them apart.  "Stream Wait Event" is the GPU's wait."""
    calls = {
        event["args"]["correlation"]: event["name"]
        for event in events
        if event.get("cat") in ("cuda_driver", "cuda_runtime") and "correlation" in event.get("args", {})
    }
    found: collections.Counter[str] = collections.Counter()
    for event in events:
        if event.get("cat") == "cuda_sync" and event["name"] != "Stream Wait Event":
            call = calls.get(event.get("args", {}).get("correlation"), "")
            if "Query" not in call:
                found[f"{event['name']} ({call})" if call else event["name"]] += 1
    return found
