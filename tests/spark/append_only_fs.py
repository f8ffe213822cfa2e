"""A FUSE file system whose files accept only appends, like /dbfs: append_only_fs.py FOLDER LOG. Runs until stdin is closed.

Implements the kernel's protocol (linux/fuse.h, version 7.31), so needs no package. Mounting needs root. Files are in memory.
Each fsync, and each refused request, is a line of LOG.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import stat
import struct
import sys
import time

LOOKUP, FORGET, GETATTR, SETATTR, UNLINK, OPEN, READ, WRITE, STATFS = 1, 2, 3, 4, 10, 14, 15, 16, 17
RELEASE, FSYNC, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, ACCESS, CREATE, BATCH_FORGET = 18, 20, 25, 26, 27, 28, 29, 34, 35, 42
SETS_SIZE, DIRECT_IO, ROOT, DETACH = 1 << 3, 1, 1, 2
MOST_WRITTEN = 1 << 17


class Refused(OSError):
    """A request that this file system does not support."""


class Files:
    """Nodes by number; the root is the only folder."""

    def __init__(self, log: str) -> None:
        self.data: dict[int, bytearray] = {}
        self.names: dict[str, int] = {}
        self.log = log

    def note(self, text: str) -> None:
        with open(self.log, "a", encoding="utf-8") as file:
            file.write(text + "\n")

    def attributes(self, node: int) -> bytes:
        """struct fuse_attr."""
        if node != ROOT and node not in self.data:
            raise OSError(errno.ENOENT, "")
        size = 0 if node == ROOT else len(self.data[node])
        mode = stat.S_IFDIR | 0o777 if node == ROOT else stat.S_IFREG | 0o666
        now = int(time.time())
        return struct.pack("<6Q10I", node, size, -(-size // 512), now, now, now, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def entry(self, node: int) -> bytes:
        """struct fuse_entry_out, not to be cached."""
        return struct.pack("<4Q2I", node, 0, 0, 0, 0, 0) + self.attributes(node)

    def answer(self, code: int, node: int, body: bytes) -> bytes | None:
        """The reply to one request; None without one.  An OSError is its error."""
        if code == INIT:
            readahead = struct.unpack_from("<3I", body)[2]
            return struct.pack("<4I2H2I2H8I", 7, 31, readahead, 0, 16, 12, MOST_WRITTEN, 1, 0, 0, *[0] * 8)
        if code in (FORGET, BATCH_FORGET):
            return None
        if code == LOOKUP:
            name = body.rstrip(b"\0").decode()
            if name not in self.names:
                raise OSError(errno.ENOENT, name)
            return self.entry(self.names[name])
        if code == GETATTR:
            return struct.pack("<Q2I", 0, 0, 0) + self.attributes(node)
        if code == SETATTR:
            valid, _, _, size = struct.unpack_from("<2I2Q", body)
            if valid & SETS_SIZE and size != len(self.data[node]):
                if size:
                    raise Refused(errno.EOPNOTSUPP, f"truncate to {size} of {len(self.data[node])}")
                self.data[node].clear()  # O_TRUNC
            return struct.pack("<Q2I", 0, 0, 0) + self.attributes(node)
        if code == CREATE:
            name = body[16:].rstrip(b"\0").decode()
            made = self.names.setdefault(name, len(self.names) + ROOT + 1)
            self.data.setdefault(made, bytearray())
            return self.entry(made) + struct.pack("<Q2I", made, DIRECT_IO, 0)
        if code in (OPEN, OPENDIR):
            return struct.pack("<Q2I", node, DIRECT_IO if code == OPEN else 0, 0)
        if code == WRITE:
            _, offset, size = struct.unpack_from("<2QI", body)
            if offset != len(self.data[node]):
                raise Refused(errno.EOPNOTSUPP, f"write at {offset} of {len(self.data[node])}")
            self.data[node] += body[40 : 40 + size]
            return struct.pack("<2I", size, 0)
        if code == READ:
            _, offset, size = struct.unpack_from("<2QI", body)
            return bytes(self.data[node][offset : offset + size])
        if code == UNLINK:
            self.data.pop(self.names.pop(body.rstrip(b"\0").decode()))
            return b""
        if code == FSYNC:
            self.note("fsync")
        if code == STATFS:
            return bytes(80)
        if code in (FSYNC, FLUSH, RELEASE, RELEASEDIR, READDIR, ACCESS):
            return b""
        raise OSError(errno.ENOSYS, "")


def serve(device: int, files: Files) -> None:
    """Serves until stdin closes or the file system is unmounted."""
    while True:
        ready, _, _ = select.select([device, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        try:
            request = os.read(device, MOST_WRITTEN + 4096)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                continue  # the request was interrupted
            return
        _, code, unique, node = struct.unpack_from("<2I2Q", request)
        failure, reply = 0, None
        try:
            reply = files.answer(code, node, request[40:])
            if reply is None:
                continue
        except OSError as error:
            failure, reply = error.errno or errno.EIO, b""
            if isinstance(error, Refused):
                files.note(f"refused: {error.strerror}")
        os.write(device, struct.pack("<IiQ", 16 + len(reply), -failure, unique) + reply)


def main() -> None:
    """See the file's comment."""
    folder, log = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"hvd-append-only", folder.encode(), b"fuse", 0, options.encode()):
        sys.exit(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    try:
        print("mounted", flush=True)
        serve(device, Files(log))
    finally:
        os.close(device)  # requests without an answer get an error
        libc.umount2(folder.encode(), DETACH)


if __name__ == "__main__":
    main()
