"""Phrases that make a reader read twice: the list of scripts/check-comments, and the prose that it looks at.

A phrase is banned in comments of C, C++, Python and shell, in docstrings, in Markdown and in manual pages.
"""

from __future__ import annotations

import ast
import io
import pathlib
import re
import tokenize
from collections.abc import Iterator

# ---- the list ---------------------------------------------------------------------------------------------------------

START = r"(?:^|(?<=[.!?:;] )|(?<=[.!?]  ))"  # of a sentence, or of a part behind a colon or semicolon
SENTENCE = r"(?:^|(?<=[.!?] )|(?<=[.!?]  ))"
CLAUSE = r"[^.,;:?!()]{2,60}?"

# (advice, pattern)
BANNED = [
    ("name the result or the outcome", r"\b(?:what|which|who) (?:comes|came|has come|will come|becomes|became) of\b"),
    (
        "name the noun that acts",
        r"\bwho (?:has|have|had|is|are|was|were) [^.,;:()]{1,40} that (?:is|was|takes?|has|knows|does)\b",
    ),
    ("say who ignores what", r"\btakes? no notice\b"),
    ("say whose it is, or that it is unused", r"\b(?:nobody|no one|none)'s\b"),
    (
        "give the number, or name it",
        r"\b(?:just |only |at most |at least )?so (?:many|much)\b(?![^.;:]{1,90}\bthat\b)(?! as\b)(?! more\b)",
    ),
    ("say after what", r"\bbehind (?:it|that|this|it all|them)\b(?! (?:is|are) (?:the|a|an)\b)"),
    ("begin with the noun", rf"{SENTENCE}What {CLAUSE}, (?:the|a|an|its|their|it|they|that|this|these|he|she) "),
    ("begin with the noun", rf"{SENTENCE}(?:Of|From|To|In|With|By|For|On|At) (?:what|whom|whoever) "),
    ("name who: a rank, a caller, a user", rf"{SENTENCE}(?:Who|Whoever|Whom|Whose) (?![^.!?]*\?)"),
    ("name what is the same as what", rf"{START}The same(?=[.,;:]| and\b|, )(?!,? (?:as|for|in|on|to|way|time))"),
    ("name the thing", r"\b(?:that|those|all|something) which\b(?! (?:is|are) not\b)"),
    ("name the thing", r"\bof what (?:is|are|was|were) (?:here|there)\b"),
    ("leave it out", r"\bas ever\b|\bis another matter\b|\bhas it that\b|\bso it (?:be|is) said\b|\band the like of\b"),
    ("name the actor", r"\bhe (?:who|that)\b|\bone who\b|\bsomebody who\b|\bthose who\b"),
]

# Home-made words, and the field's.
WORDS = [
    ("message, queue", r"\bletter[- ]?box(?:es)?\b|\bletters? (?:to|from|for|of) (?:a|the|another) rank"),
    ("message, packet", r"\bparcels?\b"),
    ("connection, port, socket", r"(?<![-\w])doors?\b"),
    ("GPU, or network interface", r"(?<!wild)(?<![-\w])cards?\b"),
    ("record, events", r"\bstor(?:y|ies)\b"),
    ("place, slot", r"\bseats?\b"),
    ("queue, table", r"\bdesks?\b"),
    ("owner", r"(?<![-\w])keepers?\b"),
]

RULES = [(advice, re.compile(pattern)) for advice, pattern in BANNED] + [
    (f"write {advice}", re.compile(pattern, re.IGNORECASE)) for advice, pattern in WORDS
]

# Deliberate: (file, words of the sentence).
KEPT: dict[str, tuple[str, ...]] = {}

# Folders and files whose comments have not been rewritten.
UNREAD: tuple[str, ...] = ()

# ---- prose ------------------------------------------------------------------------------------------------------------

Piece = tuple[int, str]  # line, text of a comment or paragraph on one line
C_COMMENT = re.compile(r"/\*.*?\*/|(?://[^\n]*(?:\n[ \t]*)?)+", re.DOTALL)
C_STRING = re.compile(r'R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"')
SHELL_COMMENT = re.compile(r"(?:^[ \t]*#(?!!)[^\n]*\n?)+", re.MULTILINE)
FENCE = re.compile(r"^(```|:::).*?^\1", re.MULTILINE | re.DOTALL)


def one_line(text: str) -> str:
    """Text without the marks of comments, on one line; quoted code is blank."""
    text = re.sub(r"(?m)^[ \t]*(?://+!?<?|/?\*+<?/?|#:?)[ \t]?", "", text)
    text = re.sub(r"`[^`\n]*`", "``", text)
    return re.sub(r"\s*\n\s*", " ", text).strip()


def paragraphs(text: str, first_line: int = 1) -> Iterator[Piece]:
    """The parts between empty lines, items of lists apart."""
    for found in re.finditer(
        r"(?:^[ \t]*(?:[-*]|\d+\.) |^(?=.))(?:.+\n?)(?:^[ \t]*(?![-*|] )[^\s|].*\n?)*", text, re.MULTILINE
    ):
        yield first_line + text.count("\n", 0, found.start()), re.sub(r"^[-*] |^\d+\. ", "", one_line(found[0]))


def of_c(text: str) -> Iterator[Piece]:
    """The comments of C and C++."""
    text = C_STRING.sub(lambda found: '""' + "\n" * found[0].count("\n"), text)
    for found in C_COMMENT.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, re.sub(r"@param \w+  |@return +", ". ", one_line(found[0]))


def of_python(text: str) -> Iterator[Piece]:
    """The comments and docstrings of Python."""
    last, block, first = -1, "", 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last + 1 and block:
            yield first, one_line(block)
            block = ""
        first = first if block else token.start[0]
        block, last = block + token.string + "\n", token.start[0]
    if block:
        yield first, one_line(block)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node):
            yield from paragraphs(ast.get_docstring(node) or "", node.body[0].lineno)


def of_shell(text: str) -> Iterator[Piece]:
    """The comments of shell, YAML and Docker that have lines of their own."""
    for found in SHELL_COMMENT.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, one_line(found[0])


def of_markdown(text: str) -> Iterator[Piece]:
    """The paragraphs of Markdown, without code."""
    text = FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)
    yield from paragraphs(re.sub(r"(?m)^    .*$", "", text))


def of_man(text: str) -> Iterator[Piece]:
    """The paragraphs of a manual page, without its macros and literal lines."""
    text = re.sub(r"(?ms)^\.Bd .*?^\.Ed$", lambda found: "\n" * found[0].count("\n"), text)
    for found in re.finditer(r"(?:^(?!\.(?:It|Pp|Sh|Ss|El|Bl)\b).+\n?)+", text, re.MULTILINE):
        words = re.sub(r"(?m)^\.\\\".*$|^\.[A-Z][a-z] ?", "", found[0]).replace(" , ", ", ").replace(" .\n", ".\n")
        yield text.count("\n", 0, found.start()) + 1, one_line(words)


def prose_of(path: pathlib.Path) -> Iterator[Piece]:
    """(line, text) of each comment, docstring or paragraph of a file."""
    text = path.read_text(errors="replace")
    suffix, shebang = path.suffix, text.split("\n")[0] if text.startswith("#!") else ""
    if suffix in (".h", ".cc", ".c", ".cu", ".inc", ".cpp"):
        return of_c(text)
    if suffix == ".py" or "python" in shebang:
        return of_python(text)
    if suffix == ".md":
        return of_markdown(text)
    if re.fullmatch(r"\.[1-9]", suffix):
        return of_man(text)
    return of_shell(text) if suffix in (".sh", ".sbatch", ".yaml", ".build") or "sh" in shebang else iter(())


def riddles(path: pathlib.Path, name: str) -> Iterator[str]:
    """Yields a line for each banned phrase of a file: its place, the phrase, the advice."""
    kept = KEPT.get(name, ())
    for line, text in prose_of(path):
        for advice, pattern in RULES:
            for found in pattern.finditer(text):
                around = text[max(0, found.start() - 40) : found.end() + 40]
                if not any(words in around for words in kept):
                    yield f"{name}:{line}: “{around}”: {advice}"
