"""Spark's own authentication, encryption and TLS: the job uses them and needs nothing else."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from netns.cluster import Cluster
from netns.fixtures import make

from . import session as s

REASON = s.why_not()
pytestmark = [
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.timeout(300),
    pytest.mark.nightly,
]


@pytest.fixture(scope="module")
def two_secure_hosts() -> Iterator[Cluster]:
    """Separate hosts, because Spark's settings are those of a whole cluster."""
    yield from make(2)


@pytest.fixture
def settings() -> Iterator[tuple[str, ...]]:
    """Authentication, encrypted traffic between all of Spark's processes, TLS with a certificate of its own."""
    folder = pathlib.Path("/var/tmp/hvd-spark-tls")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    store = folder / "keys.jks"
    command = ["keytool", "-genkeypair", "-keystore", str(store), "-alias", "spark", "-keyalg", "RSA", "-dname", "CN=spark"]
    words = ["-storepass", "not-secret-here", "-keypass", "not-secret-here", "-validity", "2"]
    subprocess.run([*command, *words], check=True, capture_output=True, timeout=60)
    ssl = {"enabled": "true", "keyStore": store, "keyStorePassword": "not-secret-here", "keyPassword": "not-secret-here",
           "trustStore": store, "trustStorePassword": "not-secret-here", "protocol": "TLSv1.3"}  # fmt: skip
    yield (
        "spark.authenticate=true", "spark.authenticate.secret=for-this-test-only", "spark.network.crypto.enabled=true",
        "spark.io.encryption.enabled=true", *(f"spark.ssl.{key}={value}" for key, value in ssl.items()),
    )  # fmt: skip
    shutil.rmtree(folder, ignore_errors=True)


def test_authentication_encryption_and_tls(two_secure_hosts: Cluster, settings: tuple[str, ...]) -> None:
    """Four ranks on two hosts, and no secret of Spark is visible to a rank."""
    cluster = s.Standalone(two_secure_hosts, settings=settings)
    try:
        driver = cluster.driver(settings=settings)
        try:
            values = driver.good("all_results", np=4, limit=150)
            assert [value["rank"] for value in values] == [0, 1, 2, 3] and values[0]["sum"] == [10.0] * 3
            assert driver.good("secrets_in_ranks", np=4) == []
        finally:
            driver.close()
    finally:
        cluster.close()
