"""LightningEstimator on Lightning 2, in ranks of two real executors."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from . import session as s


def _why_not() -> str | None:
    reason = s.why_not()
    if (
        reason is None
        and subprocess.run(
            [str(s.python()), "-c", "import sys; from importlib.util import find_spec as f; sys.exit(not f('lightning'))"],
            timeout=60,
        ).returncode
    ):
        reason = "lightning is not there (scripts/setup --tests installs it)"
    return reason


REASON = _why_not()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.timeout(400)]


def trained(local: s.Driver, folder: pathlib.Path, resumes: bool) -> None:
    found = local.good("lightning_module", folder=str(folder), resumes=resumes, limit=270)
    for lines in found["watched"].values():
        assert [line.split()[:3] for line in lines] == [["2", "2", "0.1"], ["2", "4", "0.1"]][: 1 + resumes], found
        assert len({line.split()[3] for line in lines}) == 1 + resumes, found
    assert found["history"] == ["train_loss", "val_loss"] and found["logs"], found
    assert found["error"] < 0.55, found


def test_a_module_trains_and_predicts(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """All ranks train, with their number times the rate; logs are in the store."""
    trained(local, tmp_path, False)


@pytest.mark.nightly
def test_a_run_goes_on(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """A run of the same name resumes from its checkpoint."""
    trained(local, tmp_path, True)


@pytest.mark.nightly
def test_a_plain_module(local: s.Driver, tmp_path: pathlib.Path) -> None:
    """With row weights, compressed gradients, and the best model of a ModelCheckpoint."""
    found = local.good("lightning_plain", folder=str(tmp_path), limit=270)
    assert found["history"] == ["train_loss", "val_loss"]
    assert found["first"] == pytest.approx(found["same"], rel=1e-4)


@pytest.mark.parametrize("trains", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_what_is_refused(local: s.Driver, tmp_path: pathlib.Path, trains: bool) -> None:
    """The error says what to change."""
    found = local.good("lightning_refused", folder=str(tmp_path), trains=trains, limit=200)
    assert "loss: cannot be given with a LightningModule" in found["loss"]
    assert "train_minibatch_fn: not of a LightningEstimator" in found["minibatch"]
    assert not trains or "the loss of step 1 is nan (terminate_on_nan)" in found["nan"]
