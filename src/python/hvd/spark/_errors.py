"""The reason why a Spark job ended, in words."""

from __future__ import annotations

import re


class JobCancelled(RuntimeError):
    """The Spark job was cancelled, from a notebook, the web page, or by cancelAllJobs()."""


def explained(error: BaseException, np: int) -> BaseException:
    """The exception to raise in place of Spark's."""
    text = str(error)
    cause = _cause(text)
    if re.search(r"Job \d+ cancelled|cancelled (because|as part of)|was cancelled|JOB_CANCELLED", text):
        return JobCancelled(f"the Spark job was cancelled: {cause}")
    if re.search(r"ExecutorLostFailure|executor \S+ exited|Executor heartbeat timed out|worker lost|ExecutorDead", text):
        found = re.search(r"ExecutorLostFailure \(([^)]*)\)([^\n]*)", text)
        what = (found.group(1) + found.group(2)) if found else cause
        return RuntimeError(f"an executor was lost, and the job with it: {what}")
    if "No module named 'hvd" in text:
        return RuntimeError("hvdrun is not installed for the executors' Python: install its wheel on every worker")
    if "PYTHON_VERSION_MISMATCH" in text or "different version" in text:
        return RuntimeError(f"driver and executors run different Pythons (set PYSPARK_PYTHON): {_python_error(text)}")
    if "SparkContext was shut down" in text or "stopped SparkContext" in text:
        return JobCancelled(f"the Spark session was stopped: {cause}")
    found = re.search(r"(?:RuntimeError|FileNotFoundError|OSError): ([^\n]+(?:\n(?!\s+at |\n|\t)[^\n]+)*)", text)
    if found:
        return RuntimeError(found.group(1).strip())
    return RuntimeError(f"the Spark job of {np} tasks failed: {cause}")


def _cause(text: str) -> str:
    """Spark's first line of the reason."""
    for line in text.splitlines():
        if "Exception: " in line:
            return line.split("Exception: ", 1)[1].strip()
    return text.strip().splitlines()[0] if text.strip() else "without a reason"


def _python_error(text: str) -> str:
    found = re.search(r"[^\n]*(?:PYTHON_VERSION_MISMATCH|different version)[^\n]*", text)
    return found.group(0).strip() if found else "see Spark's log"
