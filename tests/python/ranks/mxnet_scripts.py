"""A script from Horovod's documentation of MXNet, and the example, unchanged."""

import pathlib
import runpy

import numpy as np

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"


def check_quick_start():
    """Horovod with MXNet: init, pin, scale the rate, DistributedTrainer, broadcast, shard, checkpoint on rank 0."""
    import mxnet as mx
    from mxnet import autograd

    import horovod.mxnet as hvd

    hvd.init()

    context = mx.gpu(hvd.local_rank()) if mx.context.num_gpus() else mx.cpu(hvd.local_rank())
    num_workers = hvd.size()

    model = mx.gluon.nn.HybridSequential()
    with model.name_scope():
        model.add(mx.gluon.nn.Dense(16, activation="relu"))
        model.add(mx.gluon.nn.Dense(2))
    model.hybridize()

    optimizer_params = {"learning_rate": 0.05 * num_workers, "rescale_grad": 1.0}
    opt = mx.optimizer.create("sgd", **optimizer_params)

    initializer = mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2)
    model.initialize(initializer, ctx=context)

    params = model.collect_params()
    hvd.broadcast_parameters(params, root_rank=0)

    trainer = hvd.DistributedTrainer(params, opt)
    loss_fn = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    metric = mx.metric.Accuracy()

    generator = np.random.RandomState(0)
    points = generator.normal(size=(400, 4)).astype("float32")
    labels = (points[:, 0] > points[:, 1]).astype("float32")
    train_data = mx.io.NDArrayIter(points[hvd.rank() :: num_workers], labels[hvd.rank() :: num_workers], batch_size=20)

    for _ in range(10):
        train_data.reset()
        metric.reset()
        for batch in train_data:
            data = batch.data[0].as_in_context(context)
            label = batch.label[0].as_in_context(context)
            with autograd.record():
                output = model(data.astype("float32", copy=False))
                loss = loss_fn(output, label)
            loss.backward()
            trainer.step(20)
            metric.update([label], [output])
    assert metric.get()[1] > 0.9, metric.get()
    mine = [parameter.data(context).asnumpy() for _, parameter in sorted(params.items())]
    for theirs in hvd.allgather_object(mine):
        assert all(np.array_equal(a, b) for a, b in zip(mine, theirs))


def check_example():
    accuracy = runpy.run_path(str(EXAMPLES / "mxnet_gluon.py"))["main"]()
    assert accuracy > 0.9, accuracy
