"""check-asserts finds tests that cannot fail, and recognises helpers that check."""

from __future__ import annotations

import pathlib
import textwrap

import pytest
from trees import load

asserts = load("check-asserts")

NATIVE = """
#include "helper.h"
void same(int a) { CHECK(a == 1); }
void twice(int a) { same(a); same(a); }
auto by_lambda = [](int a) -> bool { REQUIRE(a); return true; };
void quiet(int) {}
TEST_CASE("one") { BODY }
"""
PYTHON = """
import numpy as np
import pytest
from support import helper
from support.helper import deep

def near(a): assert a
def quiet(a): return a
class Job:
    def finished(self): near(1)

def test_one(job):
    BODY
"""


def native(folder: pathlib.Path, body: str) -> list[str]:
    (folder / "tests/unit").mkdir(parents=True)
    (folder / "tests/unit/helper.h").write_text("inline void far(int a) { if (!a) FAIL(a); }\n")
    (folder / "tests/unit/a_test.cc").write_text(NATIVE.replace("BODY", body))
    return list(asserts.NativeTests(folder).findings())


def python(folder: pathlib.Path, body: str, name: str = "test_a.py") -> list[str]:
    (folder / "tests/support").mkdir(parents=True)
    (folder / "tests/support/helper.py").write_text("def deep(): raise AssertionError\ndef idle(): pass\n")
    text = PYTHON.replace("BODY", textwrap.indent(body, "    ").strip())
    (folder / "tests" / name).parent.mkdir(exist_ok=True)
    (folder / "tests" / name).write_text(text)
    return list(asserts.PythonTests(folder).findings())


@pytest.mark.parametrize(
    "body",
    [
        "CHECK(1);",
        "for (;;) { REQUIRE_THROWS_AS(f(), int); }",
        "same(1);",
        "twice(1);",
        "if (x) { far(2); }",
        "by_lambda(3);",
    ],
)
def test_a_case_that_checks_is_left_alone(tmp_path: pathlib.Path, body: str) -> None:
    assert native(tmp_path, body) == []


@pytest.mark.parametrize("body", ["", "quiet(1);", "// CHECK(1)", 'std::puts("CHECK(1)");', "run(CHECKED);"])
def test_a_case_that_checks_nothing_is_found(tmp_path: pathlib.Path, body: str) -> None:
    assert native(tmp_path, body) == ["tests/unit/a_test.cc:7: this TEST_CASE checks nothing"]


@pytest.mark.parametrize(
    "body",
    [
        "assert job",
        "with pytest.raises(OSError): job()",
        "near(job)",
        "deep()",
        "helper.deep()",
        "job.finished()",
        "np.testing.assert_array_equal(1, 2)",
        "subprocess.run(job, check=True)",
    ],
)
def test_a_python_test_that_checks_is_left_alone(tmp_path: pathlib.Path, body: str) -> None:
    assert python(tmp_path, body) == []


@pytest.mark.parametrize("body", ["pass", "quiet(job)", "helper.idle()", "job.start()", "print('assert 1')"])
def test_a_python_test_that_checks_nothing_is_found(tmp_path: pathlib.Path, body: str) -> None:
    assert python(tmp_path, body) == ["tests/test_a.py:12: test_one checks nothing"]


def test_checks_of_ranks_are_tests_too(tmp_path: pathlib.Path) -> None:
    assert python(tmp_path, "def check_a(): pass", "ranks/a.py") == ["tests/ranks/a.py:13: check_a checks nothing"]


def test_the_tree_has_no_test_that_cannot_fail() -> None:
    assert [*asserts.NativeTests(asserts.ROOT).findings(), *asserts.PythonTests(asserts.ROOT).findings()] == []
