#include "launcher/control/results.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace hvd::launcher {

namespace {

constexpr std::uint32_t failure_record = 0xffffffff;

std::string header(std::uint32_t rank, std::uint64_t bytes) {
  std::string out(16, '\0');
  std::memcpy(out.data(), &rank, 4);
  std::memcpy(out.data() + 8, &bytes, 8);
  return out;
}

}  // namespace

void write_results(const std::string& path, const std::vector<RankState>& ranks,
                   const std::optional<wire::DeathRecord>& first_cause) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  bool good = static_cast<bool>(fd);
  for (std::size_t rank = 0; good && rank < ranks.size(); ++rank) {
    const std::string& result = ranks[rank].result;
    if (result.empty()) continue;
    good = write_all(fd.get(), header(static_cast<std::uint32_t>(rank), result.size())) && write_all(fd.get(), result);
  }
  if (good && first_cause) {
    const std::string text = to_json(*first_cause);
    good = write_all(fd.get(), header(failure_record, text.size())) && write_all(fd.get(), text);
  }
  if (!good) throw Error(Code::unavailable, path, "the results cannot be written: " + errno_text(errno));
}

}  // namespace hvd::launcher
