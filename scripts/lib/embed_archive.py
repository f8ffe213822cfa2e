#!/usr/bin/env python3
"""Makes a C++ file that defines a zip archive of text files: embed_archive.py OUT NAMESPACE NAME FILE[=NAME[+]]...

The archive also has the marshalled code of a file with +, for each Python on this host: NAME.cpython-311 and so on.  It also
has sitecustomize.py as a .pyc for the Python that runs this.  The same files give the same bytes.
The archive is an array of characters: compilers need not accept a string literal of more than 65 536.
"""

from __future__ import annotations

import io
import pathlib
import shutil
import subprocess
import sys
import zipfile

COMPILE = """
import marshal, sys, _frozen_importlib_external as external
code = compile(open(sys.argv[1], "rb").read(), "<hvdrun>", "exec", 0, True, 2)
sys.stdout.buffer.write(sys.implementation.cache_tag.encode() + b" " + external.MAGIC_NUMBER + marshal.dumps(code))
"""

UNCHECKED = b"\1" + bytes(11)  # after a .pyc's magic number: its source need not be looked at


def compiled(path: str) -> dict[str, bytes]:
    """{tag: magic number and code}, by the Pythons of this machine."""
    names = [f"python3.{minor}" for minor in range(8, 20)]
    found: dict[str, bytes] = {}
    for python in filter(None, [sys.executable, *map(shutil.which, names)]):
        done = subprocess.run([python, "-I", "-S", "-c", COMPILE, path], capture_output=True, stdin=subprocess.DEVNULL)
        tag, _, code = done.stdout.partition(b" ")
        if done.returncode == 0 and code:
            found.setdefault(tag.decode(), code)
    return dict(sorted(found.items()))


target, namespace, name, *sources = sys.argv[1:]
memory = io.BytesIO()
with zipfile.ZipFile(memory, "w", zipfile.ZIP_STORED) as archive:
    for source in sources:
        path, _, inside = source.partition("=")
        plain = inside.rstrip("+") or pathlib.Path(path).name
        archive.writestr(zipfile.ZipInfo(plain), pathlib.Path(path).read_bytes())
        for tag, code in compiled(path).items() if inside.endswith("+") else ():
            archive.writestr(zipfile.ZipInfo(f"{plain}.{tag}"), code)
        if plain == "sitecustomize.py":
            code = compiled(path)[sys.implementation.cache_tag]
            archive.writestr(zipfile.ZipInfo(f"{plain}c"), code[:4] + UNCHECKED + code[4:])
data = memory.getvalue()
rows = [data[i : i + 32] for i in range(0, len(data), 32)]
with open(target, "w", encoding="ascii") as out:
    out.write(f"namespace {namespace} {{\nextern const char {name}[];\nextern const unsigned long {name}_bytes;\n")
    out.write(f"const unsigned long {name}_bytes = {len(data)};\nconst char {name}[] = {{\n")
    for row in rows:
        out.write("".join(f"'\\{byte:03o}'," for byte in row) + "\n")
    out.write(f"}};\n}}  // namespace {namespace}\n")
