"""The parameters of a TorchEstimator on its ranks, without Spark."""

import io
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from estimator_tables import X, remove_folders, store, written

import hvd.torch as hvd
from hvd.spark.ml.datamodule import DataModule
from hvd.spark.ml.defaults import ACCEPTED, PARAMS
from hvd.spark.ml.torch_training import device_of, train
from hvd.spark.ml.training import Training

hvd.init()
RANK = hvd.rank()


def settled(**given):
    """The parameters' values in the ranks' form."""
    defaults = {**{name: default for name, (default, _) in PARAMS.items()}, **ACCEPTED}
    return {**defaults, "batch_size": 5, "epochs": 3, "verbose": 0, "random_seed": 1, **given}


def trained(path, kept, weight=None, validation=None, loss=None, metrics=(), module=None, rate=0.1, labels=("y",), **given):
    """(slope and offset, result of train()) on this rank.  rate: of one rank."""
    torch.manual_seed(0)
    model = module or torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=given.pop("momentum", 0.5))
    losses = loss if isinstance(loss, list) else [loss or torch.nn.MSELoss()]
    work = {"model": model, "optimizer": optimizer, "losses": losses, "metrics": list(metrics)}
    run = given.pop("run_id", "run")
    result = train(
        Training(kept, run, ["x"], list(labels), weight, bool(validation), settled(**given), work,
                 train_path=path, val_path=validation or "")
    )  # fmt: skip
    hvd.barrier()
    return [float(p.detach().flatten()[0]) for p in model.parameters()], result


def histories(result):
    return hvd.broadcast_object(result["history"] if RANK == 0 else None, root_rank=0)


def losses_of(result, stage="train"):
    return [epoch[stage]["loss"] for epoch in histories(result)]


def check_rows_of_weight_zero_do_not_count():
    good = np.arange(60) % 3 != 0
    for loss in (torch.nn.MSELoss(), torch.nn.functional.mse_loss):
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
        found.append(losses_of(trained(written(kept, y=X**2), kept, random_seed=seed)[1]))
    assert found[0] == found[1] != found[2] and len(found[0]) == 3


def check_a_resumed_run_is_the_same_as_one_in_one_go():
    kept = store()
    path = written(kept, y=X**2)
    straight, result = trained(path, kept, epochs=4, run_id="straight")
    whole = histories(result)
    _, result = trained(path, kept, epochs=2, run_id="parts")
    assert histories(result) == whole[:2]
    resumed, result = trained(path, kept, epochs=4, run_id="parts")
    assert histories(result) == whole and resumed == straight
    _, result = trained(path, kept, epochs=4, run_id="parts")
    assert histories(result) == whole  # no work is left


def check_history_has_horovods_form_and_means_over_all_ranks():
    kept = store()
    path = written(kept, y=2 * X)

    def seen(out, y):
        return torch.tensor(float(RANK))

    groups = [{"group_0_y": (seen, 0)}, {"own": (lambda out, y: 7.0, 0)}]
    called = []
    options = {"callbacks": [lambda epoch, model, logs: called.append(logs)], "val_batch_size": 7, "epochs": 2}
    _, result = trained(path, kept, validation=path, metrics=groups, **options)
    found = histories(result)
    assert [epoch["epoch"] for epoch in found] == [0, 1] and set(found[0]) == {"epoch", "train", "validation"}
    assert all(
        epoch[stage]["all_metrics"] == [{"group_0_y": 0.5}, {"own": 7.0}] for epoch in found for stage in list(epoch)[1:]
    )
    assert found[0]["validation"]["loss"] < found[0]["train"]["loss"]
    assert called[0] == {
        "loss": found[0]["train"]["loss"], "group_0_y": 0.5, "own": 7.0,
        "val_loss": found[0]["validation"]["loss"], "val_group_0_y": 0.5, "val_own": 7.0,
    }  # fmt: skip


def check_the_logs_lie_in_the_store():
    """A TensorBoard file: records with right lengths and checks, our tags in them."""
    kept = store()
    _, result = trained(written(kept, y=X), kept, epochs=2, validation=kept.get_train_data_path(), run_id="logged")
    (name,) = kept.list(kept.get_logs_path("logged"))
    assert "/events.out.tfevents." in name
    data, records = kept.read(name), []
    while data:
        length = struct.unpack("<Q", data[:8])[0]
        records.append(data[12 : 12 + length])
        data = data[16 + length :]
    assert b"brain.Event:2" in records[0] and len(records) == 3
    assert all(b"train/loss\x15" in record and b"val/loss\x15" in record for record in records[1:])
    last = struct.pack("<f", losses_of(result)[-1])
    assert b"train/loss\x15" + last in records[-1] and b"train/loss\x15" + last not in records[1]


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
        assert len(count) == 2 * steps + (RANK == 0), count  # rank 0 inspects the outputs' widths


def check_gradients_of_several_batches_are_averaged():
    kept = store()
    path = written(kept, y=2 * X)
    settings = {"shuffle": False, "epochs": 1, "rate": 0.05}
    one, _ = trained(path, kept, batch_size=30, run_id="one", **settings)
    three, _ = trained(path, kept, batch_size=10, backward_passes_per_step=3, run_id="three", **settings)
    apart, _ = trained(path, kept, batch_size=10, run_id="apart", **settings)
    assert np.allclose(one, three, atol=1e-5), (one, three)
    assert not np.allclose(apart, one, atol=1e-6)
    trained(path, kept, batch_size=10, backward_passes_per_step=2, run_id="rest", **settings)  # 3 batches: one is left


def check_the_rate_is_multiplied_by_the_ranks_and_kept_as_of_one():
    """One step over all rows equals that of one process with twice the rate; also after a resumed run."""
    kept = store()
    path = written(kept, y=2 * X)
    options = {"batch_size": 30, "shuffle": False, "rate": 0.05, "run_id": "rate", "momentum": 0.0}
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    alone = torch.optim.SGD(model.parameters(), lr=0.05 * hvd.size())
    x, y = torch.from_numpy(X).reshape(-1, 1), torch.from_numpy(2 * X).reshape(-1, 1)
    for epochs in (1, 2):
        alone.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        alone.step()
        found, result = trained(path, kept, epochs=epochs, **options)
        assert np.allclose(found, [float(p.detach().flatten()[0]) for p in model.parameters()], atol=1e-5)
        if RANK == 0:
            state = torch.load(io.BytesIO(result["state"]), weights_only=False)
            assert state["optimizer"]["param_groups"][0]["lr"] == 0.05


def check_weights_are_not_divided_by_their_sum():
    kept = store()
    path = written(kept, y=2 * X, half=np.full(60, 0.5, "float32"))
    options = {"batch_size": 30, "shuffle": False, "epochs": 1}
    for loss in (torch.nn.MSELoss(), torch.nn.functional.mse_loss):
        _, halved = trained(path, kept, loss=loss, weight="half", run_id="h", **options)
        _, whole = trained(path, kept, loss=loss, run_id="w", **options)
        assert np.isclose(losses_of(halved)[0], losses_of(whole)[0] / 2)
        kept = store()
        path = written(kept, y=2 * X, half=np.full(60, 0.5, "float32"))


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 3)

    def forward(self, x):
        found = self.layer(x)
        return found[:, :1], found[:, 1:]


def check_several_losses_count_equally():
    kept = store()
    pair = pa.FixedSizeListArray.from_arrays(np.stack([X, X**2], 1).ravel(), 2)
    path = written(kept, y=np.zeros(60, "float32"), z=pair)
    mse = torch.nn.functional.mse_loss
    seen = []

    def plain(out, y, at):
        seen.append((at, tuple(out.shape), tuple(y.shape)))
        return mse(out, y)

    losses = [lambda out, y: plain(out, y, 0), lambda out, y: plain(out, y, 1)]
    options = {"labels": ["y", "z"], "epochs": 1, "rate": 0.0}
    torch.manual_seed(2)
    _, equal = trained(path, kept, module=Two(), loss=losses, run_id="equal", **options)
    torch.manual_seed(2)
    _, summed = trained(path, kept, module=Two(), loss=losses, loss_weights=[1.0, 1.0], run_id="sum", **options)
    assert np.isclose(losses_of(equal)[0], losses_of(summed)[0] / 2)
    assert (0, (5, 1), (5, 1)) in seen and (1, (5, 2), (5, 2)) in seen


def check_losses_are_constructed_on_the_ranks():
    """A loss may be a class of torch, or a function that takes Horovod's arguments by name."""
    kept = store()
    path = written(kept, y=2 * X)
    seen = []

    def made(**given):
        seen.append(type(given["model"]).__name__)
        return torch.nn.MSELoss()

    for maker in (torch.nn.MSELoss, made):
        model = torch.nn.Linear(1, 1)
        work = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "losses": None}
        work |= {"loss_constructors": [maker], "metrics": []}
        run = Training(kept, maker.__name__, ["x"], ["y"], None, False, settled(epochs=12), work, train_path=path)
        result = train(run)
        assert losses_of(result)[-1] < 0.05
    assert seen == ["Linear"]


def check_shapes_of_inputs_and_labels():
    kept = store()
    pair = pa.FixedSizeListArray.from_arrays(np.stack([X, X**2], 1).ravel(), 2)
    path = written(kept, y=X, pair=pair)
    seen = []

    class Sees(torch.nn.Linear):
        def forward(self, x):
            seen.append(tuple(x.shape))
            return super().forward(x.reshape(-1, 1))

    def loss(out, y):
        seen.append(tuple(y.shape))
        return out.mean() * 0 + y.mean() * 0

    for shape in ([1, 1], [-1, 1, 1]):
        shapes = {"input_shapes": [shape], "label_shapes": [[1, 1]]}
        trained(path, kept, module=Sees(1, 1), loss=loss, epochs=1, run_id=f"shape{len(shape)}", **shapes)
        assert {(5, 1, 1)} <= set(seen) <= {(5, 1, 1), (1, 1, 1)}, seen  # rank 0 inspects one row more
        seen.clear()
    real = []
    trained(path, kept, module=torch.nn.Linear(1, 2), loss=lambda out, y: real.append(y) or (out.mean(1) - y).mean(), epochs=1)
    assert real[0].dtype == torch.float32 and real[0].shape == (5,)  # a real label for several outputs keeps its type and shape


def check_a_minibatch_function_with_horovods_arguments():
    """Works with Horovod's own minibatch function, which steps one batch late, and with a function that steps at once."""
    kept = store()
    path = written(kept, y=2 * X)
    seen = []

    def late(model, optimizer, transform_outputs, loss_fn, inputs, labels, sample_weights, passes, batch_idx):
        if batch_idx % passes == 0:
            if batch_idx != 0:
                optimizer.step()
            optimizer.zero_grad()
        outputs = model(*inputs)
        outputs, labels = transform_outputs(outputs, labels)
        loss = loss_fn(outputs, labels, sample_weights)
        loss.backward()
        seen.append((batch_idx, passes, sample_weights))
        return outputs, loss

    def at_once(model, optimizer, transform_outputs, loss_fn, inputs, labels, sample_weights, passes, batch_idx):
        optimizer.zero_grad()
        outputs, labels = transform_outputs(model(*inputs), labels)
        loss = loss_fn(outputs, labels, sample_weights)
        loss.backward()
        optimizer.step()
        return outputs, loss

    options = {"shuffle": False, "batch_size": 10, "epochs": 2}
    own, result = trained(path, kept, run_id="own", **options)
    for name, function in (("late", late), ("once", at_once)):
        found, other = trained(path, kept, run_id=name, train_minibatch_fn=function, **options)
        assert np.allclose(found, own, atol=1e-6), (name, found, own)
        assert losses_of(other) == losses_of(result)
    assert seen[:3] == [(0, 1, None), (1, 1, None), (2, 1, None)]


made = []  # the arguments of Halves, and whether it was left


class Halves(DataModule):
    """Reads its rows by itself, all in one batch."""

    def __init__(self, **given):
        super().__init__(**given)
        made.append(given)

    def __enter__(self):
        self.table = pq.read_table(self.train_dir.removeprefix("file://"))
        return self

    def __exit__(self, *_):
        made.append("left")

    def _part(self):
        rows = np.arange(self.cur_shard, len(self.table), self.shard_count)
        return {name: torch.from_numpy(self.table.column(name).to_numpy()[rows]) for name in self.schema_fields}

    def train_data(self):
        return [self._part()]

    def val_data(self):
        part = self._part()
        return [({"x": part["x"]}, part["y"])]  # as with NVTabular


def check_a_data_module_in_place_of_the_share():
    kept = store()
    path = written(kept, y=2 * X)
    options = {"batch_size": 30, "data_module": Halves, "epochs": 20, "rate": 0.2, "categorical_cols": ["c"]}
    found, result = trained(path, kept, validation=path, **options)
    assert np.allclose(found, [2, 0], atol=0.05), found
    assert np.allclose(losses_of(result, "validation")[-1], 0, atol=0.01)
    given, left = made
    assert left == "left" and (given["cur_shard"], given["shard_count"]) == (RANK, hvd.size())
    assert given["steps_per_epoch_train"] == given["steps_per_epoch_val"] == 1 and given["has_val"] is True
    assert (
        given["train_dir"] == f"file://{path}" and given["schema_fields"] == ["x", "y"] and given["categorical_cols"] == ["c"]
    )


def check_ranks_take_the_gpus_of_their_host():
    """Each rank takes the GPU of its local rank, if torch supports GPUs. The error names a rank without a GPU."""

    class Cuda:
        count, chosen = 2, []

        @classmethod
        def is_available(cls):
            return cls.count > 0

        @classmethod
        def device_count(cls):
            return cls.count

        @classmethod
        def set_device(cls, device):
            cls.chosen.append(device.index)

    class Torch:
        cuda, device = Cuda, torch.device

    assert device_of(Torch, hvd, True) == torch.device("cuda", hvd.local_rank()) and Cuda.chosen == [hvd.local_rank()]
    assert device_of(Torch, hvd, False) == torch.device("cpu")
    Cuda.count = 1 if RANK == 0 else 0
    try:
        device_of(Torch, hvd, True)
        raise AssertionError("not refused")
    except RuntimeError as error:
        assert "ranks 1 have no GPU" in str(error), error


def check_nothing_is_left():
    remove_folders()
