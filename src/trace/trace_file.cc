#include "trace/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/files/own_file.h"
#include "base/format.h"
#include "base/text.h"
#include "trace/perfetto/perfetto_packets.h"
#include "trace/timeline.h"

namespace hvd::trace {
namespace {

constexpr std::size_t end_bytes = 512;  ///< room kept for the last event
constexpr std::size_t most_written_bytes = 96u << 10;
constexpr std::string_view no_packet{"\x0a\x00", 2};

/// The end of the packet that begins at @p at; 0: no whole packet begins there.
std::size_t packet_end(std::string_view bytes, std::size_t at) {
  if (at >= bytes.size() || bytes[at] != packet_tag) return 0;
  std::uint64_t length = 0;
  for (unsigned shift = 0; shift < 35; shift += 7) {
    if (++at >= bytes.size()) return 0;
    length |= std::uint64_t{static_cast<std::uint8_t>(bytes[at]) & 0x7fu} << shift;
    if (static_cast<std::uint8_t>(bytes[at]) < 0x80) return length < bytes.size() - at ? at + 1 + length : 0;
  }
  return 0;
}

/// The tag of a packet's first field, if that field holds bytes.
std::string tag_of_bytes(std::uint32_t field) {
  ProtoText tag;
  tag.varint(std::uint64_t{field} << 3 | 2);
  return tag.text();
}

/// The number of whole events.  Names and other metadata do not count, because a later write repeats them.
std::uint64_t events_in(std::string_view events, TimelineFormat format) {
  static const std::string track_tag = tag_of_bytes(packet_track), note_tag = tag_of_bytes(packet_note_field);
  std::uint64_t count = 0;
  if (format == TimelineFormat::chrome) {
    for (std::size_t end = 0; (end = events.find('\n')) != events.npos; events.remove_prefix(end + 1))
      if (!events.starts_with(R"({"ph":"M")")) ++count;
    return count;
  }
  for (std::size_t end = 0; (end = packet_end(events, 0)) != 0; events.remove_prefix(end)) {
    std::size_t begin = 1;
    while (static_cast<std::uint8_t>(events[begin]) >= 0x80) ++begin;  // the packet's length
    const std::string_view body = events.substr(begin + 1, end - begin - 1);
    if (!body.starts_with(track_tag) && !body.starts_with(note_tag)) ++count;
  }
  return count;
}

Fd open_for_append(const std::string& path, const std::string& option) {
  try {
    return open_own_file(path, WriteMode::append, 0666);
  } catch (const Error& e) {
    throw Error(Code::usage, option, std::string("cannot write ") + e.what(),
                e.hint.empty() ? "the folder must exist on this host and be writable" : e.hint);
  }
}

/// Locks the file against other processes until this process closes it.  Throws Error{usage} if another process holds
/// the lock.  A record lock is used, because children of fork() do not inherit it.  A file system without locks: no
/// lock, no error.
void lock(const Fd& file, const std::string& path, const std::string& option) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (fcntl(file.get(), F_SETLK, &whole) == 0 || (errno != EACCES && errno != EAGAIN)) return;
  const bool known = fcntl(file.get(), F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK && whole.l_pid > 0;
  throw Error(Code::usage, option,
              formatted("another job writes '{}'{}", path, known ? formatted(" (process {})", whole.l_pid) : ""),
              "give each job a timeline file of its own");
}

bool is_still_at(const std::string& path, const struct stat& file) {
  struct stat there {};
  return stat(path.c_str(), &there) == 0 && there.st_dev == file.st_dev && there.st_ino == file.st_ino;
}

/// Opens @p path as an empty file that no other process writes.  A pipe or a device is opened without that check.
Fd create(const std::string& path, const std::string& option) {
  constexpr int most_tries = 100;
  for (int tries = 0; tries < most_tries; ++tries) {
    Fd file = open_for_append(path, option);
    struct stat about {};
    if (fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) || is_inherited_file(path)) return file;
    lock(file, path, option);
    if (!is_still_at(path, about)) continue;  // another job has just renamed its file
    if (ftruncate(file.get(), 0) == 0) return file;
    throw Error(Code::usage, option, formatted("cannot write '{}': {}", path, errno_text(errno)));
  }
  throw Error(Code::usage, option, formatted("cannot write '{}': it is replaced all the time", path));
}

}  // namespace

TraceFile::TraceFile(std::string path, std::uint64_t max_bytes, const std::string& option)
    : path_(std::move(path)),
      format_(format_of(path_)),
      max_bytes_(max_bytes),
      file_(create(path_, option)),
      gzip_(path_.ends_with(gzip_ending) ? std::make_unique<GzipMembers>() : nullptr) {
  struct stat about {};
  regular_ = fstat(file_.get(), &about) == 0 && S_ISREG(about.st_mode) && !is_inherited_file(path_);
  begin();
  if (error_ != 0) throw Error(Code::usage, option, formatted("cannot write '{}': {}", path_, errno_text(error_)));
}

/// Writes the first bytes of a new file.
void TraceFile::begin() {
  const std::string_view opening = Timeline::opening(format_);
  if (gzip_)
    opening_ = opening;  // written with the first events: Perfetto's page recognises a file by its first member
  else                   // Perfetto's format has no first bytes; an empty packet shows early that the disk is full
    put(opening.empty() ? no_packet : opening);
  keep_recent(recent_.size(), recent_.size());
}

std::string TraceFile::older_path(const std::string& path) {
  if (path.ends_with(gzip_ending))
    return older_path(path.substr(0, path.size() - gzip_ending.size())) + std::string(gzip_ending);
  const std::size_t slash = path.rfind('/'), base = slash == path.npos ? 0 : slash + 1, dot = path.rfind('.');
  if (dot == path.npos || dot <= base) return path + ".older";
  return path.substr(0, dot) + ".older" + path.substr(dot);
}

/// The size of the whole events that lie within the first @p bytes bytes of recent_.
std::size_t TraceFile::events_within(std::size_t bytes) const {
  if (gzip_) {
    std::size_t whole = 0;
    for (const Member& m : recent_members_) {
      if (whole + m.bytes > bytes) break;
      whole += m.bytes;
    }
    return whole;
  }
  if (format_ == TimelineFormat::chrome) return bytes == 0 ? 0 : recent_.rfind('\n', bytes - 1) + 1;  // npos: 0
  std::size_t end = 0;
  for (std::size_t next = 0; (next = packet_end(recent_, end)) != 0 && next <= bytes;) end = next;
  return end;
}

std::uint64_t TraceFile::count_events(std::size_t from) const {
  if (gzip_) {
    std::size_t at = 0;
    std::uint64_t count = 0;
    for (const Member& m : recent_members_) count += std::exchange(at, at + m.bytes) >= from ? m.events : 0;
    return count;
  }
  return events_in(std::string_view(recent_).substr(from), format_);
}

/// Removes all of recent_ except the bytes [from, to), which are whole events.
void TraceFile::keep_recent(std::size_t from, std::size_t to) {
  for (std::size_t left = from; left > 0; recent_members_.pop_front()) {
    if (!gzip_) break;
    left -= recent_members_.front().bytes;
  }
  for (std::size_t left = recent_.size() - to; left > 0; recent_members_.pop_back()) {
    if (!gzip_) break;
    left -= recent_members_.back().bytes;
  }
  recent_.resize(to);
  recent_.erase(0, from);
}
/// Appends to the file.  False: the disk had no room, and make_room() has removed the last events.
bool TraceFile::put(std::string_view events) {
  const std::string_view bytes = gzip_ ? gzip_->member(opening_.append(events)) : events;
  opening_.clear();
  const bool good = write_all(file_.get(), bytes);
  if (!good) error_ = errno;
  written_bytes_ += bytes.size();
  if (!regular_) {
    cut_ = !good;
    return good;
  }
  recent_ += bytes;
  if (gzip_) recent_members_.push_back({bytes.size(), events_in(events, format_)});
  if (!good) make_room();
  // make_room() needs only the last events.
  if (recent_.size() > 2 * end_bytes) keep_recent(events_within(recent_.size() - end_bytes), recent_.size());
  return good;
}

/// After a failed write: removes events from the file's end until end_bytes bytes are free in the file's blocks.
void TraceFile::make_room() {
  struct stat about {};
  const std::uint64_t recent_at = written_bytes_ - recent_.size();
  std::size_t kept = 0;
  if (fstat(file_.get(), &about) == 0 && static_cast<std::uint64_t>(about.st_size) > recent_at + end_bytes)
    kept = events_within(static_cast<std::uint64_t>(about.st_size) - recent_at - end_bytes);
  cut_ = ftruncate(file_.get(), static_cast<off_t>(recent_at + kept)) != 0;
  dropped_ += count_events(kept);
  keep_recent(0, kept);
  written_bytes_ = recent_at + kept;
}

/// Renames the file to older_path() and begins a new file.  False: that failed; the file then grows to its limit.
bool TraceFile::rotate() {
  if (!may_rotate_) return false;
  may_rotate_ = false;
  if (rename(path_.c_str(), older_path(path_).c_str()) != 0) return false;
  Fd fresh;
  try {
    fresh = create(path_, "");
  } catch (const Error&) { return false; }  // another job may have taken the name
  put(Timeline::ending("continued in " + path_, format_));
  file_ = std::move(fresh);
  may_rotate_ = true;
  written_bytes_ = 0;
  begin();
  return rotated_ = true;
}

bool TraceFile::write(std::string_view events) {
  if (!usable()) return true;
  const std::uint64_t after = written_bytes_ + events.size() + 2 * end_bytes;  // with the mark below, and the end
  full_ = after > max_bytes_;
  if (full_) {
    const std::string mark =
        R"({"ph":"M","name":"hvd_full","pid":0,"args":{"limit_bytes":)" + std::to_string(max_bytes_) + "}}";
    put(format_ == TimelineFormat::chrome ? mark + ",\n" : Timeline::packet_of(mark));
    return true;
  }
  const bool good = put(events);
  // The file goes on if the next events fit too.
  if (!regular_ || error_ != 0 || after + most_written_bytes <= max_bytes_ / 2) return good;
  return !rotate() && good;
}

void TraceFile::write_end(std::string_view text) {
  if (cut_) return;
  const std::string said = full_          ? "the size limit was reached"
                           : dropped_ > 0 ? count_of(static_cast<long long>(dropped_), "event") + " did not fit"
                                          : std::string(text);
  if (put(Timeline::ending(said, format_)) && fsync(file_.get()) != 0 && errno != EINVAL && errno != EROFS)
    error_ = errno;
}

std::string TraceFile::warning() const {
  if (dropped_ > 0 && !cut_)
    return formatted("{}: {}: {} did not fit; the others can be read", path_, errno_text(error_),
                     count_of(static_cast<long long>(dropped_), "event"));
  if (error_ != 0) return path_ + ": the timeline is incomplete: " + errno_text(error_);
  if (full_)
    return formatted("{}: the timeline stops at {} MB (--timeline-max-mb sets the limit)", path_, max_bytes_ >> 20);
  if (rotated_)
    return formatted(
        "{} has the last part, {} the part before it; together they have at most {} MB (--timeline-max-mb sets the "
        "limit)",
        path_, older_path(path_), max_bytes_ >> 20);
  return {};
}

}  // namespace hvd::trace
