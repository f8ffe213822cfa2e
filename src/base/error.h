/// @file error.h — the one error type of the project.
///
/// Inside C++ we throw Error.  At three borders (C API, background thread,
/// process exit) it is caught and turned into a status, see guard.h.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

namespace hvd {

/// Who has to act.  The numeric value is both the C API status and the exit
/// code of every program we ship (sysexits-free, documented in hvdrun(1)).
enum class Code : int {
  ok = 0,
  usage = 2,        ///< the caller passed something wrong; retrying is useless
  mismatch = 3,     ///< ranks disagree on shape, dtype or op
  unavailable = 4,  ///< library, device or host is not there
  peer_lost = 5,    ///< a rank died; elastic callers may restore and retry
  timeout = 6,      ///< nothing happened for longer than allowed
  internal = 70,    ///< our bug
};

class Error : public std::runtime_error {
 public:
  /// @param where  input that was being read: "hosts:3:14", "--np", "MPI_Bcast"
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
