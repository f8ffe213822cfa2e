#include "wire/trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/error.h"
#include "wire/trace_timeline.h"

namespace hvd::wire {

std::uint64_t timeline_limit_from_environment() {
  constexpr std::uint64_t default_megabytes = 1024, most_megabytes = 1u << 20;
  const char* text = std::getenv("HVD_TIMELINE_MAX_MB");
  if (text == nullptr || *text == '\0') return default_megabytes << 20;
  char* end = nullptr;
  errno = 0;
  const unsigned long long megabytes = std::strtoull(text, &end, 10);
  if (*end != '\0' || *text < '0' || *text > '9' || errno != 0 || megabytes == 0 || megabytes > most_megabytes)
    throw Error(Code::usage, "HVD_TIMELINE_MAX_MB", "not a size: '" + std::string(text) + "'",
                "write megabytes, 1 to 1048576");
  return std::uint64_t{megabytes} << 20;
}

TraceFile::TraceFile(std::string path, std::uint64_t max_bytes, const std::string& option)
    : path_(std::move(path)),
      max_bytes_(max_bytes),
      file_(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666)) {
  if (!file_)
    throw Error(Code::usage, option, "cannot write '" + path_ + "': " + errno_text(errno),
                "the folder must exist on this host and be writable");
  write(Timeline::opening());
  if (error_ != 0) throw Error(Code::usage, option, "cannot write '" + path_ + "': " + errno_text(error_));
}

void TraceFile::write(std::string_view lines) {
  constexpr std::size_t end_bytes = 1024;  // room for the mark, and for the end
  if (!usable()) return;
  if (written_bytes_ + lines.size() + end_bytes > max_bytes_) {
    full_ = true;
    const std::string mark =
        R"({"ph":"M","name":"hvd_full","pid":0,"args":{"limit_bytes":)" + std::to_string(max_bytes_) + "}},\n";
    if (!write_all(file_.get(), mark)) error_ = errno;
    return;
  }
  if (!write_all(file_.get(), lines)) error_ = errno;
  written_bytes_ += lines.size();
}

void TraceFile::write_end(std::string_view lines) {
  if (error_ != 0) return;
  if (!write_all(file_.get(), lines) || (fsync(file_.get()) != 0 && errno != EINVAL && errno != EROFS)) error_ = errno;
}

std::string TraceFile::warning() const {
  if (error_ != 0) return path_ + ": the timeline is incomplete: " + errno_text(error_);
  if (full_)
    return path_ + ": the timeline stops at " + std::to_string(max_bytes_ >> 20) +
           " MB (HVD_TIMELINE_MAX_MB sets the limit)";
  return {};
}

}  // namespace hvd::wire
