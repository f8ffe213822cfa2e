"""Files that another user can write or replace are not run, on one host; netns/test_trust has several hosts."""

from __future__ import annotations

import grp
import json
import os
import pathlib
import pickle
import pwd
import shutil
import subprocess
from collections.abc import Callable

import pytest

from support import hvdrun

OTHER, THIRD = 54321, 54322
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="files of several users need root")
MINE = "print('mine')\n"
IMPORTS = "import calendar, os; print('ran as', os.getuid())"


def tree(root: pathlib.Path, uid: int, mode: int = 0o755) -> pathlib.Path:
    """A folder of a user."""
    root.mkdir()
    os.chown(root, uid, uid)
    root.chmod(mode)
    return root


def write(path: pathlib.Path, text: str | bytes, uid: int = 0, mode: int = 0o644) -> pathlib.Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.chown(path, uid, uid)
    path.chmod(mode)
    return path


def trap(folder: pathlib.Path, name: str = "calendar.py") -> pathlib.Path:
    """Another user's module, which reports when it runs."""
    mark = folder / "ran"
    write(folder / name, f"open({str(mark)!r}, 'w').close()\n", OTHER)
    return mark


def job(*args: str, **options: object) -> subprocess.CompletedProcess[str]:
    return hvdrun.run("-np", "1", *hvdrun.python_args(), *args, **options)  # type: ignore[arg-type]


@pytest.fixture
def shared(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder like /tmp: everybody may add files, and nobody may remove others' files."""
    return tree(tmp_path / "shared", 0, 0o1777)


@needs_root
@pytest.mark.parametrize("how", ["pickle", "script", "python script", "module", "module by python"])
def test_modules_beside_the_payload(shared: pathlib.Path, tmp_path: pathlib.Path, how: str) -> None:
    """Another user's calendar.py in a shared folder is not imported, by any form of start; --allow-writable imports it."""
    mark = trap(shared)
    script = write(shared / "train.py", IMPORTS + "\n")
    (tmp_path / "job.pkl").write_bytes(pickle.dumps((exec, (IMPORTS, {}))))
    words = {
        "pickle": [str(tmp_path / "job.pkl")],
        "script": [str(script)],
        "python script": ["--", shutil.which("python3") or "", "-u", str(script)],
        "module": ["-m", "calendar", "2026", "1"],
        "module by python": ["--", shutil.which("python3") or "", "-m", "calendar", "2026", "1"],
    }[how]
    done = job(*words, cwd=shared)
    assert done.returncode == 0, done.stderr
    assert "ran as 0" in done.stdout or "January 2026" in done.stdout
    assert not mark.exists(), "another user's module was imported"
    job("--allow-writable", *words, cwd=shared)
    assert mark.exists()


@needs_root
def test_modules_beside_the_payload_in_a_folder_of_ones_own(tmp_path: pathlib.Path) -> None:
    """Python imports modules that lie beside the payload if only the user can write to the folder."""
    write(tmp_path / "beside.py", MINE)
    write(tmp_path / "train.py", "import beside\n")
    (tmp_path / "job.pkl").write_bytes(pickle.dumps((exec, ("import beside", {}))))
    for words in (["job.pkl"], ["train.py"], ["-m", "beside"], ["--", "python3", "train.py"]):
        done = job(*words, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), words
        assert done.stdout.endswith(" mine\n"), words


@needs_root
@pytest.mark.parametrize("how", ["pickle", "script", "module"])
def test_a_module_that_is_kept_out_is_told(shared: pathlib.Path, tmp_path: pathlib.Path, how: str) -> None:
    """The error names the shared folder in which a rank does not look for the user's module."""
    write(shared / "beside.py", MINE)
    write(shared / "train.py", "import beside\n")
    (tmp_path / "job.pkl").write_bytes(pickle.dumps((exec, ("import beside", {}))))
    words = {"pickle": [str(tmp_path / "job.pkl")], "script": ["train.py"], "module": ["-m", "beside"]}[how]
    done = job(*words, cwd=shared)
    assert done.returncode == 1, done.stderr
    assert f"imports do not look in {shared}: everybody may write to it" in done.stderr


@needs_root
def test_empty_entries_of_path_variables(shared: pathlib.Path) -> None:
    """An empty entry means the working folder, and `export PYTHONPATH=$PYTHONPATH:/x` can make one. hvdrun drops empty entries
    if the working folder is shared."""
    mark = trap(shared, "sitecustomize.py")
    write(shared / "true", f"#!/bin/sh\ntouch {mark}\n", OTHER, 0o755)
    path = os.environ["PATH"]
    done = job("--", "true", cwd=shared, env={"PATH": ":" + path, "PYTHONPATH": ":/nowhere", "LD_LIBRARY_PATH": ":/nowhere"})
    assert done.returncode == 0, done.stderr
    done = job("-m", "calendar", "2026", "1", cwd=shared, env={"PYTHONPATH": ":/nowhere"})
    assert done.returncode == 0, done.stderr
    assert not mark.exists()


Make = Callable[[pathlib.Path], "list[str] | None"]


def foreign_folder(root: pathlib.Path) -> list[str]:
    write(tree(root / "theirs", OTHER) / "train.py", MINE)
    return ["theirs/train.py"]


def group_folder(root: pathlib.Path) -> list[str]:
    folder = tree(root / "project", 0, 0o2775)
    os.chown(folder, 0, THIRD)
    write(folder / "train.py", MINE)
    return ["project/train.py"]


def open_folder(root: pathlib.Path) -> list[str]:
    write(tree(root / "open", 0, 0o777) / "train.py", MINE)
    return ["open/train.py"]


def main_of_group(root: pathlib.Path) -> list[str]:
    os.chown(write(tree(root / "app", 0) / "__main__.py", MINE, 0, 0o664), 0, THIRD)
    return ["app"]


def linked(root: pathlib.Path) -> list[str]:
    folder = tree(root / "sticky", 0, 0o1777)
    write(root / "train.py", MINE)
    (folder / "train.py").symlink_to(root / "train.py")
    os.chown(folder / "train.py", OTHER, OTHER, follow_symlinks=False)
    return ["sticky/train.py"]


def foreign(name: str, *before: str, text: str = MINE) -> Make:
    def make(root: pathlib.Path) -> list[str]:
        write(root / name, text, OTHER, 0o755)
        return [*before, f"./{name}"]

    return make


def of_group(name: str, *before: str, text: str = MINE) -> Make:
    def make(root: pathlib.Path) -> list[str]:
        os.chown(write(root / name, text, 0, 0o775), 0, THIRD)
        return [*before, f"./{name}"]

    return make


def fifo(*before: str) -> Make:
    def make(root: pathlib.Path) -> list[str]:
        os.mkfifo(root / "pipe")
        os.chown(root / "pipe", OTHER, OTHER)
        return [*before, "pipe", "true"]

    return make


def venv(root: pathlib.Path) -> list[str]:
    (tree(root / "venv", OTHER) / "bin").mkdir()
    (root / "venv/bin/python").symlink_to("/usr/bin/python3")
    write(root / "train.py", MINE)
    return ["--python", "./venv", "train.py"]


REFUSED: dict[str, tuple[Make, str]] = {
    "foreign script": (foreign("train.py"), "hvdrun: ./train.py: belongs to another user (user 54321)"),
    "foreign folder": (foreign_folder, "hvdrun: theirs/train.py: its folder "),
    "folder of a group": (group_folder, "hvdrun: project/train.py: the group 54322 may write to its folder "),
    "folder of everybody": (open_folder, "hvdrun: open/train.py: everybody may write to its folder "),
    "foreign link in a sticky folder": (linked, "hvdrun: sticky/train.py: on the way to it, the link "),
    "script of a group": (of_group("train.py"), "hvdrun: ./train.py: the group 54322 may write to it, so its members could"),
    "script of a group, for python": (of_group("train.py", "python3", "-u"), "hvdrun: ./train.py: the group 54322"),
    "folder with a program of a group": (main_of_group, "hvdrun: app/__main__.py: the group 54322 may write to it"),
    "foreign command": (foreign("tool"), "hvdrun: "),
    "foreign hostfile": (lambda r: [*foreign("h", "--hostfile", text="localhost")(r), "true"], "hvdrun: ./h: belongs to"),
    "foreign manifest": (lambda r: [*foreign("m", "--manifest", text="{}")(r), "true"], "hvdrun: ./m: belongs to"),
    "foreign config": (lambda r: [*foreign("c", "--config-file", text="{")(r), "true"], "hvdrun: ./c: belongs to"),
    "foreign topology": (lambda r: [*foreign("t", "--dry-run", "--topology")(r), "true"], "hvdrun: ./t: belongs to"),
    "foreign discovery": (
        lambda r: [*foreign("d", "--host-discovery-script", text="#!/bin/sh\necho localhost")(r), "true"],
        "hvdrun: ./d: belongs to",
    ),
    "foreign mpirun": (lambda r: [*foreign("mpirun", "--mpirun")(r), "true"], "hvdrun: "),
    "foreign venv": (venv, "hvdrun: "),
    "foreign pipe as hostfile": (fifo("--hostfile"), "hvdrun: pipe: belongs to another user"),
    "foreign pipe as manifest": (fifo("--manifest"), "hvdrun: pipe: belongs to another user"),
    "foreign pipe as config": (fifo("--config-file"), "hvdrun: pipe: belongs to another user"),
}


@needs_root
@pytest.mark.parametrize("case", REFUSED)
def test_refused(tmp_path: pathlib.Path, case: str) -> None:
    """One rule, before anything is run: the message names the other user and the remedy."""
    make, message = REFUSED[case]
    words = make(tmp_path)
    assert words is not None
    done = hvdrun.run("-np", "1", *words, cwd=tmp_path, timeout=30, env={"HVD_PYTHON": ""})
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(message), done.stderr
    assert "could change the job\n" in done.stderr
    assert "or --allow-writable\n" in done.stderr
    assert done.stdout == ""


def test_what_a_pipe_brings(tmp_path: pathlib.Path) -> None:
    """A FIFO is never awaited, whoever made it; a descriptor of ours is read."""
    os.mkfifo(tmp_path / "pipe")
    done = hvdrun.run("--allow-writable", "--hostfile", "pipe", "true", cwd=tmp_path, timeout=30)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "hvdrun: pipe: is no regular file")
    text = 'exec "$@" --hostfile <(echo localhost slots=3) --dry-run true'
    argv = ["bash", "-c", text, "bash", hvdrun.program()]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, env=hvdrun.environment())
    assert done.returncode == 0, done.stderr
    argv = [hvdrun.program(), "--hostfile", "/dev/stdin", "--dry-run", "true"]
    done = subprocess.run(
        argv, input="localhost slots=3\n", capture_output=True, text=True, timeout=30, env=hvdrun.environment()
    )
    assert done.returncode == 0, done.stderr


@needs_root
def test_discovery_runs_what_was_looked_at(tmp_path: pathlib.Path) -> None:
    """A bare name comes from PATH: it is checked there, and run from there."""
    tree(tmp_path / "bin", 0)
    write(tmp_path / "find-hosts", "#!/bin/sh\necho localhost:2\n", 0, 0o755)
    write(tmp_path / "bin/find-hosts", "#!/bin/sh\necho localhost:3\n", OTHER, 0o755)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    words = ["--host-discovery-script", "find-hosts", "--dry-run", "--json", "true"]
    done = hvdrun.run(*words, cwd=tmp_path, env={"PATH": path})
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith("hvdrun: find-hosts: belongs to another user")
    os.chown(tmp_path / "bin/find-hosts", 0, 0)
    done = hvdrun.run(*words, cwd=tmp_path, env={"PATH": path})
    assert len(json.loads(done.stdout)["ranks"]) == 3, done.stdout


@pytest.fixture
def programs(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with hvdrun and hvdrank that other users can reach; the checkout may be in a folder of root only."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    folder = tree(tmp_path / "programs", 0)
    for program in (hvdrun.program(), hvdrun.program().replace("launcher/hvdrun", "src/rank/hvdrank")):
        shutil.copy(program, folder)
    return folder


def as_user(uid: int, programs: pathlib.Path, *args: str, cwd: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """hvdrun as another user."""
    argv = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", str(programs / "hvdrun"), *args]
    environment = hvdrun.environment(HOME="/", TMPDIR="/tmp")
    environment.pop("XDG_RUNTIME_DIR", None)
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=60, env=environment, stdin=subprocess.DEVNULL)


@needs_root
def test_software_of_a_user_of_its_own(shared: pathlib.Path, tmp_path: pathlib.Path, programs: pathlib.Path) -> None:
    """On clusters, software often belongs to a user of its own. Users other than root may run it by its full path or through
    PATH."""
    kept = tree(tmp_path / "software", OTHER)
    tool = write(kept / "tool", "#!/bin/sh\necho it ran\n", OTHER, 0o755)
    assert "its folder" in job(str(tool), cwd=shared).stderr
    done = as_user(THIRD, programs, "-np", "1", str(tool), cwd=shared)
    assert done.stdout.endswith(" it ran\n"), done.stderr
    done = as_user(THIRD, programs, "-np", "1", "./tool", cwd=kept)
    assert done.returncode == 2, done.stdout
    os.chown(kept, THIRD, THIRD)
    tool.chmod(0o775)
    done = as_user(THIRD, programs, "-np", "1", str(tool), cwd=shared)
    assert "the group 54321 may write to it" in done.stderr


@needs_root
def test_a_group_of_ones_own(shared: pathlib.Path, programs: pathlib.Path) -> None:
    """With umask 002 the group may write to all files. hvdrun accepts such files if the group is the user's private group."""
    user = pwd.getpwnam("daemon")
    if grp.getgrgid(user.pw_gid).gr_name != "daemon" or grp.getgrgid(user.pw_gid).gr_mem:
        pytest.skip("daemon has no group of its own here")
    script = write(tree(shared / "project", user.pw_uid, 0o2775) / "train.py", MINE, user.pw_uid, 0o664)
    done = as_user(user.pw_uid, programs, "-np", "1", "--python", "/usr/bin/python3", str(script), cwd=shared)
    assert done.stdout.endswith(" mine\n"), done.stderr
    os.chown(script, user.pw_uid, THIRD)
    done = as_user(user.pw_uid, programs, "-np", "1", "--python", "/usr/bin/python3", str(script), cwd=shared)
    assert "the group 54322 may write to it, so its members could change the job" in done.stderr
    assert f"chmod g-w {script}, or --allow-writable" in done.stderr


@needs_root
@pytest.mark.parametrize(("uid", "mode"), [(OTHER, 0o755), (0, 0o777)], ids=["another user's", "open to all"])
def test_a_checkout_that_holds_hvdrun_itself(tmp_path: pathlib.Path, uid: int, mode: int) -> None:
    """For example a bind mount in a container: a user who could change the script could also have changed hvdrun."""
    checkout = tree(tmp_path / "checkout", uid, mode)
    for program in (hvdrun.program(), hvdrun.program().replace("launcher/hvdrun", "src/rank/hvdrank")):
        shutil.copy(program, checkout)
    write(checkout / "train.py", MINE, uid)
    argv = [str(checkout / "hvdrun"), "-np", "1", *hvdrun.python_args(), "train.py"]
    done = subprocess.run(argv, cwd=checkout, capture_output=True, text=True, timeout=60, env=hvdrun.environment())
    assert done.stdout == "[0 localhost] mine\n", done.stderr
    assert job("train.py", cwd=checkout).returncode == 2  # with an hvdrun in another folder
