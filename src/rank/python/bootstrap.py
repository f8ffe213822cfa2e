# Runs a .pkl inside the rank.  Embedded into hvdrank at build time; `python -c` starts it.  The bootstrap reads the payload,
# checks its identity, loads and calls it, and sends the result.  Faults of the payload itself end as one line for the death
# record (code 2 or 4).  Exceptions of the user's function stay ordinary exceptions.  CPython 3.8 and later.
import os
import sys


class Unstarted(Exception):
    def __init__(self, code, text, hint):
        Exception.__init__(self, text)
        self.code, self.text, self.hint = code, text, hint


def connect():
    """Returns (boot, send): the guard's description of the payload, and a function that sends one frame to the
    guard."""
    import json

    try:
        import _hvdrank  # the embedding program's own module

        return json.loads(_hvdrank.boot()), _hvdrank.send
    except ImportError:
        pass
    import socket
    import struct

    boot = json.loads(os.environ.pop("HVD_BOOT"))

    def send(kind, body):
        link = socket.socket(fileno=boot["link_fd"])
        try:
            link.sendall(struct.pack("<IHH", len(body), kind, 0) + bytes(body))
        finally:
            link.detach()

    return boot, send


def read_payload(boot):
    import hashlib
    import mmap

    name, fd = boot["name"], boot["payload_fd"]
    size = os.fstat(fd).st_size
    if size == 0:
        raise Unstarted(2, f"{name} is empty", "write it with cloudpickle.dump(function, file)")
    data = mmap.mmap(fd, size, access=mmap.ACCESS_READ)
    os.close(fd)
    found = hashlib.sha256(data).hexdigest()
    if boot["sha256"] and found != boot["sha256"]:
        text = "{} is not what hvdrun read: its SHA-256 is {}…, expected {}…".format(name, found[:12], boot["sha256"][:12])
        raise Unstarted(2, text, "was it changed while the job started? run it again")
    return data


def version():
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def maker_of(code_args):
    """The Python version that compiled a code object with these arguments, as exactly as the arguments show it."""
    if len(code_args) < 18:
        return "3.8 to 3.10" if len(code_args) == 16 else "3.7 or older"
    code = code_args[6]
    if not isinstance(code, bytes):
        return "an unknown version"
    pairs = set(zip(code[0::2], code[1::2]))
    # RESUME begins the body of every function since 3.11 and got a new number in 3.13 and 3.14.
    if (128, 0) in pairs and (151, 0) not in pairs and (149, 0) not in pairs:
        return "3.14 or later"
    if (149, 0) in pairs and (151, 0) not in pairs:
        return "3.13"
    if (151, 0) not in pairs:
        return "an unknown version"
    # 3.11 puts PRECALL (166) before every CALL (171); 3.12 has no such instruction.
    ops = set(code[0::2])
    if 166 in ops:
        return "3.11"
    return "3.12" if 171 in ops or 121 in ops else "3.11 or 3.12"


def check_code(boot, args):
    """Refuses a code object of another Python: its bytecode would crash this one."""
    made, mine = maker_of(args), sys.version_info[:2]
    if made == "an unknown version":
        return
    fits = {"3.8 to 3.10": (3, 8) <= mine <= (3, 10), "3.11 or 3.12": mine in ((3, 11), (3, 12))}
    if fits.get(made, made == version() or (made == "3.14 or later" and mine >= (3, 14))):
        return
    raise made_elsewhere(boot, made)


def made_elsewhere(boot, made):
    text = "{} was made by Python {}, and {} is Python {}".format(boot["name"], made, sys.executable, version())
    return Unstarted(2, text, "run it with the interpreter that made it: hvdrun --python PATH, or activate its venv")


def make_unpickler(boot, pickle):
    class Unpickler(pickle.Unpickler):
        """Looks at code objects before they are made."""

        def find_class(self, module, name):
            found = pickle.Unpickler.find_class(self, module, name)
            if module.startswith("cloudpickle") and name == "_builtin_type":
                return lambda kind: checked(found(kind)) if kind == "CodeType" else found(kind)
            if (module, name) in (("types", "CodeType"), ("builtins", "code")):
                return checked(found)
            return found

    def checked(code_type):
        def make(*args):
            check_code(boot, args)
            return code_type(*args)

        return make

    return Unpickler


def is_the_unpicklers(traceback):
    """True if no line of the user's modules or classes is in the traceback: only load, cloudpickle and the
    unpickler."""
    frames = []
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    last = frames[-1]
    ours = last.f_code.co_filename == load.__code__.co_filename
    return len(frames) <= 2 and (ours or str(last.f_globals.get("__name__")).startswith("cloudpickle"))


def absent_module(boot, error):
    module = (error.name or "").split(".")[0] or str(error)
    text = "{} needs the module {}, which {} on {} lacks".format(boot["name"], module, sys.executable, boot["host"])
    if module == "__mp_main__":
        return Unstarted(2, text, "pickle it with cloudpickle from a script or notebook")
    hint = boot["kept_out"] or f"there: {sys.executable} -m pip install {module}, or use --python"
    return Unstarted(4, text, hint)


def load(boot, data):
    import pickle

    name = boot["name"]
    if data[:2] == b"PK":
        raise Unstarted(
            2,
            f"{name} is not a pickle but a zip archive (torch.save makes those)",
            "write it with cloudpickle.dump(function, file)",
        )
    if data[:1] == b"\x80" and len(data) > 1 and 5 < data[1] < 32 and data[1] > pickle.HIGHEST_PROTOCOL:
        raise made_elsewhere(boot, f"newer than {version()} (pickle protocol {data[1]})")
    try:
        loaded = make_unpickler(boot, pickle)(data).load()
        keep_sources(data[data.tell() :])
        return loaded
    except (Unstarted, MemoryError):
        raise
    except ModuleNotFoundError as error:
        raise absent_module(boot, error) from None
    except Exception as error:
        # A module that the pickle imports raised it, or a __setstate__, with a traceback worth seeing.
        if is_the_unpicklers(error.__traceback__):
            raise refused(boot, error) from None
        if "code()" in str(error) or "code expected" in str(error):
            raise made_elsewhere(boot, "another version") from None
        raise


def keep_sources(rest):
    """Keeps the source text of a function from hvd.run, for tracebacks.  The text follows the pickled call in the
    file."""
    mark = b"\0hvd-sources\0"
    if not rest.startswith(mark):
        return
    import json
    import linecache

    for name, text in json.loads(rest[len(mark) : -1]).items():
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    if sys.excepthook is sys.__excepthook__:
        import traceback

        sys.excepthook = traceback.print_exception  # before Python 3.13 its own looks at files only


def refused(boot, error):
    """Describes an error that the unpickler itself raised."""
    name, why = boot["name"], " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, AttributeError) and "cloudpickle" in why:
        return Unstarted(
            4,
            f"{name} was made by another version of cloudpickle: {why}",
            "install the same cloudpickle where you pickle and where it runs",
        )
    if isinstance(error, AttributeError) and "__main__" in why:
        return Unstarted(
            2,
            f"{name} refers to the script that made it: {why}",
            "write it with cloudpickle.dump, which puts the function itself into the file",
        )
    if isinstance(error, AttributeError) and "on <module" in why:
        return Unstarted(
            4,
            f"{name} was made with another version of a package: {why}",
            "install the same packages where you pickle and where it runs",
        )
    if isinstance(error, TypeError) and ("code()" in why or "code expected" in why):
        return made_elsewhere(boot, "another version")
    return Unstarted(2, f"{name} is not a pickle: {why}", "write it with cloudpickle.dump(function, file)")


def call_of(boot, loaded):
    """A payload is a callable, or a tuple (callable, args, kwargs)."""
    if callable(loaded):
        return loaded, (), {}
    if isinstance(loaded, tuple) and 1 <= len(loaded) <= 3 and callable(loaded[0]):
        args = loaded[1] if len(loaded) > 1 and loaded[1] is not None else ()
        kwargs = loaded[2] if len(loaded) > 2 and loaded[2] is not None else {}
        try:
            return loaded[0], tuple(args), dict(kwargs)
        except (TypeError, ValueError) as error:
            raise Unstarted(
                2,
                "{} holds a function without its arguments: {}".format(boot["name"], error),
                "pickle a tuple (callable, args, kwargs): args is a tuple, kwargs a dict",
            ) from None
    raise Unstarted(
        2,
        "{} holds a {}, not a function".format(boot["name"], type(loaded).__name__),
        "pickle a callable, or a tuple (callable, args, kwargs)",
    )


def refuse_generator(boot, function):
    """Refuses a generator function: its call runs no line of it."""
    from functools import partial
    from types import FunctionType, MethodType

    while isinstance(function, (partial, MethodType)):
        function = function.func if isinstance(function, partial) else function.__func__
    code = getattr(function if isinstance(function, FunctionType) else type(function).__call__, "__code__", None)
    flags = code.co_flags if code else 0
    if flags & 0x220 == 0:  # CO_GENERATOR, CO_ASYNC_GENERATOR; `inspect` takes milliseconds to import
        return
    loop = "async for" if flags & 0x200 else "for"
    raise Unstarted(
        2,
        "{} holds {}, a generator function, whose call alone runs nothing".format(boot["name"], code.co_name),
        f"pickle a function with a loop over it: {loop} x in {code.co_name}(): ...",
    )


class Pieces:
    """A file object that sends every byte written to it, so the result's pickle is never in memory as a whole."""

    PIECE = 60000

    def __init__(self, send):
        from zlib import crc32

        self.send, self.crc32 = send, crc32
        self.sum = self.bytes = 0
        self.held = bytearray()

    def write(self, data):
        with memoryview(data) as given, given.cast("B") as view:
            self.sum = self.crc32(view, self.sum)
            self.bytes += len(view)
            for at in range(0, len(view), self.PIECE):
                self.held += view[at : at + self.PIECE]
                if len(self.held) >= self.PIECE:
                    self.send(7, bytes(self.held[: self.PIECE]))
                    del self.held[: self.PIECE]

    def end(self):
        """Sends the last piece, then the length (u64) and the CRC-32 (u32) of all pieces."""
        import struct

        self.send(7, bytes(self.held) + struct.pack("<QI", self.bytes, self.sum))


def send_result(send, value):
    try:
        from cloudpickle import dump
    except ImportError:
        from pickle import dump
    pieces = Pieces(send)
    try:
        dump(value, pieces)
    except Exception as error:
        raise TypeError(f"the result of this rank, a {type(value).__name__}, cannot be pickled: {error}") from error
    pieces.end()


def hide_our_frames():
    """Lets a traceback begin at the user's function."""
    show = sys.excepthook

    def hook(kind, error, traceback):
        at = traceback
        while at is not None and at.tb_frame.f_code.co_filename in ("<string>", "<hvdrank>"):
            at = at.tb_next
        show(kind, error.with_traceback(at or traceback), at or traceback)

    sys.excepthook = hook


def offer_stacks():
    """Prepares faulthandler, like hvd._job.stack_dumps: hvdrun may request this rank's stack before the function imports
    hvd."""
    import faulthandler

    try:
        number, fd = int(os.environ["HVD_STACK_SIGNAL"]), int(os.environ["HVD_STACK_FD"])
        faulthandler.register(number, file=fd, all_threads=True, chain=False)
        if not faulthandler.is_enabled():
            faulthandler.enable(file=fd, all_threads=True)
    except (KeyError, ValueError, OSError, RuntimeError):
        pass


def main():
    boot, send = connect()
    if boot["folder"] and not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, boot["folder"])  # modules beside the payload; no other user may put files there
    offer_stacks()
    sys.argv[0] = boot["name"]
    try:
        data = read_payload(boot)
        function, args, kwargs = call_of(boot, load(boot, data))
        data.close()
        refuse_generator(boot, function)
        value = function(*args, **kwargs)
        if type(value).__name__ == "coroutine":  # of an async function
            import asyncio

            value = asyncio.run(value)
        if boot["results"]:
            send_result(send, value)
    except Unstarted as error:
        import json

        body = json.dumps({"code": error.code, "text": error.text, "hint": error.hint})
        send(12, body.encode("utf-8", "replace"))
        sys.exit(error.code)
    except BaseException:
        hide_our_frames()
        raise


main()
