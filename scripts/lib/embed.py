#!/usr/bin/env python3
"""Makes a C++ file that defines a string with a text file's contents: embed.py IN OUT NAMESPACE NAME."""

import sys

source, target, namespace, name = sys.argv[1:]
with open(source, "rb") as file, open(target, "w", encoding="ascii") as out:
    out.write(f"namespace {namespace} {{\nextern const char {name}[];\nconst char {name}[] =\n")
    for line in file:
        harmless = set(range(32, 127)) - set(b'"\\?')
        out.write('"' + "".join(chr(c) if c in harmless else f"\\{c:03o}" for c in line) + '"\n')
    out.write(f";\n}}  // namespace {namespace}\n")
