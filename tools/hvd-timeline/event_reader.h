/// @file event_reader.h — reads a timeline, complete or truncated at any place.  The format is a Chrome trace with one
/// event a line, or Perfetto's. The file may be compressed with gzip.
///
/// hvdrun, libhvd and Horovod write one event a line.  A file of another tool, on one line or as an object with
/// "traceEvents", is refused with a message.
#pragma once
#include <simdjson.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "packet_lines.h"

namespace hvd::timeline {

/// The fields that the tools use.  Views are valid until the next event is read.
struct TimelineEvent {
  std::string_view line;  ///< the event's text, without the comma after it
  char phase = 0;         ///< X B E i M …
  std::string_view name;
  std::int64_t pid = 0, tid = 0;
  double ts_us = 0, dur_us = 0;
  std::string_view tid_text, ts_text;  ///< their text in line; empty if absent
  std::string_view arguments;          ///< the object's text; empty if absent
};

class EventReader {
 public:
  /// Throws Error{usage} if @p path cannot be read or is no such trace.
  explicit EventReader(const std::string& path);

  /// Returns false at the end. Throws Error{usage} with file and line for a line that is no event, unless it is the
  /// last line.
  bool next(TimelineEvent& event);
  /// The file ends without its closing bracket: its job still records, or its writer was killed.
  bool cut_off() const { return packets_ ? !packets_->closed() : !closed_; }
  const std::string& path() const { return path_; }
  /// The file has Perfetto's format.
  bool of_packets() const { return packets_ != nullptr; }

 private:
  bool parse(std::string_view text, TimelineEvent& event);

  const std::string path_;
  Fd unpacked_;  ///< the content of a compressed file
  std::ifstream file_;
  std::unique_ptr<PacketLines> packets_;
  simdjson::ondemand::parser parser_;
  std::string line_;  ///< with simdjson's padding after it
  std::string name_;
  std::uint64_t number_ = 0;
  std::uint64_t size_ = UINT64_MAX, read_ = 0;  ///< bytes; events that a job adds while the file is read are ignored
  bool closed_ = false;
};

}  // namespace hvd::timeline
