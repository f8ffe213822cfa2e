/// @file python_plan.h — how the rank's process becomes a given Python.  The plan is made without running Python.
///
/// Embedded: hvdrank-python loads the interpreter's own libpython, and calls Py_BytesMain with the interpreter's path
/// as argv[0].  So venvs, options and exit codes are Python's.  If there is no shared libpython, the interpreter itself
/// is run.
#pragma once
#include <string>

namespace hvd::rank {

struct PythonPlan {
  std::string interpreter;  ///< absolute; as the user chose it, links not followed (a venv is known by its link)
  std::string libpython;    ///< empty: exec the interpreter
  std::string version;      ///< "3.11", "3.13t"; empty when nothing tells it
};

/// @p python  a path, or a name looked up in @p search_path (a PATH); relative to @p cwd.
/// Throws Error{unavailable} when there is no such program.
PythonPlan plan_python(const std::string& python, const std::string& search_path, const std::string& cwd);

/// "3.11", from the names of files and from pyvenv.cfg; empty when they do not tell.
std::string python_version(const std::string& interpreter);
/// True if such a Python has the option -P, which keeps the script's or the working folder out of sys.path.
bool knows_safe_path(const std::string& version);

/// The shared libpython that belongs to @p interpreter (absolute), or "".
std::string find_libpython(const std::string& interpreter);

}  // namespace hvd::rank
