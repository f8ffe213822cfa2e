#include "recorder/steps/throttled_time.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "base/text.h"

namespace hvd::recorder {
namespace {

/// Opens the statistics of @p group.  In a container the path of the group may be the host's; then the mount point is
/// the group itself.
Fd open_stat(const std::string& mount, const std::string& group) {
  for (const std::string& directory : {mount + (group == "/" ? "" : group), mount})
    for (const char* name : {"/cpu.stat.local", "/cpu.stat"})
      if (Fd file(::open((directory + name).c_str(), O_RDONLY | O_CLOEXEC)); file) return file;
  return {};
}

bool has(const std::string& controllers, const std::string& one) {
  for (const std::string& c : split(controllers, ','))
    if (c == one) return true;
  return false;
}

}  // namespace

ThrottledTime::ThrottledTime(const std::string& groups_file, const std::string& mount) {
  for (const std::string& line : split(whole_text(groups_file), '\n')) {
    const std::vector<std::string> part = split(line, ':');  // id:controllers:path
    if (part.size() < 3) continue;
    if (has(part[1], "cpu")) {
      file_ = open_stat(mount + "/cpu", part[2]);
      if (!file_) file_ = open_stat(mount + "/" + part[1], part[2]);
      return;
    }
    if (part[1].empty()) file_ = open_stat(mount, part[2]);
  }
}

std::int64_t ThrottledTime::ns() const {
  std::array<char, 1024> text;
  const ssize_t n = file_ ? ::pread(file_.get(), text.data(), text.size(), 0) : -1;
  return n <= 0 ? 0 : throttled_ns_in({text.data(), static_cast<std::size_t>(n)});
}

std::int64_t throttled_ns_in(std::string_view cpu_stat) {
  for (const std::string& line : split(cpu_stat, '\n')) {
    const std::vector<std::string> word = words(line);
    if (word.size() != 2) continue;
    if (word[0] == "throttled_time") return to_integer(word[1]).value_or(0);
    if (word[0] == "throttled_usec") return to_integer(word[1]).value_or(0) * 1000;
  }
  return 0;
}

}  // namespace hvd::recorder
