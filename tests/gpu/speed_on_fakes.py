"""A rank for test_speed.py: runs all of speed.py on a torch without GPU support. The figures have no meaning."""

import runpy
import sys
import time
from pathlib import Path

import torch

HERE = Path(__file__).parent
fake = runpy.run_path(str(HERE.parent / "python" / "ranks" / "fake_gpu.py"))


class Event:
    """The moment when the fake GPU's default stream reached this point."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        fake["driver"].cuStreamSynchronize(None)
        self.at = time.monotonic()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: "Event") -> float:
        return (end.at - self.at) * 1e3


for name, value in {
    "is_available": lambda: True,
    "device_count": lambda: 4,
    "set_device": lambda device: None,
    "get_device_name": lambda: "Fake GPU",
    "synchronize": lambda: fake["driver"].cuStreamSynchronize(None),
    "_sleep": lambda cycles: None,
    "Event": Event,
}.items():
    setattr(torch.cuda, name, value)
sys.path.insert(0, str(HERE))
import speed  # noqa: E402

speed.DEVICE, speed.BACKEND = "cpu", "gloo"
speed.main()
