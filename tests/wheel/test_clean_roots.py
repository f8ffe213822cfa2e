"""scripts/check-artefacts mounts /dev and the checkout into its roots: it must never delete through a mount."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAILS_HALF_WAY = """
import importlib.machinery, importlib.util, pathlib, shutil, sys
loader = importlib.machinery.SourceFileLoader("check_artefacts", sys.argv[1])
module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
sys.modules[loader.name] = module
loader.exec_module(module)
cache = pathlib.Path(sys.argv[2])
delete = shutil.rmtree

def careful(folder, **options):
    mounts = [line.split()[4] for line in open("/proc/self/mountinfo")]
    assert not [place for place in mounts if place.startswith(f"{folder}/")], mounts
    delete(folder, **options)

module.shutil.rmtree = careful
file = cache / "artefacts"  # a file, where a folder is expected: the root fails after /dev is mounted
file.touch()
try:
    with module.CleanRoot("bookworm", cache, file):
        print("entered")
except FileExistsError:
    print("failed,", "left" if (cache / "bookworm.changes").exists() else "removed")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_root_that_fails_half_way_is_unmounted_before_it_is_deleted(tmp_path: pathlib.Path) -> None:
    for folder in ("dev", "sys", "proc"):
        (tmp_path / "bookworm" / folder).mkdir(parents=True)
    (tmp_path / "bookworm/dev/shm").mkdir()
    script = [sys.executable, "-c", FAILS_HALF_WAY, str(ROOT / "scripts/check-artefacts"), str(tmp_path)]
    done = subprocess.run(["unshare", "--mount", *script], capture_output=True, text=True, timeout=60)
    if "unshare failed" in done.stderr or "overlay" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert (done.returncode, done.stdout) == (0, "failed, removed\n"), done.stderr
    assert pathlib.Path("/dev/null").is_char_device()
