"""What a TorchEstimator's ranks do with its parameters, without Spark."""

import numpy as np
import torch
from estimator_tables import X, remove_folders, store, written

import hvd.torch as hvd
from hvd.spark.ml.params import PARAMS
from hvd.spark.ml.torch_training import train
from hvd.spark.ml.training import Training

hvd.init()
RANK = hvd.rank()


def trained(path, kept, weight=None, validation=None, loss=None, metrics=None, module=None, rate=0.2, **given):
    """(slope and offset, what train() returned) on this rank."""
    torch.manual_seed(0)
    model = module or torch.nn.Linear(1, 1)
    settings = {name: default for name, (default, _) in PARAMS.items()}
    settings.update({"batch_size": 5, "epochs": 3, "verbose": 0, "random_seed": 1, **given})
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.5)
    work = {"model": model, "optimizer": optimizer, "losses": [loss or torch.nn.MSELoss()], "metrics": metrics or {}}
    labels, run = ["y"], given.get("run_id", "run")
    result = train(
        Training(kept, run, ["x"], labels, weight, bool(validation), settings, work, train_path=path, val_path=validation or "")
    )
    hvd.barrier()
    return [float(p.detach().flatten()[0]) for p in model.parameters()], result


def histories(result):
    return hvd.broadcast_object(result["history"] if RANK == 0 else None, root_rank=0)


def check_rows_of_weight_zero_do_not_count():
    good = np.arange(60) % 3 != 0
    for loss in (torch.nn.MSELoss(), lambda out, y, sample_weight: ((out - y)[:, 0] ** 2 * sample_weight).mean()):
        kept = store()
        path = written(kept, y=np.where(good, 2 * X, -7 * X + 3), weight=good.astype("float32"))
        found, _ = trained(path, kept, weight="weight", loss=loss, epochs=12)
        assert np.allclose(found, [2, 0], atol=0.05), found


def check_callbacks_on_every_rank_after_every_epoch():
    called = []
    kept = store()
    path = written(kept, y=X)
    trained(path, kept, callbacks=[lambda epoch, model, logs: called.append((epoch, type(model).__name__, sorted(logs)))])
    assert called == [(epoch, "Linear", ["loss"]) for epoch in range(3)], called


def check_a_seed_makes_it_repeatable():
    found = []
    for seed in (1, 1, 2):
        kept = store()
        found.append(histories(trained(written(kept, y=X**2), kept, random_seed=seed)[1])["loss"])
    assert found[0] == found[1] != found[2] and len(found[0]) == 3


def check_a_resumed_run_is_the_same_as_one_in_one_go():
    kept = store()
    path = written(kept, y=X**2)
    straight, result = trained(path, kept, epochs=4, run_id="straight")
    whole = histories(result)
    _, result = trained(path, kept, epochs=2, run_id="parts")
    assert histories(result)["loss"] == whole["loss"][:2]
    resumed, result = trained(path, kept, epochs=4, run_id="parts")
    assert histories(result) == whole and resumed == straight
    _, result = trained(path, kept, epochs=4, run_id="parts")
    assert histories(result) == whole  # nothing left to do


def check_history_has_validation_and_metrics_as_means_over_all_ranks():
    kept = store()
    path = written(kept, y=2 * X)

    def seen(out, y):
        return torch.tensor(float(RANK))

    _, result = trained(path, kept, validation=path, metrics={"seen": seen}, epochs=2, val_batch_size=7)
    found = histories(result)
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys(("loss", "seen", "val_loss", "val_seen"), 2)
    assert found["seen"] == [0.5, 0.5] and found["val_loss"][0] < found["loss"][0]


def check_a_transformation_of_rows():
    def fixed(frame):
        frame = frame[frame["x"] >= -0.2]  # rank 0 has few of them
        return frame.assign(y=frame["x"] * 3.0)

    kept = store()
    found, _ = trained(written(kept, y=np.zeros(60)), kept, transformation_fn=fixed, epochs=25)
    assert np.allclose(found, [3, 0], atol=0.05), found


def check_more_steps_than_rows_and_fewer():
    for steps in (20, 2):
        kept, count = store(), []
        module = torch.nn.Linear(1, 1)
        module.register_forward_hook(lambda *_, count=count: count.append(1))
        trained(written(kept, y=X), kept, train_steps_per_epoch=steps, epochs=2, module=module)
        assert len(count) == 2 * steps + (RANK == 0), count  # rank 0 looks at the outputs' widths


def check_gradients_of_several_batches():
    kept = store()
    path = written(kept, y=2 * X)
    settings = {"shuffle": False, "epochs": 1, "rate": 0.01}
    one, _ = trained(
        path, kept, batch_size=30, run_id="one", **{**settings, "rate": 0.03}
    )  # gradients are added, as Horovod does
    three, _ = trained(path, kept, batch_size=10, backward_passes_per_step=3, run_id="three", **settings)
    apart, _ = trained(path, kept, batch_size=10, run_id="apart", **settings)
    assert np.allclose(one, three, atol=1e-5), (one, three)
    assert not np.allclose(apart, one, atol=1e-6)
    trained(path, kept, batch_size=10, backward_passes_per_step=2, run_id="rest", **settings)  # 3 batches: one is left


def check_nothing_is_left():
    remove_folders()
