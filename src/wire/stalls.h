/// @file stalls.h — operations that some ranks have submitted and others have not, as the coordinator tells hvdrun.
///
/// The writer is header only and needs no JSON library: libhvd links it.  The reader is in hvd_wire.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::wire {

/// All operations that wait for the same ranks.
struct Stall {
  std::string tensor;         ///< the first by name
  int tensors = 1;            ///< how many operations there are
  double waited_seconds = 0;  ///< the longest of them
  std::vector<int> missing;   ///< ranks of the world that have not submitted them, sorted
  int more = 0;               ///< missing ranks that are not in the list
  int size = 0;               ///< members of the process set that the operations are for
};

inline constexpr std::size_t most_stalls = 16;         ///< in one message
inline constexpr std::size_t most_missing_ranks = 64;  ///< in the list of one

/// Body of Type::stall: {"waits": [{tensor, tensors, waited_seconds, missing, more, size}]}.
inline std::string to_json(const std::vector<Stall>& stalls) {
  const auto quoted = [](std::string_view name) {
    std::string out = "\"";
    for (const char c : name.substr(0, 400)) {
      if (c == '"' || c == '\\') out += '\\';
      out += static_cast<unsigned char>(c) < 32 ? ' ' : c;
    }
    return out + "\"";
  };
  std::string json;
  for (std::size_t i = 0; i < std::min(stalls.size(), most_stalls); ++i) {
    const Stall& s = stalls[i];
    std::string missing;
    for (const int rank : s.missing) missing += (missing.empty() ? "" : ",") + std::to_string(rank);
    json += std::string(json.empty() ? "" : ",") + "{\"tensor\":" + quoted(s.tensor) +
            ",\"tensors\":" + std::to_string(s.tensors) + ",\"waited_seconds\":" + std::to_string(s.waited_seconds) +
            ",\"missing\":[" + missing + "],\"more\":" + std::to_string(s.more) +
            ",\"size\":" + std::to_string(s.size) + "}";
  }
  return "{\"waits\":[" + json + "]}";
}

/// Throws Error{usage} for what is no such message of a job of @p ranks ranks.  It comes from the rank itself, which
/// may send anything: names are cut to what a status page holds, and control characters in them become '?'.
std::vector<Stall> stalls_from_json(const std::string& text, int ranks);

}  // namespace hvd::wire
