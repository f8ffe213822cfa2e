/// @file event_writer.h — writes a timeline in the format of the file's ending.
#pragma once
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/files/gzip.h"
#include "event_reader.h"
#include "trace/perfetto/perfetto_packets.h"
#include "trace/timeline.h"

namespace hvd::timeline {

class EventWriter {
 public:
  /// Creates or empties the file.  Throws Error{usage}.
  explicit EventWriter(const std::string& path);

  /// @param event  the parsed form of @p line, a JSON object; its views are read during the call only
  /// @param drawn  the input has the ranks' own tracks; else they are drawn from the operations
  void put(const TimelineEvent& event, std::string_view line, bool drawn);
  void put_note(std::string_view line);
  /// Throws Error{unavailable} if a part could not be written.
  void close(std::string_view text);

 private:
  using Place = std::pair<std::int64_t, std::int64_t>;  ///< rank and row
  struct RankTracks {
    std::uint64_t own = 0, tensors = 0;
    double free_us = 0;
  };
  struct HeldEvent {
    char phase;
    std::string name;
    double ts_us, dur_us;
  };
  struct TensorTrack {
    std::string name;
    std::uint64_t track = 0;
    std::uint64_t negotiations = 0, operations = 0;
    std::vector<HeldEvent> held;  ///< held until an operation gives dtype and shape
  };
  RankTracks& rank(std::int64_t number);
  void name(const TimelineEvent& event);
  void draw(std::uint64_t track, const HeldEvent& event, std::uint64_t flow = 0);
  void draw_tensor(const Place& place, TensorTrack& tensor, const HeldEvent& event);
  void describe(const Place& place, TensorTrack& tensor, const std::string& look);
  void flush();

  const std::string path_;
  const trace::TimelineFormat format_;
  Fd opened_;
  std::unique_ptr<GzipMembers> gzip_;  ///< present if the file's ending requires it
  std::ofstream to_;
  std::string text_;
  trace::PerfettoPackets packets_{text_};
  std::map<std::int64_t, RankTracks> ranks_;
  std::map<Place, TensorTrack> tensors_;
  bool begun_ = false;
};

/// The text of an event's arguments: {"name":"x"}.
std::string text_argument(std::string_view arguments, const char* key);

}  // namespace hvd::timeline
