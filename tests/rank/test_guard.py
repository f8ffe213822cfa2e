"""The guard's work for a running rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from rank_bench import BUILD, HVDRANK, PLACEMENT, Driver, manifest

from support.hvdrun import within


def sh(script: str, **changes):
    return manifest(name="sh", args=["-c", script], **changes)


@pytest.fixture
def start(tmp_path: Path):
    """A driver that is ended when the test is."""
    drivers = []

    def make(*manifests, **options) -> Driver:
        drivers.append(Driver(tmp_path / "driver", list(manifests), **options))
        return drivers[-1]

    yield make
    for d in drivers:
        d.process.kill()
        d.process.wait()


def environ_of(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/environ").read_bytes().decode("latin-1")
    return dict(e.split("=", 1) for e in text.split("\0") if "=" in e)


def test_why_there_are_no_native_frames() -> None:
    no_process = 2**22 + 1  # the kernel's most is 2**22
    done = subprocess.run([HVDRANK, "--native-stack", str(no_process)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "is not installed here" in done.stdout or "no native frames: No such " in done.stdout, done.stdout


def test_started_by_hand_it_says_so() -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("HVD_")}
    for program in (HVDRANK, HVDRANK.with_name("hvdrank-python")):
        r = subprocess.run([program], env=env, capture_output=True, text=True, timeout=10)
        assert r.returncode == 2
        assert "not by hand" in r.stderr
    assert subprocess.run([HVDRANK, "--version"], capture_output=True, timeout=10).returncode == 0


def test_output_of_both_streams_and_the_last_lines(run) -> None:
    d = run(sh("for i in $(seq 30); do echo line $i; done; echo oops >&2; exit 4"))
    assert d.text() == "".join(f"line {i}\n" for i in range(1, 31))
    assert d.text("stderr") == "oops\n"
    death = d.death()
    assert (death["cause"], death["code"], len(death["tail"])) == ("exited", 4, 20)
    assert "oops" in death["tail"]


def test_a_caught_traceback_goes_out_and_is_not_the_cause(start) -> None:
    script = "printf 'Traceback (most recent call last):\\n  File x\\nE: caught\\n' >&2; sleep 3; echo on >&2; exit 3"
    d = start(sh(script))
    d.wait("stderr", test=lambda e: "caught" in e["text"])
    d.finish()
    assert d.text("stderr").endswith("E: caught\non\n")
    assert d.death()["traceback"] == ""


def test_the_environment_is_the_manifests_and_holds_no_secret(run) -> None:
    d = run(sh("env -0 | tr '\\0' '\\n'; tr '\\0' '\\n' < /proc/self/environ", env={"GREETING": "caf\u00e9"}))
    lines = d.text().splitlines()
    assert "GREETING=caf\u00e9" in lines
    assert "HVD_RANK=0" in lines
    assert "HVD_HOST=testhost" in lines
    assert "OMPI_COMM_WORLD_RANK=0" in lines
    assert not [
        v for v in lines if v.startswith(("HVD_JOB_KEYS", "HVD_SERVER_KEY", "HVD_JOB_DIR", "HVD_FOLDER", "HVD_CONTROL"))
    ]


def test_the_secret_leaves_the_environment_of_watchdog_and_guard(start) -> None:
    d = start(sh("sleep 60"))
    hello = d.wait("hello")
    d.wait("started")
    for pid in (hello["pid"], hello["watchdog"]):
        assert environ_of(pid).get("HVD_JOB_KEYS", "").strip("\0") == ""
    d.say("stop 0 1")
    d.finish()


def test_the_guard_holds_no_python_and_no_mpi_and_sleeps(start, tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text("import time; print('up', flush=True); time.sleep(60)")
    d = start(manifest(kind="script", name=str(script), python=sys.executable))
    guard = d.wait("hello")["pid"]
    d.wait("stdout")
    maps = Path(f"/proc/{guard}/maps").read_text()
    assert "libpython" not in maps
    assert "libmpi" not in maps

    def cpu() -> int:
        fields = Path(f"/proc/{guard}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = cpu()
    time.sleep(2)
    assert (cpu() - before) / os.sysconf("SC_CLK_TCK") / 2 < 0.03
    d.say("stop 0 1")
    assert d.finish().death()["cause"] == "stopped"


def test_stop_is_sigterm_then_after_the_grace_sigkill(start) -> None:
    polite = start(sh("trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.05; done"))
    polite.wait("stdout")
    polite.say("stop 0 10")
    polite.finish()
    assert polite.text() == "up\nbye\n"
    assert (polite.death()["cause"], polite.death()["code"]) == ("stopped", 9)

    stubborn = start(sh("trap '' TERM; echo up; while :; do sleep 0.05; done"))
    stubborn.wait("stdout")
    began = time.monotonic()
    stubborn.say("stop 0 0.5")
    stubborn.finish()
    assert 0.4 < time.monotonic() - began < within(5)
    assert (stubborn.death()["cause"], stubborn.death()["code"]) == ("stopped", 137)


def test_signals_are_passed_on_and_named(start) -> None:
    d = start(sh("trap 'echo got usr1' USR1; echo up; while :; do sleep 0.05; done"))
    d.wait("stdout")
    d.say(f"signal 0 {int(signal.SIGUSR1)}")
    d.wait("stdout", test=lambda e: "usr1" in e["text"])
    d.say(f"signal 0 {int(signal.SIGINT)}")
    assert d.finish().death()["cause"] == "signalled"


def test_the_gpu_is_watched_where_its_driver_tells(start, tmp_path: Path) -> None:
    planned = {**PLACEMENT, "planned": True, "gpu": "GPU-f", "visible_gpus": "GPU-f"}
    facts, asked = tmp_path / "nvml", tmp_path / "nvml.asked"  # the fake driver adds a byte for each look
    env = {"LD_LIBRARY_PATH": str(BUILD / "tests/rank"), "HVD_FAKE_NVML": str(facts)}
    facts.touch()
    asked.touch()
    script = f"until [ $(wc -c <{asked}) -ge 3 ]; do sleep 0.1; done"
    death = start(sh(script, placement=planned), env=env).finish().death()
    assert (death["gpu_busy_percent"], death["gpu_peak_bytes"]) == (50, 3 << 30)
    death = start(sh("sleep 1.5", placement={**planned, "gpu": "GPU-other"}), env=env).finish().death()
    assert (death["gpu_busy_percent"], death["gpu_peak_bytes"]) == (-1, 0)


def test_a_crash_is_named(run, tmp_path: Path) -> None:
    d = run(sh("kill -SEGV $$"))
    assert (d.death()["cause"], d.death()["code"]) == ("signalled", 11)
    assert d.death()["core_dumped"] is False
    d = run(sh(f"cd {tmp_path}; ulimit -c unlimited; kill -ABRT $$"))
    assert (d.death()["cause"], d.death()["code"]) == ("signalled", 6)


def test_a_working_folder_that_is_not_there(run) -> None:
    d = run(sh("pwd", cwd="/no/such/folder"))
    assert d.text().strip() == str(Path.home().resolve())
    assert "/no/such/folder" in d.started()["warning"]


def test_placement(run) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    show = "grep Cpus_allowed_list /proc/self/status; echo $OMP_NUM_THREADS"
    d = run(sh(show, placement={**PLACEMENT, "planned": True, "cpus": allowed[-1:]}))
    assert d.text() == f"Cpus_allowed_list:\t{allowed[-1]}\n1\n"
    assert d.started()["cpus"] == allowed[-1:]
    assert d.started()["warning"] == ""
    d = run(sh(show, placement={**PLACEMENT, "planned": True, "cpus": [allowed[-1], 1000]}))  # a core that does not exist
    assert d.started()["warning"].startswith(f"it could not be bound to the cores planned for it ({allowed[-1]},1000)")
    d = run(sh(show, env={"OMP_NUM_THREADS": "5"}, placement={**PLACEMENT, "bind": False}))
    assert d.text().endswith("\n5\n")
    if len(allowed) >= 2:
        two = [sh(show, rank=r, size=2, local_rank=r, local_size=2) for r in (0, 1)]
        d = run(*two)
        assert not set(d.started(0)["cpus"]) & set(d.started(1)["cpus"])


def test_nothing_is_lost_and_memory_is_bounded_when_hvdrun_is_slow(start) -> None:
    lines = 200_000
    d = start(sh(f"echo 0; sleep 0.3; seq {lines}; echo end >&2"))
    guard = d.wait("hello")["pid"]
    d.wait("stdout")
    d.say("pause")
    time.sleep(1)
    resident = int(next(v for v in Path(f"/proc/{guard}/status").read_text().splitlines() if "VmRSS" in v).split()[1])
    assert resident < 64 * 1024
    d.say("resume")
    d.finish(60)
    assert d.text() == "".join(f"{i}\n" for i in range(lines + 1))
    assert d.death()["cause"] == "finished"


def test_what_the_rank_leaves_behind_does_not_outlive_it(run) -> None:
    nap = f"sleep 301.{uuid.uuid4().int % 10**9}"
    began = time.monotonic()
    d = run(sh(f"setsid {nap} & env -i setsid {nap} & ({nap} &); exit 0"))
    assert d.death()["cause"] == "finished"
    assert time.monotonic() - began < within(10)
    assert subprocess.run(["pgrep", "-f", nap], capture_output=True).returncode == 1


def test_frames_of_the_link_arrive_also_when_the_writer_is_killed(run, tmp_path: Path) -> None:
    script = tmp_path / "link.py"
    script.write_text(
        "import os, signal, socket, struct\n"
        "s = socket.socket(fileno=int(os.environ['HVD_LINK_FD']))\n"
        "def send(kind, body): s.send(struct.pack('<IHH', len(body), kind, 0) + body)\n"
        "send(8, b'mpi_init')\n"
        "for i in range(300): send(6, bytes([i % 256]) * 1000)\n"
        "s.send(b'garbage that is no frame'); send(3, b'{}'); send(1, b'{}')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    d = run(manifest(kind="script", name=str(script), python=sys.executable))
    assert len([e for e in d.events if e["event"] == "trace"]) == 300
    assert len([e for e in d.events if e["event"] == "death"]) == 1
    assert (d.death()["phase"], d.death()["cause"], d.death()["code"]) == ("mpi_init", "signalled", 9)


def test_timeline_is_asked_for(run) -> None:
    assert run(sh("echo $HVD_TIMELINE_COLLECT", timeline=True)).text() == "1\n"
    assert run(sh("echo $HVD_TIMELINE_COLLECT", env={"HVD_TIMELINE_COLLECT": "1"})).text() == "\n"
