"""Counting libraries: they have the function names of the CUDA driver and NCCL, and forward every call.

    counted.py FOLDER    builds libcuda_counted.so and libnccl_counted.so there (gcc, x86-64)

HVD_CUDA_LIBRARY and HVD_NCCL_LIBRARY name them; COUNTED_CUDA (default libcuda.so.1) and COUNTED_NCCL (libnccl.so.2) name the
real libraries.  The functions are all those in runtime/gpu: libhvd finds them by dlsym.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "runtime" / "gpu"
BEHIND = {"cuda": "libcuda.so.1", "nccl": "libnccl.so.2"}
NAMES = {"cuda": r'"(cu[A-Z]\w+)"', "nccl": r'"(nccl[A-Z]\w+)"'}
TIMED = "ncclGroupEnd"  # also measures its time: the host's time for a group

# A trampoline preserves all registers and the stack, so it fits every signature.
CODE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#define LIST(X) @LIST@
#define NAME(at, name) #name,
static const char* const names[] = {LIST(NAME)};
enum { count = sizeof names / sizeof *names };
__attribute__((visibility("hidden"))) long counted_calls_of[count];
__attribute__((visibility("hidden"))) void* counted_real[count];
static long timed_ns;

#define JUMP(at, name)                                                                        \\
  __asm__(".text\\n.globl " #name "\\n.type " #name ",@function\\n" #name ":\\n"              \\
          "lock incq counted_calls_of+8*" #at "(%rip)\\n jmp *counted_real+8*" #at "(%rip)\\n" \\
          ".size " #name ",.-" #name "\\n");
#define SAME(at, name) JUMP(at, name)
@JUMPS@

static int is_missing(void) { return 999; }
__attribute__((constructor)) static void open_real(void) {
  const char* named = getenv("@VARIABLE@");
  void* library = dlopen(named && *named ? named : "@BEHIND@", RTLD_NOW | RTLD_LOCAL);
  if (!library) fprintf(stderr, "counted: %s\\n", dlerror());
  for (int i = 0; i < count; ++i) {
    void* found = library ? dlsym(library, names[i]) : NULL;
    counted_real[i] = found ? found : (void*)is_missing;
  }
}
const char* counted_name(int at) { return at < count ? names[at] : NULL; }
long counted_calls(int at) { return __atomic_load_n(&counted_calls_of[at], __ATOMIC_RELAXED); }
long counted_timed_ns(void) { return __atomic_load_n(&timed_ns, __ATOMIC_RELAXED); }
"""
TIMED_CODE = """
int @NAME@(void) {
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  const int code = ((int (*)(void))counted_real[@AT@])();
  clock_gettime(CLOCK_MONOTONIC, &b);
  __atomic_fetch_add(&counted_calls_of[@AT@], 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&timed_ns, (b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec, __ATOMIC_RELAXED);
  return code;
}
"""


def functions(library: str) -> list[str]:
    """The functions that the runtime looks up in "cuda" or "nccl"."""
    text = "".join(file.read_text() for file in sorted(SOURCES.rglob("*")) if file.suffix in (".h", ".cc"))
    return sorted(set(re.findall(NAMES[library], text)))


def source(library: str) -> str:
    names = functions(library)
    code = CODE.replace("@LIST@", " ".join(f"X({at}, {name})" for at, name in enumerate(names)))
    code = code.replace("@JUMPS@", "\n".join(f"SAME({at}, {name})" for at, name in enumerate(names) if name != TIMED))
    if TIMED in names:
        code += TIMED_CODE.replace("@NAME@", TIMED).replace("@AT@", str(names.index(TIMED)))
    return code.replace("@VARIABLE@", f"COUNTED_{library.upper()}").replace("@BEHIND@", BEHIND[library])


def build(folder: Path) -> dict[str, Path]:
    """The two libraries, by "cuda" and "nccl".  OSError if they cannot be built."""
    if os.uname().machine != "x86_64" or not shutil.which("gcc"):
        raise OSError("counting libraries need gcc and x86-64")
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for library in BEHIND:
        made[library] = folder / f"lib{library}_counted.so"
        with tempfile.NamedTemporaryFile("w", suffix=".c") as file:
            file.write(source(library))
            file.flush()
            command = ["gcc", "-O2", "-fPIC", "-shared", "-o", str(made[library]), file.name, "-ldl"]
            subprocess.run(command, check=True)
    return made


class Counted:
    """The counters of a library of build() that this process has loaded, or loads now."""

    def __init__(self, path: str | Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.counted_name.restype = ctypes.c_char_p
        self.library.counted_calls.restype = self.library.counted_timed_ns.restype = ctypes.c_long
        self.names: list[str] = []
        while name := self.library.counted_name(len(self.names)):
            self.names.append(name.decode())

    def now(self) -> Counter[str]:
        """Calls of each function since the start."""
        return Counter({name: calls for at, name in enumerate(self.names) if (calls := self.library.counted_calls(at))})

    def timed_us(self) -> float:
        """Wall time in ncclGroupEnd since the start."""
        return float(self.library.counted_timed_ns()) * 1e-3


if __name__ == "__main__":
    print(*build(Path(sys.argv[1])).values(), sep="\n")
