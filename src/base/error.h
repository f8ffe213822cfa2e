/// @file error.h — the one error type of the project.
///
/// Our C++ throws Error.  Three places catch Error and turn it into a status:
/// - the C interface (runtime/api)
/// - the engine's thread (runtime/core/engine/engine.cc)
/// - the outermost function of each program or forked process
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

namespace hvd {

/// The kind of failure, by the party that must act.  The number is the status in the C interface, and the exit code of
/// our programs.
enum class Code : int {
  ok = 0,
  usage = 2,        ///< the caller passed a wrong value; retrying is useless
  mismatch = 3,     ///< ranks disagree on shape, dtype or op
  unavailable = 4,  ///< a library, device or host is missing
  peer_lost = 5,    ///< a rank died; elastic callers may restore and retry
  timeout = 6,      ///< a time limit has passed
  diverged = 7,     ///< ranks have different results of one operation, or different parameters
  capturing = 8,    ///< the caller's stream is being captured into a CUDA graph
  internal = 70,    ///< a bug of ours
};

class Error : public std::runtime_error {
 public:
  /// @param where  the input or the call that is wrong: "hosts:3:14", "--np", "MPI_Bcast"; may be empty
  /// @param what   one line, no newline, no trailing full stop
  /// @param hint   what the user can do next; may be empty
  Error(Code code, std::string where, const std::string& what, std::string hint = {})
      : std::runtime_error(where.empty() ? what : where + ": " + what),
        code(code),
        where(std::move(where)),
        hint(std::move(hint)) {}

  const Code code;
  const std::string where;
  const std::string hint;
};

}  // namespace hvd
