"""Clear errors, before the start if possible."""

from __future__ import annotations

import re

import pytest

from . import session as s

REASON = s.why_not()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.timeout(300)]


def test_too_few_slots_are_told_before_waiting(local: s.Driver) -> None:
    """The first message has the wanted and the possible number of ranks; the error after the wait repeats both."""
    answer = local.ask("too_few", np=5, timeout=1.0)
    assert answer["kind"] == "ValueError", answer
    assert "np=5 needs 5 slots, but there are 2 slots on 2 executors (spark.task.cpus=1): use np=2" in answer["error"]
    assert "np=5 needs 5 slots, and there are 2 slots" in answer["err"] and "waiting 1 s" in answer["err"]


def test_a_ranks_traceback(local: s.Driver) -> None:
    """The first rank that failed, its host and its traceback."""
    answer = local.ask("failing", np=2)
    assert answer["kind"] == "JobError", answer
    for text in ("rank 1 on 127.0.0.1", "KeyError: 'no such layer'", "raise KeyError", "in main"):
        assert text in answer["error"], answer["error"]
    assert "org.apache.spark" not in answer["error"]
    assert "Traceback" not in answer["err"], answer["err"]  # once is enough


def test_what_cannot_be_pickled_is_named_with_its_path(local: s.Driver) -> None:
    """Attribute by attribute."""
    answer = local.ask("unpicklable")
    assert answer["kind"] == "TypeError", answer
    assert "self.settings['log']['lock']" in answer["error"] and "_thread.lock" in answer["error"], answer["error"]


@pytest.mark.parametrize(("check", "name"), [("captured_context", "spark"), ("captured_sc", "sc")])
def test_a_captured_session_is_explained(local: s.Driver, check: str, name: str) -> None:
    """Ranks have no driver."""
    answer = local.ask(check)
    assert answer["kind"] == "TypeError", answer
    assert f"'{name}'" in answer["error"] and "exists only at the driver" in answer["error"], answer["error"]
    assert "collect it" in answer["error"]


def test_another_cloudpickle_is_named(local: s.Driver) -> None:
    """The error names both versions and the remedy."""
    answer = local.ask("other_cloudpickle")
    assert answer["kind"] == "RuntimeError", answer
    assert (
        "the driver pickled with cloudpickle 1.0.0" in answer["error"] and "pip install cloudpickle==1.0.0" in answer["error"]
    )


@pytest.mark.nightly
def test_another_python_is_named(local: s.Driver) -> None:
    """The error names both versions, and the variable that selects the interpreter."""
    answer = local.ask("other_python")
    assert answer["kind"] == "RuntimeError", answer
    assert "driver and executors run different Pythons (set PYSPARK_PYTHON)" in answer["error"] and "3.7" in answer["error"]


def test_spark_connect_is_refused(local: s.Driver) -> None:
    """Such a session has no barrier stages. Without this check it would fail much later, with a misleading error."""
    answer = local.ask("connected")
    assert answer["kind"] == "RuntimeError", answer
    assert "Spark Connect cannot start barrier stages" in answer["error"] and "SparkSession.builder.master" in answer["error"]


def test_a_start_timeout_that_is_none(local: s.Driver) -> None:
    """HOROVOD_SPARK_START_TIMEOUT bounds the wait for executors, if start_timeout is not given."""
    answer = local.ask("start_timeout_variable", value="1.5")
    assert answer["kind"] == "ValueError" and "waiting 1.5 s" in answer["err"], answer
    answer = local.ask("start_timeout_variable", value="soon")
    assert answer["error"] == "HOROVOD_SPARK_START_TIMEOUT: 'soon' is not a number", answer


@pytest.mark.parametrize("key", ["spark.speculation", "spark.dynamicAllocation.enabled"])
def test_settings_that_do_not_go_with_it(local: s.Driver, key: str) -> None:
    """Refused before a job starts."""
    answer = local.ask("with_setting", key=key, value="true")
    assert answer["kind"] == "ValueError" and f"Set {key}=false" in answer["error"], answer


def test_still_well_after_all_that(local: s.Driver) -> None:
    """No error above has cost an executor."""
    assert local.good("runner", np=2)["size"] == 2


def test_the_manual_has_every_parameter_of_the_estimators() -> None:
    """The names in params.py."""
    names = re.findall(r'^    "(\w+)": \(', (s.ROOT / "src/python/hvd/spark/ml/defaults.py").read_text(), re.MULTILINE)
    told = re.findall(r"^\.It Fa (\w+)$", (s.ROOT / "man/hvd-spark.7").read_text(), re.MULTILINE)
    assert len(names) > 20 and names == told
