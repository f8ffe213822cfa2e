"""The wheel's bill of materials, as CycloneDX 1.6 (JSON): libraries that are compiled in, bundled, or loaded.

PEP 770 names the place in the wheel: *.dist-info/sboms.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass

from bundle import FOLDER, BundledLibrary


@dataclass(frozen=True)
class Library:
    """One library: pkg-config's name, an SPDX licence, and whether its code is in our files (else the system has it)."""

    name: str
    pkg_config: str
    spdx: str
    compiled_in: bool


LIBRARIES = (
    Library("nlohmann-json", "nlohmann_json", "MIT", True),
    Library("cppzmq", "cppzmq", "MIT", True),
    Library("libzmq", "libzmq", "LGPL-3.0-only", False),
    Library("hwloc", "hwloc", "BSD-3-Clause", False),
    Library("yaml-cpp", "yaml-cpp", "MIT", False),
    Library("simdjson", "simdjson", "Apache-2.0", False),
    Library("openmpi", "ompi", "BSD-3-Clause-Open-MPI", False),
)


def said(*argv: str) -> str:
    """The output of a program; empty if the program is missing or failed."""
    if shutil.which(argv[0]) is None:
        return ""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    return done.stdout.strip() if done.returncode == 0 else ""


def component(name: str, version: str, spdx: str, compiled_in: bool) -> dict[str, object]:
    """A row of the bill."""
    licence = {"expression": spdx} if " " in spdx else {"license": {"id": spdx}}
    row: dict[str, object] = {"type": "library", "bom-ref": name, "name": name, "licenses": [licence]}
    if version:
        row["version"] = version
    row["properties"] = [{"name": "hvdrun:how", "value": "compiled in" if compiled_in else "loaded from the system"}]
    return row


def bundled(library: BundledLibrary) -> dict[str, object]:
    """A row for a library of the system that is in the wheel; its licence is in a file there."""
    how = "linked statically" if library.compiled_in else f"in the wheel: {FOLDER}/{library.path.name}"
    return {
        "type": "library",
        "bom-ref": library.path.name,
        "name": library.package,
        "version": library.version,
        "purl": f"pkg:deb/{library.package}@{library.version}",
        "licenses": [{"license": {"name": f"{FOLDER}/licences/{library.package}.txt"}}],
        "properties": [{"name": "hvdrun:how", "value": how}],
    }


def bill(version: str, libraries: list[BundledLibrary]) -> str:
    """The document for this wheel, built on this machine; `libraries` are bundled."""
    files = {library.path.name.split(".so")[0] for library in libraries}
    rows = [
        component(x.name, said("pkg-config", "--modversion", x.pkg_config), x.spdx, x.compiled_in)
        for x in LIBRARIES
        if x.compiled_in or f"lib{x.pkg_config.removeprefix('lib')}" not in files
    ]
    rows += [bundled(library) for library in libraries]
    rows.append(component("libstdc++", said("c++", "-dumpfullversion"), "GPL-3.0-only WITH GCC-exception-3.1", True))
    nvcc = re.search(r"release ([\d.]+)", said("nvcc", "--version"))
    tools = [{"type": "application", "name": "nvcc", "version": nvcc.group(1)}] if nvcc else []
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "hvdrun",
                "name": "hvdrun",
                "version": version,
                "purl": f"pkg:pypi/hvdrun@{version}",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
            **({"tools": {"components": tools}} if tools else {}),
        },
        "components": rows,
        "dependencies": [{"ref": "hvdrun", "dependsOn": [str(row["bom-ref"]) for row in rows]}],
    }
    return json.dumps(document, indent=1) + "\n"
