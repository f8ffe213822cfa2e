"""Compares the horovod packages with the names of Horovod 0.28: compare.py [MODULE ...].

Run by an interpreter with the modules' frameworks.  Prints JSON, {module: [problem]}; without arguments, of all modules that
this interpreter can import.  Our functions may have further arguments after Horovod's.
"""

import importlib
import inspect
import json
import sys

import horovod_answers

# Names with a leading underscore that scripts and other libraries use.
PRIVATE = {
    "horovod.torch.optimizer": {"_DistributedOptimizer": None},
    "horovod.tensorflow": {"_DistributedOptimizer": None, "_executing_eagerly": ""},
    "horovod.tensorflow.mpi_ops": {
        "_allreduce": "tensor, name=None, op=..., prescale_factor=1.0, postscale_factor=1.0, ignore_name_scope=False, "
        "process_set=..."
    },
    "horovod.tensorflow.util": {"_executing_eagerly": "", "_make_subgraph": "f", "_cache": "f"},
}


def theirs(parameters):
    """Returns [(name, default)] of a parameter list. The default is source text; None: no default."""
    probe = {}
    exec(f"def f({parameters}): pass", probe)
    any_number = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [(p.name, p.default) for p in inspect.signature(probe["f"]).parameters.values() if p.kind not in any_number]


def wrong_signature(name, ours, parameters):
    wanted = theirs(parameters)
    have = list(inspect.signature(ours).parameters.values())
    if "." in name and have and have[0].name == "self":
        have = have[1:]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in have)
    plain = [p for p in have if p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY)]
    by_name = {p.name: p for p in have}
    problems = []
    for index, (parameter, default) in enumerate(wanted):
        if parameter not in by_name:
            if not takes_any:
                problems.append(f"{name}: no parameter {parameter}")
            continue
        if index >= len(plain) or plain[index].name != parameter:
            problems.append(f"{name}: {parameter} is not parameter {index}")
        mine = by_name[parameter].default
        if default is inspect.Parameter.empty:
            continue  # our function may have one
        if mine is inspect.Parameter.empty:
            problems.append(f"{name}: {parameter} has no default")
        elif default is not ... and mine != default:
            problems.append(f"{name}: {parameter} is {mine!r}, not {default!r}, by default")
    for p in plain[len(wanted) :]:
        if p.default is p.empty:
            problems.append(f"{name}: needs {p.name}")
    return problems


def problem_of(package, module, name, parameters):
    """The faults of one name: a list, empty without faults."""
    kind, _ = horovod_answers.answer(module, name)
    try:
        ours = package
        for part in name.split("."):
            ours = getattr(ours, part)
    except (AttributeError, ImportError) as error:  # ImportError: the name gives its replacement
        if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith(("horovod", "hvd")):
            raise  # this interpreter lacks what the module needs
        return [] if kind == "refused" else [f"{name} is missing"]
    if kind == "refused":
        return [f"{name} exists, and answers.txt says that it is refused"]
    if kind == "different" or parameters is None:
        return []
    return wrong_signature(name, ours, parameters)


def problems_of(module):
    listed = {**horovod_answers.modules().get(module, {}), **PRIVATE.get(module, {})}
    package = importlib.import_module(module)
    return [problem for name, parameters in listed.items() for problem in problem_of(package, module, name, parameters)]


if __name__ == "__main__":
    found = {}
    for each in sys.argv[1:] or horovod_answers.modules():
        try:
            found[each] = problems_of(each)
        except ImportError:
            if sys.argv[1:]:
                raise
    print(json.dumps(found))
