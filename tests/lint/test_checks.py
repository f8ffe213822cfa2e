"""The checks of the tree find planted faults: check-includes, check-names."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
from trees import load

Plant = Callable[..., pathlib.Path]


includes, names = load("check-includes"), load("check-names")


@pytest.fixture
def plant(tmp_path: pathlib.Path) -> Plant:
    """Makes a tree of these files: plant({path: text})."""

    def plant(files: dict[str, str]) -> pathlib.Path:
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return tmp_path

    return plant


ROOMS = {
    "src/base": "",
    "src/wire/channel/zmq": "src/base",
    "src/rank": "src/base src/rank/guard",
    "src/rank/guard": "src/base",
}
SOUND = {
    "src/base/file.h": "",
    "src/wire/channel/zmq/frame.h": '#include "base/file.h"\n#include <zmq.h>\n',
    "src/rank/main.cc": '#include "rank/guard/guard.h"\n',
    "src/rank/guard/guard.h": '#include <vector>\n#include "base/file.h"\n#include "made.inc"\n',
}


def errors_of_includes(tree: pathlib.Path, rooms: dict[str, str] = ROOMS) -> list[str]:
    house = includes.House(tree, rooms)
    house.find_circles()
    return house.errors


def test_a_sound_tree_has_no_errors(plant: Plant) -> None:
    tree = plant(SOUND)
    assert errors_of_includes(tree) == []
    assert names.findings(tree)[0] == []


@pytest.mark.parametrize(
    ("path", "text", "error"),
    [
        (
            "src/base/log.cc",
            '#include "wire/channel/zmq/frame.h"\n',
            "src/base/log.cc:1: src/base must not include src/wire/channel/zmq",
        ),
        (
            "src/rank/guard/a.cc",
            '\n#include "wire/channel/zmq/frame.h"\n',
            "a.cc:2: src/rank/guard must not include src/wire/channel/zmq",
        ),
        ("src/rank/a.cc", "#include <zmq.h>\n", "src/rank must not include <zmq.h>; only src/wire/channel/zmq may"),
        ("src/rank/a.cc", '#include "nowhere.h"\n', '"nowhere.h" is no header of the tree'),
        ("src/rank/launch/a.cc", "", "src/rank/launch: has no row"),
        ("src/base/file.h", '#include "base/log.h"\n', "base/file.h"),
    ],
)
def test_a_planted_include_is_found(plant: Plant, path: str, text: str, error: str) -> None:
    tree = plant({**SOUND, "src/base/log.h": '#include "base/file.h"\n', path: text})
    assert [error in one for one in errors_of_includes(tree)] == [True]


def test_a_row_without_sources_and_a_circle_of_rooms_are_found(plant: Plant) -> None:
    rooms = {**ROOMS, "src/base": "src/phantom", "src/phantom": "src/base"}
    errors = errors_of_includes(plant(SOUND), rooms)
    assert len(errors) == 2
    assert "src/phantom: a row" in errors[0]
    assert "a circle: " in errors[1]


@pytest.mark.parametrize(
    "text",
    [
        "struct Frame {};",
        "namespace { enum class Frame : int { a }; }",
        "namespace hvd::a { template <class T> class alignas(64) Frame final : public Base<T, int> { int x = 1'000'000; }; }",
        'extern "C" { struct Frame { int x; }; }',
        "class Outer { int x_; public: struct Frame {}; };",
        "class Outer { private: int x_; public: enum Frame { a }; };",
    ],
)
def test_a_type_of_a_used_name_is_found(plant: Plant, text: str) -> None:
    errors, _ = names.findings(
        plant({**SOUND, "src/base/log.h": text, "src/wire/queue.h": "\n/* Frame {} */ struct Frame { int a; };"})
    )
    assert len(errors) == 2
    assert "src/base/log.h:1" in errors[0]
    assert "src/wire/queue.h:2: Frame" in errors[1]


@pytest.mark.parametrize(
    "text",
    [
        "struct Frame;",
        "class Outer { struct Frame {}; };",  # private
        "class Outer { public: int x; private: enum class Frame { a }; };",
        "struct Outer { class Frame; }; class Outer::Frame { int x; };",
        "void f() { struct Frame { int x; }; }",  # a function's own
        "template <class Frame> struct Other {};",
        "template <> struct Frame<int> {};",
        "struct Frame make(int x) { return {}; }",
        "struct Frame here{};",
        '// struct Frame {};\nconst char* text = "struct Frame {";',
    ],
)
def test_what_defines_no_type_of_the_house_is_left_alone(plant: Plant, text: str) -> None:
    tree = plant(
        {
            **SOUND,
            "src/base/log.h": text,
            "src/wire/queue.h": "struct Frame { struct State {}; }; struct Other2 { struct State {}; };",
        }
    )
    assert names.findings(tree)[0] == []


def test_a_file_name_with_two_meanings_is_found(plant: Plant) -> None:
    tree = plant({**SOUND, "src/base/queue.h": "", "src/base/queue.cc": "", "src/wire/queue.cc": "", "launcher/main.cc": ""})
    assert len(names.findings(tree)[0]) == 2


def test_a_crowded_folder_is_found(plant: Plant) -> None:
    tree = plant({f"src/base/file_{number}.h": "" for number in range(21)})
    assert names.findings(tree)[0] == ["src/base: 21 files, more than 20: give it folders"]
