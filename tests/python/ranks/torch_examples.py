"""The torch examples, unchanged, on all ranks."""

import pathlib
import runpy

import horovod.torch as hvd

hvd.init()
EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"


def run(name, **arguments):
    return runpy.run_path(str(EXAMPLES / name))["main"](**arguments)


def check_synthetic():
    figures = run("torch_synthetic.py", batch_size=4, iterations=2, steps=2)
    assert figures["total"] > figures["per_rank"] > 0 and figures["efficiency"] > 0


def check_embedding():
    found = run("torch_embedding.py", epochs=4)
    assert found["accuracy"] > 0.85, found
    assert found["together"] > 0 and found["dense"] > 0


def check_mixed_precision():
    found = run("torch_mixed_precision.py", epochs=8)
    assert found["accuracy"] > 0.85, found
    assert found["together"] > 0


def check_adasum():
    losses = run("torch_adasum.py", epochs=3)
    assert all(loss[-1] < loss[0] for loss in losses.values()), losses
    assert losses["adasum"][-1] < losses["average"][-1], losses  # at one rank's rate


def check_process_sets():
    found = run("torch_process_sets.py", epochs=8)
    assert found["accuracy"] > 0.8, found


def check_sharded():
    found = run("torch_sharded.py", epochs=6)
    assert found["accuracy"] > 0.95 and found["part"] < 0.6 * found["whole"] and found["apart"] < 1e-4, found
