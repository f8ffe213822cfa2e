#!/usr/bin/env python3
"""Makes a C++ file that defines a zip archive of text files: embed_archive.py OUT NAMESPACE NAME FILE[=NAME]...

The same files give the same bytes.
"""

import io
import pathlib
import sys
import zipfile

target, namespace, name, *sources = sys.argv[1:]
memory = io.BytesIO()
with zipfile.ZipFile(memory, "w", zipfile.ZIP_STORED) as archive:
    for source in sources:
        path, _, inside = source.partition("=")
        archive.writestr(zipfile.ZipInfo(inside or pathlib.Path(path).name), pathlib.Path(path).read_bytes())
data = memory.getvalue()
rows = [data[i : i + 32] for i in range(0, len(data), 32)]
with open(target, "w", encoding="ascii") as out:
    out.write(f"namespace {namespace} {{\nextern const char {name}[];\nextern const unsigned long {name}_bytes;\n")
    out.write(f"const unsigned long {name}_bytes = {len(data)};\nconst char {name}[] =\n")
    for row in rows:
        out.write('"' + "".join(f"\\{byte:03o}" for byte in row) + '"\n')
    out.write(f";\n}}  // namespace {namespace}\n")
