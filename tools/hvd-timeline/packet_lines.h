/// @file packet_lines.h — reads the part of Perfetto's format that timelines use, as lines of Chrome's format.
#pragma once
#include <cstdint>
#include <deque>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::timeline {

class PacketLines {
 public:
  /// @param size  bytes that are read of the file
  PacketLines(const std::string& path, std::uint64_t size);

  /// Reads the next event, one JSON object without the text after it. Returns false at the end. Throws Error{usage} for
  /// data that is no packet.
  bool next(std::string& line);
  /// The last event has been read.
  bool closed() const { return closed_; }

 private:
  struct PacketTrack {
    std::int64_t rank = -1, row = 0;  ///< rank -1: of no rank
    std::uint64_t parent = 0;
    std::string name, arguments;
    bool counter = false;
    std::vector<std::pair<std::string, std::int64_t>> open;  ///< slices that have begun
  };
  bool read_packet(std::string& packet);
  void take(std::string_view packet);
  void take_track(std::string_view bytes);
  void take_names(std::string_view bytes);
  void take_event(std::string_view bytes, std::int64_t ns);
  void slice(const PacketTrack& track, char phase, std::string_view name, std::int64_t begin_ns, std::int64_t end_ns);
  void ready(const PacketTrack& track, std::int64_t ns);
  void finish();

  const std::string path_;
  std::ifstream file_;
  const std::uint64_t size_;
  std::uint64_t at_ = 0;
  std::map<std::uint64_t, PacketTrack> tracks_;
  std::map<std::uint64_t, std::string> names_;
  std::map<std::string, std::int64_t> rows_;
  std::deque<std::string> lines_;
  bool closed_ = false, ended_ = false;
};

}  // namespace hvd::timeline
