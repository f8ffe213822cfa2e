"""torch's own tests of process groups, over the backend "hvd"."""

from __future__ import annotations

import ast
import importlib.util
import pathlib
import re

import pytest

from support import hvdrun

PROGRAM = pathlib.Path(__file__).parent / "ranks/torchs_own.py"
RANKS = 3
# Tests that cannot pass here, with the reason; all but the first also fail with gloo.
NOT_HERE = {
    "test_get_backend": "asks for gloo's name",
    "test_barrier_timeout_global": "makes a group anew from a file that torch's own launcher makes",
    "test_new_subgroups_with_group_param": "is for 4 ranks",
    "test_batch_isend_irecv_op_err": "asks for a GPU without looking for one",
    "test_batch_isend_irecv_mixed_backend_err": "asks for NCCL",
    "test_all_to_all_cuda": "asks for a GPU without looking for one",
    "test_all_to_all_cuda_complex": "asks for a GPU without looking for one",
    "test_all_to_all_full_group_cuda": "asks for a GPU without looking for one",
    "test_SyncBatchNorm_process_group": "needs torchvision",
}


def names_of(path: pathlib.Path) -> list[str]:
    """Returns the names of torch's tests, except tests whose parameters depend on installed packages."""
    (cases,) = [node for node in ast.walk(ast.parse(path.read_text())) if getattr(node, "name", "") == "_DistTestBase"]
    assert isinstance(cases, ast.ClassDef)
    plain = [node for node in cases.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return [node.name for node in plain if len(node.args.args) == 1 and node.name not in NOT_HERE]


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_process_groups() -> None:
    for needed in ("torch", "expecttest"):
        pytest.importorskip(needed)
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    path = pathlib.Path(spec.origin).parent / "testing/_internal/distributed/distributed_test.py"
    if not path.exists():
        pytest.skip("this torch comes without its tests")
    left = names_of(path)
    assert len(left) > 200
    passed, failed = [], []
    while left:
        done = hvdrun.run("-np", str(RANKS), *hvdrun.python_args(), str(PROGRAM), *left, timeout=1000)
        begun = re.findall(r"BEGIN (\w+)", done.stdout)
        assert begun, done.stderr
        said = re.findall(r"RESULT (\w+) (OK|SKIP|FAIL)(.*)", done.stdout)
        for name in begun:
            results = [result for which, result, _ in said if which == name]
            if len(results) == RANKS and "FAIL" not in results:
                passed += [name] if "OK" in results else []
            else:
                failed.append(f"{name}: {[why for which, result, why in said if which == name and result == 'FAIL']}")
        left = left[left.index(begun[-1]) + 1 :]
    print(f"{len(passed)} of torch's own tests passed")
    assert not failed
    assert len(passed) > 80
