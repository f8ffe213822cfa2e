"""Before a job starts, hvdrun reports options without effect on it, and a state folder that cannot be written."""

from __future__ import annotations

import os
import pathlib

import pytest

from support import hvdrun


@pytest.mark.parametrize("option", ["--autotune-log-file", "--autotune-warmup-samples", "--autotune-steps-per-sample"])
def test_autotunes_options_without_autotune(option: str) -> None:
    said = f"hvdrun: {option} has no effect: nothing is tuned without --autotune\n"
    done = hvdrun.run("-np", "1", option, "7", "--", "true")
    assert (done.returncode, done.stderr) == (0, said)
    for known in ("--autotune", "--no-autotune"):
        done = hvdrun.run("-np", "1", known, option, "7", "--", "true")
        assert (done.returncode, done.stderr) == (0, "")


def test_a_variable_may_be_for_other_jobs() -> None:
    done = hvdrun.run("-np", "1", "--", "true", env={"HOROVOD_AUTOTUNE_LOG": "log"})
    assert (done.returncode, done.stderr) == (0, "")


def test_a_config_file_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "job.yaml").write_text("autotune:\n  log_file: log\n")
    done = hvdrun.run("-np", "1", "--config-file", "job.yaml", "--", "true", cwd=tmp_path)
    assert done.stderr == "hvdrun: job.yaml:2:13 has no effect: nothing is tuned without --autotune\n"


def test_an_absent_key_for_ssh(tmp_path: pathlib.Path) -> None:
    done = hvdrun.run("-np", "1", "-i", "none", "--", "true", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        0,
        "hvdrun: --ssh-identity-file: 'none': No such file or directory; it has no effect: "
        "all ranks are on this host, which needs no ssh\n",
    )
    (tmp_path / "key").touch()
    done = hvdrun.run("-np", "1", "-i", "key", "--", "true", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_absent_network_interface() -> None:
    """The job of one host does not need it, but torch's gloo fails with it."""
    for names, absent in (("lo", ""), ("127.0.0.0/8", ""), ("nosuch0", "nosuch0"), ("lo,nosuch1", "nosuch1")):
        done = hvdrun.run("-np", "1", "--network-interface", names, "--", "true")
        said = (
            f"hvdrun: --network-interfaces: this host has no interface '{absent}': torch's gloo and NCCL will fail; "
            "hvd does not use it, since all ranks are on this host\n"
        )
        assert (done.returncode, done.stderr) == (0, said if absent else "")


@pytest.mark.parametrize("inside", ["", "deep/er"])
def test_a_state_folder_that_is_a_file(inside: str, tmp_path: pathlib.Path) -> None:
    """The first commit would be lost."""
    (tmp_path / "file").touch()
    name = os.path.join("file", inside) if inside else "file"
    done = hvdrun.run("-np", "1", "--state-dir", name, "--", "touch", "ran", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        f"hvdrun: --state-dir: '{name}' cannot keep the state: file: Not a directory\n"
        "        name a folder that can be written\n",
    )
    assert not (tmp_path / "ran").exists()


def test_a_state_folder_on_a_read_only_disk() -> None:
    """No user, not even root, can create files in /proc/1."""
    done = hvdrun.run("-np", "1", "--state-dir", "/proc/1/state", "--", "true")
    assert done.returncode == 2
    assert done.stderr.startswith("hvdrun: --state-dir: '/proc/1/state' cannot keep the state: /proc/1: "), done.stderr


def test_a_state_folder_that_the_job_makes(tmp_path: pathlib.Path) -> None:
    done = hvdrun.run("-np", "1", "--state-dir", "new/folder", "--", "true", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "new").exists()
