#include "launcher/verdict/disagreeing_calls.h"

#include <algorithm>

#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t most_lines = 4;

bool is_of(const DisagreeingCall& call, const wire::MismatchedCall& d) {
  return call.function == d.function && call.frame.file == d.frame.file && call.frame.line == d.frame.line;
}

std::string line_of(const DisagreeingCall& call) {
  const auto& [file, line, inside] = call.frame;
  const std::string place = formatted("{}:{}{}", file.substr(file.rfind('/') + 1), line,
                                      inside.empty() || inside == "<module>" ? "" : " (" + inside + ")");
  const bool one = call.ranks.size() == 1;
  const std::string did = call.function.empty() ? (one ? "was" : "were") : "called " + call.function;
  return formatted("{} {} {} at {}", one ? "rank" : "ranks", ranges(call.ranks), did, place);
}

}  // namespace

bool ended_by_disagreement(const wire::DeathRecord& d) {
  return d.mismatched_call && d.cause == wire::Cause::exited &&
         d.traceback.find(d.mismatched_call->error) != std::string::npos;
}

std::vector<DisagreeingCall> disagreeing_calls(const wire::DeathRecord& first,
                                               const std::vector<wire::DeathRecord>& deaths) {
  std::vector<DisagreeingCall> calls;
  if (!ended_by_disagreement(first)) return calls;
  for (const wire::DeathRecord& d : deaths) {
    if (!d.mismatched_call || d.mismatched_call->error != first.mismatched_call->error) continue;
    auto known =
        std::ranges::find_if(calls, [&](const DisagreeingCall& call) { return is_of(call, *d.mismatched_call); });
    if (known == calls.end())
      known = calls.insert(calls.end(), {{}, d.mismatched_call->function, d.mismatched_call->frame});
    known->ranks.push_back(d.rank);
  }
  for (DisagreeingCall& call : calls) std::ranges::sort(call.ranks);
  std::ranges::sort(calls, {}, [](const DisagreeingCall& call) { return call.ranks.front(); });
  return calls;
}

std::vector<std::string> lines_of(const std::vector<DisagreeingCall>& calls) {
  std::vector<std::string> lines;
  for (const DisagreeingCall& call : calls) {
    if (lines.size() == most_lines) {
      lines.push_back(formatted("and {} elsewhere", count_of(calls.size() - most_lines, "more call")));
      break;
    }
    lines.push_back(line_of(call));
  }
  return lines;
}

}  // namespace hvd::launcher
