#include "rank/launch/start_archive.h"

#include <fcntl.h>

#include "base/error.h"
#include "base/format.h"
#include "rank/launch/payload_store.h"

namespace hvd::rank {

extern const char start_archive[];
extern const unsigned long start_archive_bytes;

namespace {

/// The least number of the archive's descriptor.  Programs that a rank starts may use low numbers for folders, and
/// Python would search such a folder for modules.
constexpr int least_number = 197;

}  // namespace

Fd add_start_archive(ProcessSpec& launch, const std::string& watch) {
  Fd text;
  try {
    text = text_in_memory("hvd-start", {start_archive, start_archive_bytes});
  } catch (const Error&) { return {}; }  // such as a limit on the size of files
  Fd archive(fcntl(text.get(), F_DUPFD_CLOEXEC, least_number));
  if (!archive) return archive;
  launch.keep_fds.push_back(archive.get());
  std::string& path = launch.env["PYTHONPATH"];
  path = formatted("/proc/self/fd/{}{}{}", archive.get(), path.empty() ? "" : ":", path);
  if (!watch.empty()) launch.env[watch_variable] = watch;
  return archive;
}

}  // namespace hvd::rank
