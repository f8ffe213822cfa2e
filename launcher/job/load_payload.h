/// @file load_payload.h — what the ranks run, checked before anything is started.
#pragma once
#include <cstdint>
#include <string>

#include "launcher/options/settings.h"
#include "wire/manifest/manifest.h"

namespace hvd::launcher {

/// The payload as the ranks will hear of it, and for a pickle its bytes.
struct LoadedPayload {
  wire::Payload wire;
  std::string bytes;
};

/// What kind of payload the command line names; no file is touched.  Throws Error{usage} when it names none.
wire::Payload classify(PayloadPrefix prefix, const std::vector<std::string>& words);

/// Reads and checks what can be checked here.  A script or command that may exist on remote hosts only is not looked
/// for when @p all_local is false.  Throws Error{usage} that names the path and what to do, also for a Python file that
/// others could have chosen (base/files/trust.h) unless @p by_anybody.
LoadedPayload load_payload(wire::Payload payload, bool all_local, const std::string& search_path, bool by_anybody);

/// Why these bytes cannot be a pickled callable, or empty.  Looks at the first and last bytes only, which may be all
/// that is given of a file of @p size bytes.
struct PickleFault {
  std::string what, hint;
};
PickleFault pickle_fault(const std::string& bytes, std::uint64_t size);
inline PickleFault pickle_fault(const std::string& bytes) { return pickle_fault(bytes, bytes.size()); }

/// Interpreter for everything but commands, absolute: --python, $VIRTUAL_ENV, the venv that hvdrun is installed in,
/// python3 in PATH.  Throws Error{unavailable}.
std::string choose_python(const std::string& wanted, const Environment& environment, const std::string& own_folder);

}  // namespace hvd::launcher
