"""The Python in README.md, docs/ and man/: tests/python/ranks/snippets_*.py run each block for each framework."""

import ast
import math
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def blocks_of(path):
    """The blocks of code: between fences, indented, or literal in a manual page."""
    text = path.read_text()
    if path.suffix != ".md":
        found = re.findall(r"^\.Bd -literal.*\n((?:.*\n)*?)\.Ed$", text, re.M)
        return [block.replace(r"\-", "-").replace(r"\e", "\\").replace(r"\&", "") for block in found]
    fenced = re.compile(r"^```(\w*)\n((?:.*\n)*?)```$", re.M)
    found = [block for language, block in fenced.findall(text) if language in ("", "python")]
    indented = re.findall(r"(?:^(?:    .*)?\n)*^    .*\n(?:^(?:    .*)?\n)*", fenced.sub("", text), re.M)
    return found + [textwrap.dedent(block).strip("\n") + "\n" for block in indented]


def is_python(block):
    """Returns whether the code block is a Python program that uses this project."""
    try:
        tree = ast.parse(block.replace(", ...", "").replace("(..., ", "("))
    except SyntaxError:
        return False
    return any(isinstance(node, (ast.Import, ast.ImportFrom, ast.Attribute)) for node in ast.walk(tree))


def all_blocks():
    """[(file, block)]"""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "man").glob("*.[1-8]"))]
    return [(path.relative_to(ROOT).as_posix(), block) for path in files for block in blocks_of(path) if is_python(block)]


def run(file, part, names, *swaps):
    """Runs the only block of the file that contains this part, with these names; returns the names after it.

    swaps: pairs of texts, for parts that the page leaves out.
    """
    (block,) = (block for path, block in all_blocks() if path == file and part in block)
    for old, new in swaps:
        assert old in block, f"{old!r} is not in {block}"
        block = block.replace(old, new)
    space = dict(names)
    exec(compile(block, file, "exec"), space)
    return space


def regression(np):
    """The names that docs/elastic.md's snippet needs, in NumPy: 64 rows, weights, and two functions."""
    x = np.random.RandomState(0).rand(64, 3).astype("float32")
    y = x @ np.array([1.0, -2.0, 3.0], "float32")

    def loss_and_gradients(weights, x, y):
        error = x @ weights - y
        return float((error**2).mean()), 2 * x.T @ error / len(x)

    return {"x": x, "y": y, "weights": np.zeros(3, "float32"), "loss_and_gradients": loss_and_gradients}


def same_batch(hvd, names):
    """Runs the second snippet of docs/elastic.md: after an epoch all ranks have the same weights, with a better fit."""
    seen = [names["weights"]]

    def apply(weights, gradients):
        seen.append(weights - 0.1 * gradients)
        return seen[-1]

    run("docs/elastic.md", "hvd.elastic.GlobalBatches", {**names, "hvd": hvd, "apply": apply})
    assert len(seen) - 1 == math.ceil(len(names["x"]) / (16 * hvd.size())), "not all batches of the epoch came"
    losses = [float(names["loss_and_gradients"](weights, names["x"], names["y"])[0]) for weights in (seen[0], seen[-1])]
    assert losses[1] < losses[0], losses
    everyone = hvd.allgather_object(losses)
    assert everyone == [losses] * hvd.size(), everyone
