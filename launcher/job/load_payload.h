/// @file load_payload.h — the payload: the program that the ranks run.  The payload is checked before any process
/// starts.
#pragma once
#include <cstdint>
#include <string>

#include "launcher/options/settings.h"
#include "wire/manifest/manifest.h"

namespace hvd::launcher {

/// The payload's description for the ranks, and the bytes of a pickle.
struct LoadedPayload {
  wire::Payload wire;
  std::string bytes;
};

/// The kind of payload that the words name; no file is touched.  Throws Error{usage} when it names none.
wire::Payload classify(PayloadPrefix prefix, const std::vector<std::string>& words);

/// True if torchrun would run @p name, which does not end in .py, with Python.  Three forms exist.  One is a folder
/// with a __main__ module.  The second is a file whose "#!" line names Python.  The third is a text file without a "#!"
/// line and without a suffix.  False: the file can be executed as it is, or is in @p search_path, or is not on this
/// host.
bool is_python_program(const std::string& name, const std::string& search_path);

/// Reads and checks the payload.  With remote hosts (not @p all_local) a script or command may be missing here.  Throws
/// Error{usage} with the path and advice.  Also throws for a Python file that another user could have put there
/// (base/files/trust.h), unless @p by_anybody.
LoadedPayload load_payload(wire::Payload payload, bool all_local, const std::string& search_path, bool by_anybody);

/// The reason for which bytes cannot be a pickled callable.  Empty: no fault was found.  Only the first and the last
/// bytes are read.  So the caller may leave out the middle of a file of @p size bytes.
struct PickleFault {
  std::string what, hint;
};
PickleFault pickle_fault(const std::string& bytes, std::uint64_t size);
inline PickleFault pickle_fault(const std::string& bytes) { return pickle_fault(bytes, bytes.size()); }

/// Interpreter for everything but commands, absolute: --python, $VIRTUAL_ENV, the venv that hvdrun is installed in,
/// python3 in PATH.  Throws Error{unavailable}.
std::string choose_python(const std::string& wanted, const Environment& environment, const std::string& own_folder);

}  // namespace hvd::launcher
