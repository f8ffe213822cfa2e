"""The installed torch has the C functions that runtime/gpu/cuda/memory.cc calls, with these arguments."""

import functools
import mmap
import re
import subprocess
from pathlib import Path

import pytest

from python.harness import python

# Without an import, which takes seconds.
FIND = """
import importlib.metadata, importlib.util
print(importlib.util.find_spec("torch").submodule_search_locations[0], *importlib.metadata.version("torch").split(".")[:2])
"""
HEADER = "include/torch/csrc/inductor/aoti_torch/c/shim.h"
SIGNATURES = {
    "aoti_torch_cuda_caching_allocator_raw_alloc": ["uint64_t", "void**"],
    "aoti_torch_cuda_caching_allocator_raw_delete": ["void*"],
    "aoti_torch_create_cuda_stream_guard": ["void*", "int32_t", "CUDAStreamGuardHandle*"],
    "aoti_torch_delete_cuda_stream_guard": ["CUDAStreamGuardHandle"],
}


@functools.cache
def torch_folder() -> Path:
    done = subprocess.run([python(), "-c", FIND], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        pytest.skip(f"{python()} lacks torch")
    folder, major, minor = done.stdout.split()
    if not Path(folder, "lib/libtorch_cuda.so").exists():
        pytest.skip(f"the torch of {python()} was built without CUDA")
    if (int(major), int(minor)) < (2, 15):
        pytest.skip(f"torch {major}.{minor} may not offer its allocator to C")
    return Path(folder)


def test_the_header_declares_what_we_call() -> None:
    text = re.sub(r"//[^\n]*", "", (torch_folder() / HEADER).read_text())
    for name, wanted in SIGNATURES.items():
        found = re.search(rf"AOTITorchError\s+{name}\(([^)]*)\)", text)
        assert found, f"{name} is not declared"
        types = [re.sub(r"\s*\w+$", "", " ".join(argument.split())) for argument in found[1].split(",")]
        assert types == wanted, name
    macros = (torch_folder() / HEADER).with_name("macros.h").read_text()
    assert re.search(r"using AOTITorchError = int32_t;", macros)
    assert re.search(r"#define AOTI_TORCH_SUCCESS 0\b", macros)


def test_the_library_has_them_under_the_name_that_we_look_for() -> None:
    """The file is read, not loaded, because loading takes seconds too."""
    with (torch_folder() / "lib/libtorch_cuda.so").open("rb") as library:
        text = mmap.mmap(library.fileno(), 0, access=mmap.ACCESS_READ)
        for name in (*SIGNATURES, "libtorch_cuda.so"):
            assert text.find(b"\0" + name.encode() + b"\0") >= 0, name
