# Runs at the start of every Python of a rank, before the program. hvdrank puts the archive with this file in front of
# PYTHONPATH.  Serves `hvdrun stacks` and `hvdrun attach`.  When the program imports torch.distributed, hvdrank_collectives.py
# begins to watch its process groups.  Last, this file runs the sitecustomize that it hides, if any.  Imports nothing that
# Python's own start has not imported.  CPython 3.8 and later.
import os
import sys

ARCHIVE = os.path.dirname(__file__)
PROCESS = os.getpid()


def load(name, **names):
    """A module of the archive; it begins with these names.

    The modules that it imports from the archive must have been loaded: ARCHIVE is not in sys.path.
    """
    if name not in sys.modules:
        module = type(sys)(name)
        module.__dict__.update(names)
        text = __loader__.get_source(name)
        exec(compile(text, "<hvdrun>", "exec", 0, 1), module.__dict__)
        sys.modules[name] = module
    return sys.modules[name]


def is_rank():
    """Returns whether this process has the rank's descriptors.  If a program has closed them, this process is not the rank."""
    try:
        return "hvdrank-stacks" in os.readlink("/proc/self/fd/" + os.environ["HVD_STACK_FD"])
    except (KeyError, OSError):
        return False


def offer_stacks():
    """Prepares faulthandler, like hvd._job.stack_dumps: on a signal, all threads' frames are written to the guard's memory
    file."""
    import faulthandler

    try:
        number, fd = int(os.environ["HVD_STACK_SIGNAL"]), int(os.environ["HVD_STACK_FD"])
        faulthandler.register(number, file=fd, all_threads=True, chain=False)
        if not faulthandler.is_enabled():
            faulthandler.enable(file=fd, all_threads=True)
    except (KeyError, ValueError, OSError, RuntimeError):
        pass


def offer_console():
    """Prepares hvdrun attach. hvd._job.attach is imported only when a user attaches."""
    import _signal as signal  # signal itself imports enum, which takes longer than all else here

    def attached(number, frame):
        load("hvdrank_attach").attached(number, frame, lambda: load("hvdrank_console"))

    if signal.getsignal(60) == signal.SIG_DFL:
        signal.signal(60, attached)


class DistributedFinder:
    """A finder that only waits for the import of distributed_c10d, and then has its process groups watched."""

    def __init__(self, name):
        self.name = name

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                self.watch(module)

            spec.loader.exec_module = exec_module
        return spec

    def watch(self, module):
        try:
            load("hvdrank_frames")
            load("hvdrank_records")
            load("hvdrank_collectives").watch(module, os.environ["HVD_WATCH"], lambda: load("hvdrank_calls"))
        except Exception as error:
            if os.environ.get("HOROVOD_LOG_LEVEL") == "debug":
                print(f"hvdrank: collectives are not watched: {error!r}", file=sys.stderr)


class StepsFinder(DistributedFinder):
    """Waits for the import of the module, and then loads hvdrank_steps, which records steps."""

    def watch(self, module):
        if os.getpid() != PROCESS:  # a fork: its parent's steps are the rank's
            return
        try:
            load("hvdrank_usage")
            load("hvdrank_steps").look(load)
        except Exception as error:
            if os.environ.get("HOROVOD_LOG_LEVEL") == "debug":
                print(f"hvdrank: steps are not recorded: {error!r}", file=sys.stderr)


def chain():
    """The sitecustomize that Python would have found without this one."""
    mine = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if mine is not None:
            sys.modules.setdefault("sitecustomize", mine)


while ARCHIVE in sys.path:
    sys.path.remove(ARCHIVE)
if is_rank():
    offer_stacks()
    offer_console()
    if "HVD_WATCH" in os.environ:
        sys.meta_path.insert(0, DistributedFinder("torch.distributed.distributed_c10d"))
    if "HVD_RECORDER_FD" in os.environ:
        sys.meta_path[:0] = map(StepsFinder, ("torch.optim.optimizer", "torch.utils.data.dataloader"))
chain()
