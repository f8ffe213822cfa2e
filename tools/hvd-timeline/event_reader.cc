#include "event_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/files/gzip.h"
#include "base/format.h"
#include "trace/perfetto/perfetto_packets.h"

namespace hvd::timeline {

namespace {

constexpr std::size_t longest_line_bytes = 1u << 20;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r' || text.back() == ',')) text.remove_suffix(1);
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  return text;
}

/// The content of a compressed file, up to its first incomplete block, in a file without a name. Returns nothing if the
/// file is not compressed.
Fd unpacked(const std::string& path) {
  Fd packed(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  unsigned char mark[2] = {};
  if (!packed || ::pread(packed.get(), mark, sizeof mark, 0) != sizeof mark || mark[0] != 0x1f || mark[1] != 0x8b)
    return {};
  std::FILE* const made = std::tmpfile();
  if (!made) throw Error(Code::unavailable, path, std::string("cannot be unpacked: ") + std::strerror(errno));
  Fd content(::fcntl(::fileno(made), F_DUPFD_CLOEXEC, 0));
  std::fclose(made);
  gunzip(packed.get(), content.get());
  return content;
}

}  // namespace

EventReader::EventReader(const std::string& path) : path_(path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    throw Error(Code::usage, path, "cannot be read: " + std::string(std::strerror(errno)));
  if (S_ISDIR(status.st_mode)) throw Error(Code::usage, path, "is a folder");
  if (S_ISREG(status.st_mode)) unpacked_ = unpacked(path);  // a pipe can be opened once only
  const std::string content = unpacked_ ? formatted("/proc/self/fd/{}", unpacked_.get()) : path;
  if (stat(content.c_str(), &status) == 0 && S_ISREG(status.st_mode))
    size_ = static_cast<std::uint64_t>(status.st_size);
  file_.open(content, std::ios::binary);
  if (!file_) throw Error(Code::usage, path, "cannot be read: " + std::string(std::strerror(errno)));
  const int first = file_.peek();
  if (first == std::ifstream::traits_type::eof()) throw Error(Code::usage, path, "is empty");
  if (first == trace::packet_tag) packets_ = std::make_unique<PacketLines>(content, size_);
  if (first != '[' && !packets_)
    throw Error(Code::usage, path, "is no timeline: it does not begin with [, nor with a packet of Perfetto's",
                "hvdrun --timeline-filename FILE and HOROVOD_TIMELINE=FILE write what this reads");
}

bool EventReader::next(TimelineEvent& event) {
  while (packets_) {
    ++number_;
    if (!packets_->next(line_)) return false;
    if (parse(line_, event)) return true;
  }
  while (read_ < size_ && std::getline(file_, line_)) {
    ++number_;
    read_ += line_.size() + 1;
    const bool last = read_ >= size_ || file_.eof() || file_.peek() == std::ifstream::traits_type::eof();
    if (line_.size() > longest_line_bytes)
      throw Error(Code::usage, formatted("{}:{}", path_, number_), formatted("a line of {} bytes", line_.size()),
                  "this reads timelines with one event a line");
    std::string_view text = line_;
    if (number_ == 1 && text.starts_with('[')) text.remove_prefix(1);
    text = trimmed(text);
    if (text == "]") closed_ = true;
    if (text.ends_with("}]")) {
      closed_ = true;
      text.remove_suffix(1);
    }
    if (text.empty() || text == "]" || text == "{}") continue;
    if (parse(text, event)) return true;
    if (!last) throw Error(Code::usage, formatted("{}:{}", path_, number_), "is no event of a timeline");
  }
  return false;
}

bool EventReader::parse(std::string_view text, TimelineEvent& event) {
  const std::size_t offset = static_cast<std::size_t>(text.data() - line_.data());
  const std::size_t length = text.size();
  line_.resize(offset + length);
  line_.reserve(line_.size() + simdjson::SIMDJSON_PADDING);
  event = TimelineEvent{};
  event.line = {line_.data() + offset, length};
  simdjson::ondemand::document document;
  if (parser_.iterate(simdjson::padded_string_view(event.line, line_.capacity() - offset)).get(document)) return false;
  simdjson::ondemand::object object;
  if (document.get_object().get(object)) return false;
  for (auto field : object) {
    std::string_view key;
    simdjson::ondemand::value value;
    if (field.unescaped_key().get(key) || field.value().get(value)) return false;
    bool bad = false;
    if (key == "ph") {
      std::string_view phase;
      bad = value.get_string().get(phase) || phase.size() != 1;
      event.phase = bad ? '\0' : phase[0];
    } else if (key == "name") {
      std::string_view name;
      bad = value.get_string().get(name);
      name_ = name;  // simdjson keeps strings until the next document only
    } else if (key == "pid") {
      bad = value.get_int64().get(event.pid);
    } else if (key == "tid") {
      event.tid_text = trimmed(value.raw_json_token());
      bad = value.get_int64().get(event.tid);
    } else if (key == "ts") {
      event.ts_text = trimmed(value.raw_json_token());
      bad = value.get_double().get(event.ts_us);
    } else if (key == "dur") {
      bad = value.get_double().get(event.dur_us);
    } else if (key == "args") {
      simdjson::ondemand::object arguments;
      bad = value.get_object().get(arguments) || arguments.raw_json().get(event.arguments);
    }
    if (bad) return false;
  }
  event.name = name_;
  return event.phase != '\0';
}

}  // namespace hvd::timeline
