"""check-comments finds banned phrases in every kind of file, and leaves plain sentences alone."""

from __future__ import annotations

import pathlib

import pytest
from trees import load

comments = load("check-comments")
phrases = comments.phrases


def found(folder: pathlib.Path, name: str, text: str) -> list[str]:
    path = folder / name
    path.write_text(text)
    return list(phrases.riddles(path, name))


@pytest.mark.parametrize(
    "sentence",
    [
        "What becomes of it, the mark says that is recorded.",
        "What is packed there, the GPU adds up.",
        "Ignores who has withdrawn that takes no notice.",
        "The same, and the result is nobody's.",
        "The last tensor. The same; empty when not set.",
        "At most so many bytes travel at once.",
        "A chunk has so much, and the last one less.",
        "Goes on with the work behind it.",
        "Sends a list. Of what they need, ranks get half.",
        "Who has called is told too.",
        "It knows of what is here only the size.",
        "The GPU of that card is busy.",
        "Each rank has a letter box for the others.",
        "Its connection waits at the door.",
        "The desk reads the frame.",
    ],
)
def test_a_riddle_is_found_in_every_kind_of_file(tmp_path: pathlib.Path, sentence: str) -> None:
    middle = len(sentence) // 2
    cut = sentence.index(" ", middle)
    first, second = sentence[:cut], sentence[cut + 1 :]
    assert found(tmp_path, "a.h", f"int a = 1;\n/// {first}\n/// {second}\nint b;\n"), "C++"
    assert found(tmp_path, "b.c", f"int a;  /* {first}\n   {second} */\n"), "C"
    assert found(tmp_path, "c.py", f"a = 1\n# {first}\n# {second}\n"), "Python's comment"
    assert found(tmp_path, "d.py", f'def f():\n    """{first}\n    {second}\n    """\n'), "docstring"
    assert found(tmp_path, "e.md", f"# Title\n\n- {first}\n  {second}\n"), "Markdown"
    assert found(tmp_path, "f.1", f".Sh TITLE\n.It Fl x\n{first}\n{second}\n"), "manual"
    assert found(tmp_path, "g.sh", f"#!/bin/sh\n# {first}\n# {second}\ntrue\n"), "shell"


@pytest.mark.parametrize(
    "sentence",
    [
        "Who may open the file? Its owner may.",
        "There are so many ranks that a tree pays.",
        "A wildcard selects all hosts.",
        "The doorbell wakes the thread.",
        "The header is the same as before; the same for a text of several lines.",
        "Letters, digits and dashes are allowed.",
        "The parts of a batch that have arrived are added up.",
    ],
)
def test_a_plain_sentence_passes(tmp_path: pathlib.Path, sentence: str) -> None:
    assert found(tmp_path, "a.h", f"/// {sentence}\n") == []
    assert found(tmp_path, "a.md", f"{sentence}\n") == []


def test_code_and_strings_are_not_prose(tmp_path: pathlib.Path) -> None:
    assert found(tmp_path, "a.cc", 'const char* card = "// so many cards";\n') == []
    assert found(tmp_path, "a.py", 'cards = "so many cards"\n') == []
    assert found(tmp_path, "a.md", "```\nso many cards\n```\n\n    ls cards\n\nOpens `cards`.\n") == []


def test_a_finding_names_file_line_and_advice(tmp_path: pathlib.Path) -> None:
    assert found(tmp_path, "a.h", "int a;\n\n// one\n// two cards\n") == [
        "a.h:3: “one two cards”: write GPU, or network interface"
    ]


def test_an_exception_covers_its_words_only(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(phrases.KEPT, "a.md", ("a card of paper",))
    assert found(tmp_path, "a.md", "It is a card of paper.\n") == []
    assert len(found(tmp_path, "a.md", "It is a card.\n")) == 1


def test_folders_that_are_unread_exist() -> None:
    assert [one for one in phrases.UNREAD if not (comments.ROOT / one).exists()] == []
