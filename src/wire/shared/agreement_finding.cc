#include "agreement_finding.h"

#include "base/error.h"
#include "wire/json.h"

namespace hvd::wire {
namespace {

std::string printable_text(const Fields& f, const char* field) {
  std::string text = f.bytes(field).substr(0, most_finding_bytes);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 32) c = '?';  // it goes to files and terminals
  return text;
}

}  // namespace

AgreementFinding agreement_finding_from_json(const std::string& text, int ranks) {
  const Json json = parse_object(text, "finding");
  const Fields f(json, "finding");
  AgreementFinding found;
  const auto* const word = std::find(finding_words.begin(), finding_words.end(), f.bytes("kind"));
  if (word == finding_words.end()) throw Error(Code::usage, "finding.kind", "is no kind of finding");
  found.kind = static_cast<AgreementFindingKind>(word - finding_words.begin());
  found.tensor = printable_text(f, "tensor");
  found.step = f.integer("step", -1, INT64_MAX);
  found.ranks = f.integers("ranks", 0, ranks - 1);
  if (found.ranks.size() > most_finding_ranks) throw Error(Code::usage, "finding.ranks", "is no short list");
  found.text = printable_text(f, "text");
  found.time_ns = f.integer("time_ns", 0, INT64_MAX);
  return found;
}

}  // namespace hvd::wire
