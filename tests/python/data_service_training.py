"""A training job for test_tf_data_service.py: data_service_training.py FILE.  Each rank prints what it has read as JSON."""

import dataclasses
import json
import pathlib
import runpy
import sys

import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service

NUMBERS = 20
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/tensorflow_data_service.py"


def squares():
    return tf.data.Dataset.range(NUMBERS).map(lambda x: x * x)


def read(dataset):
    return [int(x) for x in dataset]


def turns(config):
    endless = tf.data.Dataset.range(NUMBERS).repeat()
    in_turn = endless.send_to_data_service(config, hvd.rank(), hvd.size(), reuse_dataset=True, round_robin=True)
    return len(read(in_turn.take(NUMBERS)))


def from_their_dispatchers(config):
    """Reads the datasets as Horovod's scripts do, by send_to_data_service() only."""
    rank, size = hvd.rank(), hvd.size()
    send = squares().send_to_data_service
    found = {
        "each": read(send(config, rank)),
        "shared": read(send(config, rank, size, reuse_dataset=True)),
        "whole": read(send(config, rank, processing_mode="parallel_epochs")),
    }
    found["turns"] = turns(config)
    return found


def from_own_dispatchers(config):
    try:
        squares().send_to_data_service(config, hvd.rank())
    except RuntimeError as error:
        refused = str(error)
    with tf_data_service(config, hvd.rank()) as address:
        service = tf.data.experimental.service.distribute(processing_mode="distributed_epoch", service=address)
        found = {"each": read(squares().apply(service)), "address": address, "refused": refused}
        found["turns"] = turns(dataclasses.replace(config, dispatcher_side="compute"))
        hvd.barrier()
    return found


def main():
    hvd.init()
    file = sys.argv[1]
    config = TfDataServiceConfig.read(file, wait_for_file_creation=True, timeout=90)
    if config.dispatcher_side == "training":
        found = from_own_dispatchers(config)
        if hvd.rank() == 0:
            config.compute_client(verbose=2).shutdown()
    else:
        found = from_their_dispatchers(config)
        found["accuracy"] = runpy.run_path(str(EXAMPLE))["main"](file, steps=100)  # ends the compute job
    print("#found " + json.dumps({"rank": hvd.rank(), **found}), flush=True)


main()
