"""The table of options (src/options/table.h) is the only definition: each row has a use, and no code bypasses it."""

from __future__ import annotations

import inspect
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import hvd
import hvd.spark
from hvd._job.options import RUN_KEYWORDS
from support import hvdrun

ROOT = Path(__file__).resolve().parents[2]
# The source folders of a component.
FOLDERS = {
    "hvdrun": ("launcher",),
    "guard": ("src/rank", "src/wire"),
    "libhvd": ("runtime", "src/wire"),
    "python": ("src/python",),
    "tools": ("tools",),
}
# The only reader in each language; the bootstrap is text inside hvdrank; child.cc sets a child's environment.
READERS = {
    "src/base/environment.h",
    "src/python/hvd/_runtime/environment.py",
    "src/rank/python/bootstrap.py",
    "src/rank/python/start/hvdrank_collectives.py",
    "src/rank/python/start/hvdrank_steps.py",
    "src/rank/python/start/sitecustomize.py",
    "src/base/process/child.cc",
}
# Variables of other programs that base/environment.h and hvd/_runtime/environment.py read by name.
FOREIGN = {
    "GLOO_SOCKET_IFNAME",
    "HOME",
    "KERAS_BACKEND",
    "NCCL_MULTI_RANK_GPU_ENABLE",
    "NO_COLOR",
    "OMPI_MCA_btl_tcp_if_include",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "PATH",
    "PYTHONPATH",
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "PMIX_SERVER_TMPDIR",
    "TERM",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
}


@cache
def table() -> list[dict[str, Any]]:
    """All rows, as hvdrun prints them."""
    rows: list[dict[str, Any]] = json.loads(hvdrun.run("--dump-options").stdout)
    return rows


@cache
def sources() -> dict[str, str]:
    """Every product source by its path, without the comments of C++."""
    found = {}
    for top in ("launcher", "runtime", "src", "tools"):
        for file in sorted((ROOT / top).rglob("*")):
            if file.suffix not in {".h", ".cc", ".c", ".py"} or ("/horovod/" in str(file) and file.name == "secret.py"):
                continue
            text = file.read_text()
            found[file.relative_to(ROOT).as_posix()] = text if file.suffix == ".py" else re.sub(r"//[^\n]*", "", text)
    del found["src/options/table.h"], found["src/python/hvd/_job/options.py"]
    return found


def quoted_in(folders: tuple[str, ...]) -> set[str]:
    """All words in double quotes."""
    texts = (text for path, text in sources().items() if path.startswith(folders))
    return {word for text in texts for word in re.findall(r'"([A-Za-z0-9_-]+)', text)}


def test_nothing_reads_the_environment_but_the_readers() -> None:
    """getenv, environ and os.environ are in one file of each language."""
    pattern = re.compile(r"\b(?:secure_)?getenv\(|\benviron\b(?!\")|os\.environ\b")
    found = [path for path, text in sources().items() if path not in READERS and pattern.search(text)]
    assert found == []


def test_the_other_programs_variables_are_known() -> None:
    """One list has all variables that are read by name and belong to other programs."""
    pattern = re.compile(r'(?:environment_value\(|whole\.get\()\s*[fr]?["\']([A-Z0-9_]+)["\']')
    found = {name for text in sources().values() for name in pattern.findall(text)}
    found.discard("HVD_LIBRARY")  # native/open_libhvd.c is C: the typed reader is C++
    assert found <= FOREIGN, found - FOREIGN


def test_every_variable_has_its_readers() -> None:
    """The components in a row's readers name the variable.  The effect of a row without readers is not `full`."""
    for row in (row for row in table() if row["variable"]):
        for reader in (one for one in row["readers"] if one in FOLDERS):
            if row["effect"] != "full" or (row["spellings"] != [""] and reader == "hvdrun"):
                continue
            assert row["variable"] in quoted_in(FOLDERS[reader]), f"{reader} does not read {row['variable']}"
        if not row["readers"]:
            assert row["effect"] != "full", f"nobody reads {row['variable']}"


def test_every_option_has_a_use() -> None:
    """hvdrun reads each of its options by id, passes it to the ranks, or declares that it changes nothing."""
    asked = quoted_in(("launcher",))
    for row in (row for row in table() if row["id"]):
        used = row["id"] in asked or row["for_ranks"] or row["effect"] != "full"
        assert used or row["help"].startswith("accepted"), f"--{row['id']} has no use"


def test_every_variable_of_ours_is_in_the_table() -> None:
    """A quoted name that begins with HVD_ or HOROVOD_ is a row's, or derived from one."""
    known = {row["variable"] for row in table()} | {"HVD_HOST_SET_PYTHONPATH", "HVD_VERSION"}
    named = {word for word in quoted_in(("launcher", "runtime", "src", "tools")) if re.match(r"(HVD|HOROVOD)_[A-Z_]+$", word)}
    constants = {"HVD_CAPTURE", "HVD_WHOLE_CONTEXT", "HVD_PLUGIN", "HVD_GPU_KERNELS", "HVD_DTYPE_NUMBERS"}
    assert named - known - constants == set()


def test_runs_keywords_are_the_tables() -> None:
    """The arguments of run() and Spark's run(), except the function and its arguments."""
    own = {"func", "args", "kwargs", "shown"}
    keywords = set(inspect.signature(hvd.run).parameters) - own
    assert keywords == set(RUN_KEYWORDS) - {"prefix_output_with_timestamp"}
    spark = set(inspect.signature(hvd.spark.run).parameters) - own
    assert spark - {"env", "driver_log_verbosity", "spark"} <= set(RUN_KEYWORDS)
