/// @file event_reader.h — reads a Chrome trace of one event a line, whole or cut off anywhere.
///
/// hvdrun, libhvd and Horovod write one event a line.  A file of another tool, on one line or as an object with
/// "traceEvents", is refused with a message.
#pragma once
#include <simdjson.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace hvd::timeline {

/// The fields that the tools use.  Views are valid until the next event is read.
struct TimelineEvent {
  std::string_view line;  ///< the event's text, without the comma behind it
  char phase = 0;         ///< X B E i M …
  std::string_view name;
  std::int64_t pid = 0, tid = 0;
  double ts_us = 0, dur_us = 0;
  std::string_view tid_text, ts_text;  ///< where they stand in line; empty when absent
  std::string_view arguments;          ///< the object's text; empty when absent
};

class EventReader {
 public:
  /// Throws Error{usage} when @p path cannot be read or is no such trace.
  explicit EventReader(const std::string& path);

  /// False at the end.  Throws Error{usage} naming file and line for what is no event, unless it is the last line.
  bool next(TimelineEvent& event);
  /// The file stops without its closing bracket: its writer was killed.
  bool cut_off() const { return !closed_; }
  const std::string& path() const { return path_; }

 private:
  bool parse(std::string_view text, TimelineEvent& event);

  const std::string path_;
  std::ifstream file_;
  simdjson::ondemand::parser parser_;
  std::string line_;  ///< with simdjson's padding behind it
  std::string name_;
  std::uint64_t number_ = 0;
  bool closed_ = false;
};

}  // namespace hvd::timeline
