/// @file agreement_finding.h — a finding of --agreement.  A rank sends it to hvdrun, for the verdict and the timeline.
///
/// The writer is header only: libhvd includes it without linking hvd_wire.  The reader is in hvd_wire.  Python writes
/// the same JSON (hvd/_agreement/findings.py).
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_text.h"

namespace hvd::wire {

enum class AgreementFindingKind : std::uint8_t { result_differs, parameter_differs, repaired, not_finite };
inline constexpr std::array<std::string_view, 4> finding_words{"result_differs", "parameter_differs", "repaired",
                                                               "not_finite"};

struct AgreementFinding {
  AgreementFindingKind kind = AgreementFindingKind::result_differs;
  std::string tensor;      ///< the operation or the parameter
  std::int64_t step = -1;  ///< the runtime's step, or the watch's; -1: not known
  /// Ranks of the world that differ, were repaired, or sent the NaN or infinity.  Empty: not known.
  std::vector<int> ranks;
  std::string text;          ///< the line for the user
  std::int64_t time_ns = 0;  ///< CLOCK_MONOTONIC of the rank's host
};

inline constexpr std::size_t most_finding_ranks = 64, most_finding_bytes = 1000;

/// Body of Type::finding: {"kind", "tensor", "step", "ranks", "text", "time_ns"}.
inline std::string to_json(const AgreementFinding& f) {
  std::string json = R"({"kind":")" + std::string(finding_words[static_cast<std::size_t>(f.kind)]) + R"(","tensor":)";
  append_json_string(json, std::string_view(f.tensor).substr(0, most_finding_bytes));
  json += R"(,"step":)" + std::to_string(f.step) + R"(,"ranks":[)";
  for (std::size_t i = 0; i < std::min(f.ranks.size(), most_finding_ranks); ++i)
    json += (i > 0 ? "," : "") + std::to_string(f.ranks[i]);
  json += R"(],"text":)";
  append_json_string(json, std::string_view(f.text).substr(0, most_finding_bytes));
  return json + R"(,"time_ns":)" + std::to_string(f.time_ns) + "}";
}

/// Throws Error{usage} when @p text is no such message of a job of @p ranks ranks.  A rank may send anything, so texts
/// are cut, and their control characters become '?'.
AgreementFinding agreement_finding_from_json(const std::string& text, int ranks);

}  // namespace hvd::wire
