"""Every verdict that hvdrun writes in a test must follow the schema (src/python/hvd/verdict.schema.json)."""

from __future__ import annotations

import json
import pathlib
from functools import cache
from typing import Any

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "src/python/hvd/verdict.schema.json"


@cache
def _validator() -> Any:
    import jsonschema

    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def checked(text: str) -> dict[str, Any]:
    """The verdict in a file's text.  AssertionError if it does not follow the schema."""
    verdict: dict[str, Any] = json.loads(text)
    errors = [f"{error.json_path}: {error.message}" for error in _validator().iter_errors(verdict)]
    assert not errors, f"no valid verdict: {errors}\n{text}"
    return verdict


def check_file(path: pathlib.Path, returncode: int) -> dict[str, Any] | None:
    """The verdict of a job that has ended with this exit code. Returns None if the command started no job and thus wrote no
    verdict."""
    if not path.exists():
        return None
    verdict = checked(path.read_text())
    assert verdict["exit_code"] == returncode, verdict
    assert (verdict["outcome"] == "finished") == (returncode == 0), verdict
    assert (verdict["cause"] == "none") == (returncode == 0), verdict
    return verdict
