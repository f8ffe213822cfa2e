#include "trace/trace_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/error.h"
#include "base/format.h"
#include "base/own_file.h"
#include "base/text.h"
#include "trace/timeline.h"

namespace hvd::trace {
namespace {

constexpr std::size_t end_bytes = 512;  ///< room for the last line, whatever happens

Fd create(const std::string& path, const std::string& option) {
  try {
    return open_own_file(path, WriteMode::truncate, 0666);
  } catch (const Error& e) {
    throw Error(Code::usage, option, std::string("cannot write ") + e.what(),
                e.hint.empty() ? "the folder must exist on this host and be writable" : e.hint);
  }
}

}  // namespace

TraceFile::TraceFile(std::string path, std::uint64_t max_bytes, const std::string& option)
    : path_(std::move(path)), max_bytes_(max_bytes), file_(create(path_, option)) {
  struct stat about {};
  regular_ = fstat(file_.get(), &about) == 0 && S_ISREG(about.st_mode);
  put(Timeline::opening());
  if (error_ != 0) throw Error(Code::usage, option, formatted("cannot write '{}': {}", path_, errno_text(error_)));
  recent_.clear();
}

/// False, and what did not fit is left out by whole lines.
bool TraceFile::put(std::string_view lines) {
  const bool good = write_all(file_.get(), lines);
  if (!good) error_ = errno;
  written_bytes_ += lines.size();
  if (!regular_) {
    cut_ = !good;
    return good;
  }
  recent_ += lines;
  if (!good) make_room();
  // No more of it is kept than make_room() may need.
  if (recent_.size() > end_bytes) recent_.erase(0, recent_.rfind('\n', recent_.size() - end_bytes - 1) + 1);
  return good;
}

/// Takes back lines until the end has room: the blocks that the file has stay its own.
void TraceFile::make_room() {
  struct stat about {};
  const std::uint64_t recent_at = written_bytes_ - recent_.size();
  std::size_t kept = 0;
  if (fstat(file_.get(), &about) == 0 && static_cast<std::uint64_t>(about.st_size) > recent_at + end_bytes)
    kept = recent_.rfind('\n', static_cast<std::uint64_t>(about.st_size) - recent_at - end_bytes - 1) + 1;  // npos: 0
  cut_ = ftruncate(file_.get(), static_cast<off_t>(recent_at + kept)) != 0;
  dropped_ +=
      static_cast<std::uint64_t>(std::count(recent_.begin() + static_cast<std::ptrdiff_t>(kept), recent_.end(), '\n'));
  recent_.resize(kept);
  written_bytes_ = recent_at + kept;
}

void TraceFile::write(std::string_view lines) {
  if (!usable()) return;
  full_ = written_bytes_ + lines.size() + 2 * end_bytes > max_bytes_;  // for the mark, and for the end
  const std::string mark =
      R"({"ph":"M","name":"hvd_full","pid":0,"args":{"limit_bytes":)" + std::to_string(max_bytes_) + "}},\n";
  put(full_ ? mark : lines);
}

void TraceFile::write_end(std::string_view lines) {
  if (cut_) return;
  if (put(lines) && fsync(file_.get()) != 0 && errno != EINVAL && errno != EROFS) error_ = errno;
}

std::string TraceFile::warning() const {
  if (dropped_ > 0 && !cut_)
    return formatted("{}: {}: {} did not fit; the others can be read", path_, errno_text(error_),
                     count_of(static_cast<long long>(dropped_), "event"));
  if (error_ != 0) return path_ + ": the timeline is incomplete: " + errno_text(error_);
  if (full_)
    return formatted("{}: the timeline stops at {} MB (HVD_TIMELINE_MAX_MB sets the limit)", path_, max_bytes_ >> 20);
  return {};
}

}  // namespace hvd::trace
