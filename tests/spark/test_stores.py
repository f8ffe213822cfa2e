"""Stores other than a disk: a real S3 protocol, between s3fs and a server on this machine."""

from __future__ import annotations

import functools
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from . import session as s

REASON = s.why_not()


@functools.cache
def s3_missing() -> str | None:
    """None if the tests' interpreter has server and client, else the reason."""
    done = subprocess.run([str(s.python()), "-c", "import moto.server, s3fs"], capture_output=True, text=True, timeout=60)
    return None if done.returncode == 0 else f"no S3 server here: {done.stderr.strip().splitlines()[-1]}"


pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, Any]]:
    """Storage options of s3fs for a server with no buckets."""
    if reason := s3_missing():
        pytest.skip(reason)
    server = subprocess.Popen(
        [str(s.python()), str(s.HERE / "s3_server.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdin is not None and server.stdout is not None
    try:
        url = server.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), url
        yield {"key": "a", "secret": "b", "client_kwargs": {"endpoint_url": url, "region_name": "eu-west-1"}}
    finally:
        server.stdin.close()
        server.wait(20.0)


PROGRAM = """
import json, sys
from hvd.spark.store import FilesystemStore, Store
options = json.loads(sys.argv[1])
store = Store.create("s3://bucket/runs", **options)
assert type(store) is FilesystemStore
path = store.get_checkpoint_path("one")
assert not store.exists(path)
store.write(path, b"first")
Store.create("s3://bucket/runs", **options).write(path, b"second")
assert store.exists(path) and store.read(path) == b"second"
store.write(store.get_run_path("one") + "/_hidden", b"")
assert store.list(store.get_run_path("one")) == ["bucket/runs/runs/one/checkpoint"], store.list(store.get_run_path("one"))
store.delete(store.get_run_path("one"))
assert not store.exists(path) and store.list(store.get_run_path("one")) == []
store.delete(store.get_run_path("none"))
try:
    store.read(path)
except FileNotFoundError:
    print("well")
"""


@pytest.mark.nightly
def test_files_in_s3(s3: dict[str, Any]) -> None:
    """All functions of a store, and no stale data after another process wrote."""
    import json

    env = s.environment(pathlib.Path("/nowhere"))
    done = subprocess.run(
        [str(s.python()), "-c", PROGRAM, json.dumps(s3)], env=env, capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "well\n", done.stderr


@pytest.mark.nightly
def test_an_estimator_trains_through_s3(local: s.Driver, s3: dict[str, Any]) -> None:
    """Tables and checkpoint go there; the tables are removed afterwards; a second run resumes from the checkpoint."""
    found = local.good("through_s3", options=s3, limit=150)
    assert found == {"epochs": [1, 2], "left": ["bucket/runs/runs/u/checkpoint"]}


HOROVODS_NAMES = """
import sys
from horovod.spark.common.store import AbstractFilesystemStore, FilesystemStore, HDFSStore, LocalStore, Store
folder = sys.argv[1]
store = Store.create(folder + "/runs")
assert isinstance(store, AbstractFilesystemStore) and LocalStore.matches(folder) and not HDFSStore.matches(folder)
assert FilesystemStore.matches("s3://bucket/runs") and HDFSStore.matches("hdfs://host/runs")
for name in ("b.ckpt", "a.ckpt", "a.txt"):
    store.write(store.get_checkpoint_path("one") + "/" + name, name.encode())
found = store.get_checkpoints("one")
assert [path.rpartition("/")[2] for path in found] == ["a.ckpt", "b.ckpt"] and store.read(found[0]) == b"a.ckpt", found
assert store.get_checkpoints("none") == [] and store.fs.get_file_info(found[0]).size == 6
assert store.get_full_path_fn()("/x/y") == store.get_full_path("/x/y") == "file:///x/y"
store.copy(found[0], store.get_run_path("two") + "/copied")
assert store.read(store.get_run_path("two") + "/copied") == b"a.ckpt"
print("well")
"""


def test_methods_with_horovods_names(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [str(s.python()), "-c", HOROVODS_NAMES, str(tmp_path)],
        env=s.environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and done.stdout == "well\n", done.stderr
