"""A rank for test_tensorflow_gpu.py: the last rank dies before its GPU has finished its queued work."""

import os
import runpy
import signal
import threading
import time
from pathlib import Path

import tensorflow as tf

checks = runpy.run_path(str(Path(__file__).parents[1] / "python" / "ranks" / "tensorflow_gpu.py"))
hvd, scaled = checks["hvd"], checks["scaled"]


@tf.function
def step(tensor: tf.Tensor) -> tf.Tensor:
    with tf.device(checks["DEVICE"]):
        return hvd.allreduce(scaled(tensor, 2.0), op=hvd.Sum)


with tf.device(checks["DEVICE"]):
    x = tf.ones([100])
    for _ in range(3):
        step(x).numpy()
    if hvd.rank() == hvd.size() - 1:  # its tensor takes so long to make that the others' GPUs wait for it
        for _ in range(5000):  # 10 s
            x = scaled(x, 1.0)
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
started = time.monotonic()
try:
    step(x).numpy()
    text = "no error"
except tf.errors.OpError as error:
    text = error.message.replace("\n", " ")
os.write(1, f"SURVIVOR {hvd.rank()} {time.monotonic() - started:.2f} {text}\n".encode())
os._exit(0)
