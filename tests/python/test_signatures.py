"""The methods of Collectives (hvd._runtime.collectives) are the list of all operations: a framework's functions have their
parameters, with their defaults, and at most a few of the framework's own."""

import json
import subprocess

import pytest

from python.harness import environment, has, jax_interpreter, mxnet_interpreter, python, tensorflow
from support.forms import few

# Arguments that a framework adds to any operation, and differences that Horovod has too.
OWN = {
    "hvd.torch": {"compression"},
    "hvd.mxnet": {"priority"},
    "hvd.jax": {"compression"},
    "hvd.tensorflow": {"compression", "device_dense", "device_sparse", "ignore_name_scope"},
}
DIFFERENT = {
    "hvd.jax": ["barrier has name"],
    "hvd.tensorflow": ["barrier has name", "broadcast_ has variables", "broadcast_ lacks tensor", "join lacks process_set"],
}
PROGRAM = """
import importlib, inspect, json, sys
from hvd._runtime.collectives import Collectives

package, own, found = importlib.import_module(sys.argv[1]), set(json.loads(sys.argv[2])), []
for name, method in inspect.getmembers(Collectives, inspect.isfunction):
    if name.startswith("_") or not hasattr(package, name):
        continue
    listed = dict(inspect.signature(method).parameters)
    listed.pop("self")
    there = {k: p for k, p in inspect.signature(getattr(package, name)).parameters.items() if not k.startswith("_")}
    found += [f"{name} has {key}" for key in sorted(there.keys() - listed.keys() - own)]
    found += [f"{name} lacks {key}" for key in sorted(listed.keys() - there.keys())]
    for key in sorted(listed.keys() & there.keys()):
        if there[key].default != listed[key].default:
            found.append(f"{name}: {key}={there[key].default!r}")
print(json.dumps(found))
"""


@pytest.mark.parametrize("package", few(["hvd.numpy", "hvd.torch", "hvd.jax", "hvd.mxnet", "hvd.tensorflow"], 3))
def test_signatures(package: str) -> None:
    interpreter = {"hvd.mxnet": mxnet_interpreter, "hvd.jax": jax_interpreter, "hvd.tensorflow": tensorflow}
    program = interpreter.get(package, python)()
    if not has(package.partition(".")[2], interpreter=program):
        pytest.skip(f"{program} has no {package.partition('.')[2]}")
    command = [program, "-c", PROGRAM, package, json.dumps(sorted(OWN.get(package, ())))]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == DIFFERENT.get(package, [])
