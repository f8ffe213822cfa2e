# The archive's sitecustomize.py: runs start/sitecustomize.py.  Uses marshalled code if the build made some for this
# Python. Compiling the source would take 2 ms, longer than everything else here.
import sys

try:
    import marshal

    code = __loader__.get_data(__loader__.archive + "/hvdrank_start.py." + sys.implementation.cache_tag)
    if code[:4] != sys.modules["_frozen_importlib_external"].MAGIC_NUMBER:
        raise OSError
    code = marshal.loads(code[4:])
except (OSError, KeyError, ValueError, EOFError, TypeError):
    code = compile(__loader__.get_source("hvdrank_start"), "<hvdrun>", "exec", 0, 1)
exec(code)
