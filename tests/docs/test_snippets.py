"""Runs every program on a page: most by tests/python/ranks/snippets_*.py, once for each framework that the page names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from python import snippets
from support.hvdrun import ROOT

# Programs that cannot run unchanged, and the test that runs them.
ELSEWHERE = {
    ("man/hvd-gpu.7", "torch.cuda.CUDAGraph()"): "tests/gpu/graphs_on_gpu.py, where there is a GPU",
    ("man/hvd-gpu.7", "use_mem_pool"): "tests/gpu/ranks_on_gpu.py, where there is a GPU",
    ("docs/spark.md", "SparkSession.builder"): "tests/spark calls these on a session of its own",
    ("docs/spark.md", "run_elastic(main"): "tests/spark",
    ("docs/spark.md", "TorchEstimator(num_proc=2"): "tests/spark: the estimators",
    ("docs/spark.md", "write_manifest"): "tests/spark",
    ("docs/ray.md", "ray.init(address="): "tests/ray_cluster",
    ("docs/ray.md", "min_workers=2, max_workers=8"): "tests/ray_cluster/test_elastic.py has such an executor",
    ("man/hvd-spark.7", "HorovodRunner(np=2)"): "tests/spark",
    ("docs/elastic.md", 'init_method="hvd://"'): "tests/failures/elastic_ddp.py",
    ("man/hvd-mxnet.7", "hvd.DistributedTrainer"): "tests/python/ranks/mxnet_training.py, where MXNet is",
    ("man/hvd-tensorflow.7", "dataset.send_to_data_service"): "tests/python/test_tf_data_service.py",
    ("man/hvd-tensorflow.7", "as address:"): "tests/python/test_tf_data_service.py",
    ("docs/quickstart.md", "hvd.run(train"): "below",
}


def test_each_program_is_run() -> None:
    pattern = re.compile(r'run\(\s*"([a-z-]+/[a-z0-9.-]+|README\.md)",\s*"([^"]+)"')
    calls = {call for file in (ROOT / "tests/python").rglob("*snippets*.py") for call in pattern.findall(file.read_text())}
    calls |= {("docs/quickstart.md", "# train.py")} | set(ELSEWHERE)
    pages = snippets.all_blocks()
    assert len(pages) >= 20
    for file, block in pages:
        found = [part for path, part in calls if path == file and part in block]
        assert len(found) == 1, f"{file}: {len(found)} tests run\n{block}"


def test_a_function_in_ranks(capfd: pytest.CaptureFixture[str]) -> None:
    def train(rate: float) -> tuple[int, float]:
        import hvd.numpy as hvd

        hvd.init()
        return hvd.rank(), rate

    names: dict[str, Any] = {"train": train}
    assert snippets.run("docs/quickstart.md", "hvd.run(train", names)["results"] == [(0, 0.01), (1, 0.01)]
