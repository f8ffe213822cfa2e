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
    first, *_, last = made["history"]
    assert len(made["history"]) == 4 and set(first) == {"epoch", "train", "validation"}
    assert [list(group) for group in first["validation"]["all_metrics"]] == [["group_0_digit"]]
    assert last["train"]["loss"] < first["train"]["loss"]
    assert made["loaded"] == [True, True]
    assert made["left"] == ["runs"]  # the tables are gone, the checkpoint stays
    return made


def test_from_a_table_to_a_model_and_back(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """Fits on a table, saves, loads and predicts, all in one session."""
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
    """The error has the column's name and both numbers."""
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
        ({"terminate_on_nan": True}, "terminate_on_nan: not of a TorchEstimator"),
        ({"num_proc": 2}, "both backend and num_proc"),
        ({"backward_passes_per_step": 0}, "backward_passes_per_step is 0"),
        ({"loss_weights": [1.0, 2.0]}, "loss_weights is [1.0, 2.0]: it must be a list, one for each of digit"),
        ({"input_shapes": [[8, 8], [1]]}, "it must be a list, one for each of scaled"),
        ({"mp_start_method": "thread"}, "mp_start_method is 'thread': it must be one of fork"),
        ({"custom_objects": {"a": 1}}, "custom_objects: not of a TorchEstimator"),
    ],
)
def test_bad_columns_and_parameters(local: s.Driver, tmp_path: pathlib.Path, given: dict[str, Any], text: str) -> None:
    """Wrong columns and parameters are refused before the job starts."""
    answer = local.ask("bad_columns", folder=str(tmp_path), **given)
    assert text in answer["error"], answer


@pytest.mark.nightly
def test_resumes_from_its_checkpoint(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """The history continues."""
    assert local.good("resumed", folder=str(tmp_path))["epochs"] == 4


@pytest.mark.nightly
def test_stores_by_url_and_tables_of_others(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """fsspec; fit_on_parquet."""
    assert local.good("by_url", folder=str(tmp_path)) == [True, 1, True]
    losses = local.good("on_parquet", folder=str(tmp_path))
    assert losses[-1] < losses[0]


def test_horovods_own_test_and_a_seed_that_repeats(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """A functional loss with weights, a row's shape, dots in names; files of one size; scalars and vectors as outputs."""
    assert local.good("xor_twice", folder=str(tmp_path), limit=150) == [True, "float", True, 2, 0.1, True]


@pytest.mark.nightly
def test_prepared_tables(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """Prepared tables are permanent, and a nested table has a number. fit() does not change them, and prepare_data does not
    replace a folder that is not a table."""
    found = local.good("prepared", folder=str(tmp_path), limit=150)
    assert found["index"] == [None, 1]
    assert found["stages"] == [["train", "validation"], ["train"], ["train"], ["train", "validation"]]
    assert found["left"] == ["mine", "mine.1", "other"]
    assert "mine is to be replaced by a table, but holds" in found["said"] and "notes.txt" in found["said"]


@pytest.mark.nightly
@pytest.mark.parametrize("example", ["pytorch_mnist", "keras_mnist", "rossmann"])
def test_horovods_examples(local: s.Driver, tmp_path: pathlib.Path, example: str) -> None:
    """The examples with small data."""
    found = local.good(example, folder=str(tmp_path), limit=200)
    assert found.get("accuracy", 1.0) > 0.7 and found.get("rate", 1.0) == 1.0 and found.get("epochs", 10) == 10, found
    assert found.get("same", True) and found.get("error", 0.0) < 0.3 and found.get("best", 0) <= found.get("first", 1), found


def test_what_is_refused(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """The error gives the remedy; no option is silently ignored."""
    found = local.good("refused", folder=str(tmp_path))
    assert found.pop("names") == [0, True, True]
    expected = {
        "weights": "bare cannot give it: let it take reduction=",
        "both": "both loss and loss_constructors",
        "losses": "2 losses for 1 label columns: give one for each, or one for all",
        "metrics": "2 metrics of a group for 1 label columns",
        "optimizer": "needs an optimizer, or a compiled model",
        "inputs": "2 feature columns for a model with 1 inputs: give one for each",
        "foreign": "train_minibatch_fn: not of a KerasEstimator; leave it out",
        "module": "NVTabularDataModule is not there in hvdrun: leave data_module out",
    }
    assert {name for name, text in expected.items() if text not in found[name]} == set(), found


def test_one_name_for_both(local: s.Driver) -> None:
    """HorovodEstimator inspects the model."""
    assert local.good("by_framework") == ["TorchEstimator", "KerasEstimator"]
