"""absent.py FILE: prints the packages of a file of scripts/requirements that this Python lacks, or has at another version.

The environment's own Python runs it, because its pip contains the parser for conditions after ";".
"""

from __future__ import annotations

import importlib.metadata
import pathlib
import sys

from pip._vendor.packaging.requirements import Requirement


def requirements(text: str) -> list[Requirement]:
    """The packages for this Python; a package's line begins in the first column, its hashes do not."""
    lines = [line.removesuffix("\\") for line in text.splitlines() if line[:1].isalnum()]
    return [r for r in map(Requirement, lines) if r.marker is None or r.marker.evaluate()]


def is_there(requirement: Requirement) -> bool:
    """Returns whether the package is installed in a version that the requirement allows."""
    try:
        return requirement.specifier.contains(importlib.metadata.version(requirement.name), prereleases=True)
    except importlib.metadata.PackageNotFoundError:
        return False


print(*(r.name for r in requirements(pathlib.Path(sys.argv[1]).read_text()) if not is_there(r)))
