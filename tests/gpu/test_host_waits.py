"""Only the host's waits count among CUPTI's synchronisation records."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from counted import functions
from host_waits import waits


def event(cat: str, name: str, correlation: int) -> dict[str, Any]:
    return {"cat": cat, "name": name, "args": {"correlation": correlation}}


def test_queries_are_no_waits() -> None:
    trace = [
        event("cuda_driver", "cuEventQuery", 1),
        event("cuda_sync", "Event Sync", 1),
        event("cuda_runtime", "cudaEventQuery", 2),
        event("cuda_sync", "Event Sync", 2),
        event("cuda_sync", "Stream Wait Event", 3),
        event("cuda_sync", "Event Sync", 4),  # without its call in the trace
        {"ph": "M", "name": "process_name"},
    ]
    assert waits(trace) == {}


def test_waits_are_told_with_their_call() -> None:
    trace = [
        event("cuda_sync", "Event Sync", 7),
        event("cuda_driver", "cuEventSynchronize", 7),
        event("cuda_sync", "Context Sync", 8),
    ]
    assert waits(trace) == {"Event Sync (cuEventSynchronize)": 1, "Context Sync": 1}


def test_libhvd_knows_no_call_that_waits_for_the_gpu() -> None:
    assert [name for name in functions("cuda") if "Synchronize" in name] == []
