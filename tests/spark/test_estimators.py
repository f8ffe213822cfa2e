"""Estimators as stages of Spark ML pipelines."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from . import session as s

REASON = s.why_not()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.timeout(300)]


def walk(local: s.Driver, tmp_path: pathlib.Path) -> dict[str, Any]:
    """SQL, scaler, estimator in a Pipeline, save, load, predict, evaluate."""
    made: dict[str, Any] = local.good("torch_pipeline", folder=str(tmp_path), limit=150)
    assert made["accuracy"] > 0.75, made
    assert {name: len(values) for name, values in made["history"].items()} == dict.fromkeys(
        ("loss", "correct", "val_loss", "val_correct"), 4
    )
    assert made["history"]["loss"][-1] < made["history"]["loss"][0]
    assert made["loaded"] == [True, True]
    assert made["left"] == ["runs"]  # the tables are gone, the checkpoint stays
    return made


def test_from_a_table_to_a_model_and_back(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """In one session."""
    walk(local, tmp_path)


@pytest.mark.nightly
def test_a_new_session_loads_and_predicts(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """Another driver process predicts the same."""
    made = walk(local, tmp_path)
    (tmp_path / "other").mkdir()
    other = s.local_session(tmp_path / "other")
    try:
        found = other.good("load_pipeline", folder=str(tmp_path), limit=150)
    finally:
        other.close()
    assert found["accuracy"] == pytest.approx(made["accuracy"])
    assert found["first"] == pytest.approx(made["first"], rel=1e-4)


@pytest.mark.nightly
def test_keras(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """Arrays, weights, a validation column, callbacks, save and load."""
    found = local.good("keras_wine", folder=str(tmp_path), limit=200)
    assert found["right"] > 0.8 and found["same"], found
    assert found["history"] == {"loss": 6, "accuracy": 6, "val_loss": 6, "val_accuracy": 6}


@pytest.mark.nightly
@pytest.mark.parametrize(("rows", "partitions", "per_group"), [(50, 1, 1000), (64, 12, 4)])
def test_few_row_groups_and_empty_partitions(
    local: s.Driver, tmp_path: pathlib.Path, rows: int, partitions: int, per_group: int
) -> None:
    """12 partitions of 5 values, most of them empty; one row group for two ranks: each rank reads its rows."""
    found = local.good("regression", folder=str(tmp_path), rows=rows, partitions=partitions, per_group=per_group)
    assert found["type"] == "double"
    assert found["loss"][-1] < found["loss"][0] / 4, found


def test_nulls_and_too_few_rows(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """Said, with the column's name and both numbers."""
    options: dict[str, Any] = {"folder": str(tmp_path), "partitions": 1, "per_group": 10}
    assert "column 'y' has 1 nulls: drop or fill them" in local.ask("regression", rows=20, nulls=True, **options)["error"]
    assert "1 rows for training and 2 ranks" in local.ask("regression", rows=1, **options)["error"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"feature_cols": ["colour"]}, "feature column 'colour' is not in the table; it has scaled, digit, word"),
        ({"feature_cols": ["word"]}, "feature column 'word' is of type string"),
        ({"label_cols": []}, "needs label_cols"),
        ({"validation": "held"}, "validation column 'held' is not in the table"),
        ({"validation": 1.5}, "between 0 and 1"),
        ({"epochs": 0}, "epochs is 0"),
        ({"epochen": 3}, "unknown parameter epochen"),
    ],
)
def test_bad_columns_and_parameters(local: s.Driver, tmp_path: pathlib.Path, given: dict[str, Any], text: str) -> None:
    """Before anything runs."""
    answer = local.ask("bad_columns", folder=str(tmp_path), **given)
    assert text in answer["error"], answer


@pytest.mark.nightly
def test_resumes_from_its_checkpoint(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """The history goes on."""
    assert local.good("resumed", folder=str(tmp_path))["epochs"] == 4


@pytest.mark.nightly
def test_stores_by_url_and_tables_of_others(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """fsspec; fit_on_parquet."""
    assert local.good("by_url", folder=str(tmp_path)) == [True, 1, True]
    losses = local.good("on_parquet", folder=str(tmp_path))
    assert losses[-1] < losses[0]


def test_one_name_for_both(local: s.Driver) -> None:
    """HorovodEstimator looks at the model."""
    assert local.good("by_framework") == ["TorchEstimator", "KerasEstimator"]
