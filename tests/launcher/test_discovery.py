"""The discovery script before its job starts: the job waits for slots, and reports a script that fails."""

from __future__ import annotations

import pathlib
import shlex
import signal
import time

import pytest

from support import hvdrun

WAITS = "hvdrun: waiting up to "


def script(folder: pathlib.Path, text: str) -> str:
    """A discovery script that counts its calls from 0 in $n."""
    path = folder / "discover"
    path.write_text(f"#!/bin/sh\ncd {folder}\nn=$(cat n 2>/dev/null || echo 0)\necho $((n + 1)) >n\n{text}\n")
    path.chmod(0o700)
    return str(path)


def run(found: str, *options: str) -> tuple[int, int, str]:
    """Exit code, number of ranks that ran, standard error."""
    done = hvdrun.run("--host-discovery-script", found, *options, "--", "echo", "up")
    return done.returncode, done.stdout.count("up"), done.stderr


def test_it_waits_for_slots(tmp_path: pathlib.Path) -> None:
    """Once the job waits, the script may also fail, or print unreadable hosts."""
    found = script(tmp_path, "case $n in 0) ;; 1) echo localhost:1 ;; 2) exit 3 ;; 3) echo a:b ;; *) echo localhost:2 ;; esac")
    code, ranks, err = run(found, "-np", "2", "--min-np", "2", "--elastic-timeout", "60")
    assert (code, ranks) == (0, 2), err
    assert err.count(WAITS) == 1, err
    assert f"{WAITS}60 s (--elastic-timeout) for 2 slots (--min-np): {found} names no slot so far\n" in err
    assert err.count("ended with exit code 3; the job keeps its hosts, and hvdrun runs the script again") == 1, err
    assert err.count(f"{found}:1:3") == 1, err


def test_it_may_have_arguments(tmp_path: pathlib.Path) -> None:
    """The option accepts a script with arguments, as in horovodrun. Each call gets the arguments. A value that is the path of a
    file, blanks included, has no arguments."""
    found = script(tmp_path, 'test "$2" = "a b" || exit 1; case $n in 0) ;; *) echo localhost:$1 ;; esac')
    code, ranks, err = run(f"{found} 2 'a b'", "-np", "2", "--min-np", "2", "--elastic-timeout", "60")
    assert (code, ranks, err.count(WAITS)) == (0, 2, 1), err
    spaced = tmp_path / "dis cover"
    spaced.write_text("#!/bin/sh\necho localhost:1\n")
    spaced.chmod(0o700)
    assert run(str(spaced), "-np", "1")[:2] == (0, 1)
    code, _, err = run(f"{tmp_path}/absent 2", "-np", "1")
    assert code == 2 and "/absent" in err, err


@pytest.mark.parametrize(
    ("options", "ranks"), [(["-np", "3", "--min-np", "1"], 2), (["--min-np", "1", "--max-np", "1"], 1), ([], 2)]
)
def test_it_starts_with_what_suffices(tmp_path: pathlib.Path, options: list[str], ranks: int) -> None:
    code, begun, err = run(script(tmp_path, "echo localhost:2"), *options)
    assert (code, begun, err.count(WAITS)) == (0, ranks, 0), err


@pytest.mark.parametrize(("text", "names", "needed"), [(":", "no slot", 1), ("echo localhost:1", "1 slot", 2)])
def test_no_more_come(tmp_path: pathlib.Path, text: str, names: str, needed: int) -> None:
    found = script(tmp_path, text)
    code, _, err = run(found, "--elastic-timeout", "6.5", *(["-np", "2"] if needed == 2 else []))
    assert (code, err.count(WAITS)) == (6, 1), err
    assert f"{found}: names {names}, and the job needs {needed}; no more came in 6.5 s (--elastic-timeout)" in err


def test_the_time_limit_counts(tmp_path: pathlib.Path) -> None:
    code, _, err = run(script(tmp_path, ":"), "--time-limit", "6")
    assert code == 6 and "no more came in 6 s (--time-limit)" in err, err


def test_a_first_call_that_fails(tmp_path: pathlib.Path) -> None:
    found = script(tmp_path, "echo no such queue >&2\nexit 7")
    code, _, err = run(found, "-np", "2")
    assert code == 4 and f"hvdrun: {found}: ended with exit code 7: no such queue\n" in err, err
    code, _, err = run(script(tmp_path, "echo asking the cloud >&2\nexec sleep 60"), "--start-timeout", "8")
    assert code == 4 and "did not end within 8 s: asking the cloud\n" in err, err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["-np", "2", "--min-np", "2", "-H", "localhost:1"], "2 ranks asked for, but -H has only 1 slot"),
        (["--min-np", "2", "-H", "localhost:1"], "2 is more than the 1 rank to start with"),
        (["-np", "2", "--min-np", "4", "--host-discovery-script", "discover"], "4 is more than the 2 ranks to start with"),
        (["--min-np", "4", "--max-np", "2", "--host-discovery-script", "discover"], "4 is more than --max-np 2"),
        (["-np", "2", "--dry-run", "--host-discovery-script", "discover"], "2 ranks asked for, but"),
    ],
)
def test_what_can_never_suffice(tmp_path: pathlib.Path, options: list[str], reason: str) -> None:
    """A plan does not wait either."""
    found = script(tmp_path, "echo localhost:1")
    begun = time.monotonic()
    done = hvdrun.run(*[found if word == "discover" else word for word in options], "--", "true")
    assert done.returncode == 2 and reason in done.stderr and WAITS not in done.stderr, done.stderr
    assert time.monotonic() - begun < hvdrun.within(10)


@pytest.mark.parametrize("first", ["", "case $n in 0) exit ;; esac\n"], ids=["first call", "later call"])
def test_ctrl_c_ends_the_script_and_its_children(tmp_path: pathlib.Path, first: str) -> None:
    """Also children in sessions of their own."""
    sleepers = hvdrun.Sleepers()
    found = script(tmp_path, f"{first}exec {shlex.join(sleepers.command())}")
    with hvdrun.started("--host-discovery-script", found, "-np", "1", "--", "true") as job:
        try:
            sleepers.wait_for(3)
            job.send_signal(signal.SIGINT)
            assert job.wait(hvdrun.within(10)) == -signal.SIGINT
            sleepers.wait_for(0, hvdrun.within(5))
        finally:
            sleepers.kill()


def test_output_that_is_no_list_of_hosts(tmp_path: pathlib.Path) -> None:
    """A long list is refused, not cut; a message shows only the begin of a long word."""
    for text, code, reason in (
        ("yes localhost:1 | head -c 2000000", 2, "printed 1 MiB or more\n"),
        ("echo localhost:1; printf 'a\\0b\\n'", 2, ":2:2: a NUL byte is not expected here\n"),
        ("head -c 500000 /dev/zero | tr '\\0' x", 2, ":1:1: a host name has more than 253 characters\n"),
        ("echo localhost:$(head -c 500000 /dev/zero | tr '\\0' x)", 2, "' is not a number of slots\n"),
    ):
        found = script(tmp_path, text)
        status, _, err = run(found, "-np", "1")
        assert status == code and reason in err and len(err) < 1000, err[:2000]


def test_output_without_an_end_while_the_job_waits(tmp_path: pathlib.Path) -> None:
    found = script(tmp_path, "case $n in 0) ;; 1) exec yes localhost:1 ;; *) echo localhost:1 ;; esac")
    code, ranks, err = run(found, "-np", "1", "--elastic-timeout", "60")
    assert (code, ranks) == (0, 1), err
    assert err.count(f"{found}: printed more than 1 MiB; the job keeps its hosts") == 1, err
