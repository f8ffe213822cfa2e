/// @file stalls.h — operations that some ranks have submitted and others have not, as the coordinator tells hvdrun.
///
/// The writer is header only: libhvd includes it without linking hvd_wire.  The reader is in hvd_wire.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_text.h"

namespace hvd::wire {

/// All operations that wait for the same ranks.
struct Stall {
  std::string tensor;         ///< the first of them by name
  int tensors = 1;            ///< number of operations
  double waited_seconds = 0;  ///< the longest of them
  std::vector<int> missing;   ///< ranks of the world that have not submitted them, sorted
  int more = 0;               ///< missing ranks that are not in the list
  int size = 0;               ///< members of the process set that the operations are for
};

inline constexpr std::size_t most_stalls = 16;         ///< in one message
inline constexpr std::size_t most_missing_ranks = 64;  ///< in Stall::missing

/// Body of Type::stall: {"waits": [{tensor, tensors, waited_seconds, missing, more, size}]}.
inline std::string to_json(const std::vector<Stall>& stalls) {
  constexpr std::size_t most_name_bytes = 400;
  std::string json = R"({"waits":[)";
  for (std::size_t i = 0; i < std::min(stalls.size(), most_stalls); ++i) {
    const Stall& s = stalls[i];
    json += i > 0 ? R"(,{"tensor":)" : R"({"tensor":)";
    append_json_string(json, std::string_view(s.tensor).substr(0, most_name_bytes));
    json += R"(,"tensors":)";
    append_number(json, s.tensors);
    json += R"(,"waited_seconds":)" + std::to_string(s.waited_seconds) + R"(,"missing":[)";
    for (const int rank : s.missing) {
      if (json.back() != '[') json += ',';
      append_number(json, rank);
    }
    json += R"(],"more":)";
    append_number(json, s.more);
    json += R"(,"size":)";
    append_number(json, s.size);
    json += '}';
  }
  return json += "]}";
}

/// Throws Error{usage} when @p text is no such message of a job of @p ranks ranks.  A rank may send anything.  So names
/// are cut to the length of a name in a status page, and control characters become '?'.
std::vector<Stall> stalls_from_json(const std::string& text, int ranks);

}  // namespace hvd::wire
