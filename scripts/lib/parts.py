"""The parts of the test suite: one function for each, and a table at the end."""

from __future__ import annotations

import pathlib
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence

from aarch64 import BUILD as AARCH64_BUILD
from aarch64 import SYSTEM
from context import LOGS, Context, Form, Order, Part, When
from cpp_tests import build_programs, build_tests, run_meson_tests, without_leaks
from sysroot import NOT_HERE
from tally import Tally, check, failure, from_records, skip

BUILD = pathlib.Path("build/wheel")  # scripts/setup made it
PYTHON_TESTS = ("tests/campaigns", "tests/netns", "tests/support", "tests/wheel", "tests/sanitizers")
EMBEDDED = ("launcher/doctor/host_python.py", "launcher/remote/nccl_version.py")  # run on other hosts, as text in hvdrun


def sources(*patterns: str) -> list[str]:
    """The matching files of the tree, sorted, without those that git ignores."""
    roots = ["include", "src", "runtime", "launcher", "tools", "tests", "examples", "scripts"]
    found = [path for root in roots for pattern in patterns for path in pathlib.Path(root).rglob(pattern)]
    return sorted(str(path) for path in found if "__pycache__" not in path.parts and path.is_file())


def scripts_of(language: str) -> list[str]:
    """Returns the programs without a suffix whose "#!" line names the interpreter `language`."""
    found = []
    for path in [
        *pathlib.Path("scripts").iterdir(),
        *map(pathlib.Path, (".ci/run", "tests/netns/hosts", "tests/campaigns/run")),
    ]:
        if path.is_file() and not path.suffix and language in path.open(errors="replace").readline():
            found.append(str(path))
    return sorted(found)


# ---- formatters and linters -----------------------------------------------------------------------------------------


def run_format(context: Context) -> Tally:
    """clang-format and ruff format agree with every file."""
    native = sources("*.h", "*.cc", "*.c", "*.cpp")
    tally = context.good("clang-format", ["clang-format", "--dry-run", "-Werror", *native])
    tally += context.good("ruff format", ["ruff", "format", "--check", "--diff", ".", *scripts_of("python")])
    return tally


def run_lint(context: Context) -> Tally:
    """Linters; the C++ compiler's warnings are errors in every build."""
    tally = context.good("ruff", ["ruff", "check", ".", *scripts_of("python")])
    tally += context.good("mypy of the package", ["mypy", "src/python"], 240)
    tally += context.good("mypy of scripts and tests", ["mypy", *EMBEDDED, "scripts/lib", "scripts/bench", *PYTHON_TESTS], 240)
    tally += context.good("who may include whom", [sys.executable, "scripts/check-includes"])
    tally += context.good("one name, one meaning", [sys.executable, "scripts/check-names"])
    tally += context.good("no class without a reason for its size", [sys.executable, "scripts/check-sizes"])
    tally += run_pytest(context, "tests/lint")
    tally += context.good("files that the pages name are there", [sys.executable, "scripts/check-paths"])
    tally += context.good("each test can fail", [sys.executable, "scripts/check-asserts"])
    tally += context.good("comments name what is there", [sys.executable, "scripts/check-comments"])
    tally += context.good("the tables of tested versions are made of records", [sys.executable, "scripts/status", "--check"])
    tally += context.good("the table of speeds is made of its figures", [sys.executable, "scripts/bench/picture.py", "--check"])
    shells = [*scripts_of("/sh"), *scripts_of("bash")]
    tally += optional(context, "shellcheck", ["shellcheck", "-x", "-e", "SC2086,SC2046,SC1091", *shells])
    pages = [str(path) for path in pathlib.Path("man").glob("*.[1-9]")]
    tally += optional(context, "mandoc", ["mandoc", "-T", "lint", "-W", "warning", *pages])
    tally += context.good("the manual has every option, key and function", [sys.executable, "scripts/man-options", "--check"])
    return tally


def optional(context: Context, name: str, argv: Sequence[str]) -> Tally:
    """A check that is skipped if its tool is missing."""
    if shutil.which(argv[0], path=context.env["PATH"]) is None:
        return skip(name, f"{argv[0]} is not installed")
    return context.good(name, argv)


# ---- unit tests, plain and under sanitizers -------------------------------------------------------------------------


def run_world(context: Context) -> Tally:
    """libhvd of the wheel's build, under mpirun."""
    return run_meson_tests(context, BUILD, which="others") if test_programs(context) else no_programs()


def run_unit(context: Context) -> Tally:
    """The unit tests of the wheel's build; every day they run under sanitizers, in asan and tsan."""
    return run_meson_tests(context, BUILD, which="units") if test_programs(context) else no_programs()


def no_programs() -> Tally:
    return failure(str(BUILD), "does not build its tests")


PROGRAMS: list[bool] = []  # empty: not built yet; [True]: the tests' own programs are built; [False]: the build failed
ONE_AT_A_TIME = threading.Lock()


def test_programs(context: Context) -> bool:
    """Builds the tests' own programs beside the wheel's, once in a run, for all parts; scripts/setup leaves them out.

    Leaves out the unit tests: they are a third of all code to compile, and no other part runs them.
    """
    with ONE_AT_A_TIME:
        if not PROGRAMS:
            code, _ = context.command(["meson", "configure", str(BUILD), "-Dtests=true"], 120)
            PROGRAMS.append(code == 0 and build_programs(context, BUILD))
        return PROGRAMS[0]


def sanitized(context: Context, name: str, sanitizers: str, compiler: str, *options: str) -> pathlib.Path | None:
    """Makes or updates a build folder under sanitizers; None if meson failed.

    The build has line tables only, and under ASan and UBSan no optimisation.  With full debug data and optimisation, gcc takes
    three times as long.  The build has kernels for one GPU: nvcc takes half a minute for all GPUs, and the wheel's build covers
    them.
    """
    build = pathlib.Path("build") / name
    argv = [
        "meson",
        "setup",
        str(build),
        "-Dbuildtype=debug",
        "-Dcpp_args=" + ("-gline-tables-only -fno-sanitize=function" if compiler == "clang" else "-g1"),
        f"-Db_sanitize={sanitizers}",
        "-Db_lundef=false",
        "-Dgpus=80",
        *("-Dunity=on", "-Dunity_size=20"),
        *options,
    ]
    again = (build / "build.ninja").exists()
    if not again:
        shutil.rmtree(build, ignore_errors=True)  # remains of an interrupted set-up
    compilers = {"CC": "clang", "CXX": "clang++"} if compiler == "clang" else {}
    code, _ = context.command([*argv, *(["--reconfigure"] if again else [])], 120, compilers)
    return build if code == 0 else None


def clang_has_asan(context: Context) -> bool:
    """Returns whether clang exists with the sanitizer's library, which is a separate package on some systems."""
    if shutil.which("clang++", path=context.env["PATH"]) is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "a.cc"
        source.write_text("int main() {}")
        argv = ["clang++", "-fsanitize=address,undefined", str(source), "-o", f"{folder}/a"]
        return bool(context.command(argv, 60, quiet=True)[0] == 0)


def configure_asan(context: Context) -> pathlib.Path | None:
    """Configures with clang if possible: gcc takes twice as long."""
    if clang_has_asan(context):
        return sanitized(context, "asan-clang", "address,undefined", "clang", "-Doptimization=0")
    return sanitized(context, "asan", "address,undefined", "gcc", "-Doptimization=0")


def configure_tsan(context: Context) -> pathlib.Path | None:
    return sanitized(context, "tsan", "thread", "gcc", "-Doptimization=1")


# These tests start no thread (strace -f -e clone3), so the thread sanitizer has nothing to check.  Without them the launcher
# need not be compiled for it.
WITHOUT_THREADS = (
    *("base", "launcher", "placement", "pmix", "fuzz parsers"),
    *("unit simulate", "unit exchange", "unit elastic", "unit elastic planted", "unit elastic recovery"),
)
# Ranks as processes: their threads wait for each other through another process's memory, which the sanitizer cannot follow.
RANKS_ARE_PROCESSES = ("unit revocation",)
# This test only checks that the simulation finds planted faults, so AddressSanitizer gains nothing.
NOT_UNDER_ASAN = ("unit elastic planted",)
# The GPU's unit tests once more, with another NCCL or without kernels: the same threads.
BY_NIGHT = (
    *("gpu NCCL before 2.27", "gpu NCCL holds its caller for ever"),
    *("gpu without kernels", "gpu without kernels, loaded lazily"),
)


ASAN = {
    "ASAN_OPTIONS": "abort_on_error=1:detect_stack_use_after_return=1:detect_leaks=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "LSAN_OPTIONS": "suppressions=tests/sanitizers/leaks.txt:print_suppressions=0",
}


TSAN = {
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1:allocator_may_return_null=1:atexit_sleep_ms=100"
    ":suppressions=tests/sanitizers/threads.txt",
}


def absolute(options: dict[str, str]) -> dict[str, str]:
    """Makes paths of suppression files absolute, since tests run in other folders."""
    here = str(pathlib.Path.cwd())
    return {name: value.replace("suppressions=tests/", f"suppressions={here}/tests/") for name, value in options.items()}


def run_asan(context: Context) -> Tally:
    """Address, leak and undefined-behaviour sanitizers: unit tests, then two ranks."""
    build = configure_asan(context)
    if build is None:
        return failure("asan", "meson setup failed")
    env = absolute(ASAN)
    tally = run_meson_tests(context, build, env, without=() if context.nightly else NOT_UNDER_ASAN)
    tally += run_pytest(context, "tests/sanitizers", {**without_leaks(env), "HVD_BUILD_DIR": str(build.resolve())})
    return tally


def run_tsan(context: Context) -> Tally:
    """Thread sanitizer over the unit tests, without address randomisation, which gcc 12's runtime does not support."""
    build = configure_tsan(context)
    if build is None:
        return failure("tsan", "meson setup failed")
    env = absolute(TSAN) | ({"HVD_TEST_EVERY_CALL": "1"} if context.nightly else {})
    without = (*WITHOUT_THREADS, *RANKS_ARE_PROCESSES, *(() if context.nightly else BY_NIGHT))
    return run_meson_tests(context, build, env, wrapper=["setarch", "-R"], which="units", without=without)


# ---- pytest suites --------------------------------------------------------------------------------------------------


def run_pytest(
    context: Context, folder: str, env: dict[str, str] | None = None, limit: float = 1500, only: Sequence[str] = ()
) -> Tally:
    """Runs a folder of pytest tests.  A test has a limit of four minutes, unless it sets another, to detect hangs.

    only: runs only these files of the folder, in their short form, also at night.
    """
    if not list(pathlib.Path(folder).rglob("test_*.py")):
        return skip(folder, "no tests there yet")
    LOGS.mkdir(parents=True, exist_ok=True)
    records = LOGS / f"{context.part.name}.json"
    records.unlink(missing_ok=True)
    what = [f"{folder}/{name}" for name in only] or [folder]
    options = ["--timeout=240", "-q", "-pno:cacheprovider"]  # parallel parts would share the cache's folder
    chosen = Form.day.value if only else context.marks
    argv = [sys.executable, "-m", "pytest", *what, *options, f"--records={records}", *(["-m", chosen] if chosen else [])]
    all_env = {"HVD_BUILD_DIR": str(BUILD.resolve()), **(env or {})}
    context.records = records
    code, _ = context.command(argv, limit * (4 if context.nightly else 1), all_env)
    context.records = None

    def run_alone(test: str) -> bool:
        return bool(context.command([sys.executable, "-m", "pytest", test, *options], 300, all_env)[0] == 0)

    return from_records(records, code, run_alone)


def suite(folder: str, limit: float = 1500) -> Callable[[Context], Tally]:
    """The function that runs one pytest folder."""

    def run(context: Context) -> Tally:
        if not test_programs(context):
            return no_programs()
        return run_pytest(context, folder, limit=limit)

    return run


# ---- nightly --------------------------------------------------------------------------------------------------------


def run_clang(context: Context) -> Tally:
    """Builds the tree with clang too, without a warning, and runs its unit tests.

    Clang compiles each file alone, unlike all other builds of the suite.  A file that lacks an include fails here.
    """
    compiler = shutil.which("clang++", path=context.env["PATH"])
    if compiler is None:
        return skip("clang", "clang++ is not installed")
    build = pathlib.Path("build/clang")
    again = ["--reconfigure"] if (build / "build.ninja").exists() else []
    code, _ = context.command(["meson", "setup", str(build), *again], 120, {"CC": "clang", "CXX": "clang++"})
    return run_meson_tests(context, build) if code == 0 else failure("clang", "meson setup failed")


FUZZ_SECONDS = 60  # for each parser


def run_fuzz(context: Context) -> Tally:
    """Every parser under libFuzzer, ASan and UBSan, from the kept seeds and from those that earlier nights found."""
    compiler = shutil.which("clang++", path=context.env["PATH"])
    if compiler is None:
        return skip("fuzz", "clang++ is not installed")
    build = pathlib.Path("build/fuzz")
    options = ["-Dbuildtype=debug", "-Doptimization=1", "-Db_sanitize=address,undefined", "-Db_lundef=false", "-Dfuzzer=true"]
    argv = ["meson", "setup", str(build), *options, "-Dcpp_args=-fsanitize=fuzzer-no-link -g1"]
    again = ["--reconfigure"] if (build / "build.ninja").exists() else []
    if context.command([*argv, *again], 120, {"CC": "clang", "CXX": "clang++"})[0] != 0:
        return failure("fuzz", "meson setup failed")
    programs = ("tests/fuzz/parsers_fuzz", "tests/fuzz/parsers_libfuzzer")
    if context.command(["ninja", "-C", str(build), *programs], 1800)[0] != 0:
        return failure("fuzz", "does not build")
    kept = pathlib.Path(".cache/fuzz")
    _, names = context.command([str(build / programs[0]), "--samples", str(kept)], 60)
    tally = Tally()
    for name in names.split():
        limits = [f"-max_total_time={FUZZ_SECONDS}", "-timeout=25", "-rss_limit_mb=2048", "-max_len=4096"]
        seeds = [path for path in (f"{kept}/{name}", f"tests/fuzz/seeds/{name}") if pathlib.Path(path).is_dir()]
        argv = [str(build / programs[1]), *limits, f"-artifact_prefix={kept}/failed-{name}-", *seeds]
        tally += context.good(f"fuzz {name}", argv, 4 * FUZZ_SECONDS, {**ASAN, "HVD_FUZZ": name})
    return tally


def no_wheel(context: Context, name: str, *options: str) -> Tally | None:
    """Makes a wheel by scripts/wheel-NAME; the reason if it cannot be made here."""
    code, said = context.command([sys.executable, f"scripts/wheel-{name}", *options], 3600)
    if code == NOT_HERE:
        return skip(name, said.strip().splitlines()[-1].partition(": ")[2])
    return failure(name, "the wheel does not build") if code != 0 else None


def run_aarch64(context: Context) -> Tally:
    """The wheel for aarch64, cross-built; under qemu its build's unit tests and a job of two ranks."""
    if why := no_wheel(context, "aarch64"):
        return why
    tally = run_pytest(context, "tests/wheel", {"HVD_TEST_WHEELS": "dist/aarch64"}, only=("test_wheel.py", "test_emulated.py"))
    if context.command([str(SYSTEM.folder / "start"), "/usr/bin/env"], 60, quiet=True)[0] != 0:
        tally += skip("aarch64", "no programs of it run here (Linux 6.7, user namespaces, qemu-user-static)")
        return tally
    if context.command(["meson", "configure", str(AARCH64_BUILD), "-Dtests=true"], 120)[0] != 0:
        tally += failure("aarch64", "meson configure failed")
        return tally
    tally += run_meson_tests(context, AARCH64_BUILD, which="units")
    return tally


def run_glibc(context: Context) -> Tally:
    """The wheel for glibc 2.27, and jobs in a root that has nothing else."""
    if why := no_wheel(context, "glibc-2.27", "--with-python"):
        return why
    chosen = {"HVD_TEST_WHEELS": "dist/glibc-2.27"}
    return run_pytest(context, "tests/wheel", chosen, only=("test_wheel.py", "test_old_system.py"))


def run_threads(context: Context) -> Tally:
    """The wheel for CPython without a GIL; four threads in its C module, also under ThreadSanitizer."""
    if why := no_wheel(context, "free-threaded") or no_wheel(context, "free-threaded", "--thread-sanitizer"):
        return why
    chosen = {"HVD_TEST_WHEELS": "dist/free-threaded"}
    return run_pytest(context, "tests/wheel", chosen, only=("test_wheel.py", "test_free_threaded.py"))


OLDER_SPARKS = ("spark35", "spark40")
SPARKS_CORE = tuple(f"test_{name}.py" for name in ("runner", "results", "errors", "names", "ending", "hosts", "training"))


def run_older_spark(context: Context) -> Tally:
    """Tests that do not depend on Spark's version, on older versions."""
    if not test_programs(context):
        return no_programs()
    tally = Tally()
    for name in OLDER_SPARKS:
        python = pathlib.Path.cwd() / ".cache" / name / "bin/python"
        if not python.exists() or context.command([str(python), "-c", "import pyspark"], 60, quiet=True)[0] != 0:
            tally += skip(name, f".cache/{name} has no Spark (scripts/setup --nightly; 3.5 needs Python 3.11 or older)")
            continue
        tally += run_pytest(context, "tests/spark", {"HVD_TEST_SPARK": str(python)}, only=SPARKS_CORE)
    return tally


RANDOM_SEEDS = range(1000, 6000, 1000)  # a case's number is added to its run's seed


def run_random(context: Context) -> Tally:
    """The long form of random tests: operations on GPUs, over the fakes; elastic jobs on a simulated clock."""
    if not test_programs(context) or build_tests(context, BUILD, "units") is None:
        return no_programs()
    argv = ["meson", "test", "-C", str(BUILD), "--no-rebuild", "--num-processes=1", "--timeout-multiplier=3", "unit gpu"]
    tally = Tally()
    for seed in RANDOM_SEEDS:
        env = {"HVD_RANDOM_CASES": "2000", "HVD_RANDOM_SEED": str(seed)}
        tally += context.good(f"unit gpu, 2000 cases from seed {seed}", argv, 900, env)
    tally += context.good("elastic jobs, 100 000 seeds", [str(BUILD / "tests/simulate/hvd-elastic"), "100000"], 600)
    return tally


def run_repeat(context: Context) -> Tally:
    """The unit tests a hundred times, to find tests that fail rarely."""
    if not test_programs(context) or build_tests(context, BUILD, "units") is None:
        return no_programs()
    code, output = context.command(
        ["meson", "test", "-C", str(BUILD), "--repeat=100", "--num-processes=1", "--maxfail=1", "--timeout-multiplier=3"], 3600
    )
    runs = re.search(r"Ok:\s+(\d+)", output)
    return check(f"{runs.group(1) if runs else 0} runs", code == 0, f"exit code {code}")


# The order of scripts/test --rest: by their seconds in CI, so that all lanes end at about the same time.
LONGEST_REST = ("asan", "netns", "failures", "tsan", "python", "spark", "launcher", "ray", "wheel")

# Among parts of one kind, the longest come first.
PARTS = [
    Part("world", "libhvd over MPI", run_world, order=Order.first),
    Part("failures", "what fails, and what is said then", suite("tests/failures"), When.split),
    Part("launcher", "hvdrun's decisions and command line", suite("tests/launcher"), When.split),
    Part("trace", "timelines, opened in Perfetto", suite("tests/trace"), When.split),
    Part("rank", "hvdrank: guard, Python, payload", suite("tests/rank")),
    Part("gpu", "GPUs: over fakes, and on a real one where there is one", suite("tests/gpu"), When.split),
    Part("docs", "the web site in a browser; examples killed and resumed", suite("tests/docs"), When.split),
    Part("format", "clang-format and ruff format", run_format, order=Order.computing),
    Part("lint", "ruff, mypy, include arrows, shell, manual pages", run_lint, order=Order.computing),
    Part("python", "the Python package", suite("tests/python"), When.split, Order.computing),
    Part("property", "random operations against a model in NumPy", suite("tests/property"), order=Order.computing),
    Part("models", "protocols in shared memory, by a model checker", suite("tests/models"), order=Order.computing),
    Part("netns", "several hosts; nothing in clear on the wire", suite("tests/netns"), When.ci),
    Part("spark", "Spark as launcher: HorovodRunner, three hosts, estimators", suite("tests/spark"), When.ci),
    Part("ray", "Ray as launcher: RayExecutor on two nodes, elastic jobs, deaths", suite("tests/ray_cluster"), When.ci),
    Part("wheel", "one wheel, clean environments, old and new torch", suite("tests/wheel"), When.ci),
    Part("asan", "address and undefined-behaviour sanitizers: units, two ranks", run_asan, When.ci, Order.computing),
    Part("tsan", "thread sanitizer: units", run_tsan, When.ci, Order.computing),
    Part("unit", "unit tests, of the wheel's own build", run_unit, When.night, Order.computing),
    Part("sparks", "Spark 3.5 and 4.0: the same core", run_older_spark, When.night),
    Part("clang", "a second compiler", run_clang, When.night, Order.computing),
    Part("aarch64", "the wheel for aarch64; its tests under qemu", run_aarch64, When.night, Order.computing),
    Part("glibc", "the wheel for glibc 2.27; jobs with that C library", run_glibc, When.night, Order.computing),
    Part("threads", "the wheel for CPython without a GIL; four threads", run_threads, When.night, Order.computing),
    Part("fuzz", "every parser, a minute each under libFuzzer", run_fuzz, When.night, Order.computing),
    Part("random", "at random: 10 000 GPU operations, 100 000 simulated jobs", run_random, When.night, Order.computing),
    Part("repeat", "unit tests, a hundred times", run_repeat, When.night),
]
