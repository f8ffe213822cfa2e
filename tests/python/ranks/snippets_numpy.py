"""The pages' programs for NumPy, and without a framework."""

from types import SimpleNamespace

import numpy as np
import snippets

import hvd.numpy as hvd

hvd.init()


def check_the_manual():
    snippets.run("man/hvd-numpy.7", "array.array", {})


def check_the_same_batch():
    names = snippets.regression(np)
    snippets.same_batch(hvd, names)
    state = hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, batches=hvd.elastic.GlobalBatches(64, batch_size=16))
    names |= {"epoch": 1, "state": state, "apply": lambda weights, gradients: weights - gradients / 10}

    @hvd.elastic.run(keep_global_batch=True)
    def train(state):
        return snippets.run("man/hvd-elastic.7", "state.batches.set_epoch(epoch)", names)

    assert np.isfinite(train(state)["loss"]) and len(state.batches) > 0


def check_a_report():
    logged = []
    names = {"hvd": hvd, "run": SimpleNamespace(log=logged.append)}
    snippets.run("docs/slow.md", "hvd.report()", names)
    assert logged == []  # the first half minute is not over
    later = SimpleNamespace(report=lambda: {"step_seconds": 1.5, "waiting_seconds": 0.5})
    snippets.run("docs/slow.md", "hvd.report()", names | {"hvd": later})
    assert logged == [{"step": 1.5, "waiting": 0.5}]
