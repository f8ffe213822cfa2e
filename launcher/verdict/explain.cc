#include "launcher/verdict/explain.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/text.h"
#include "launcher/verdict/verdict_document.h"

namespace hvd::launcher {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t most_bytes = 16u << 20, most_findings_shown = 20;
constexpr const char* usage =
    "Usage: hvdrun explain FILE\n"
    "Prints a verdict, which a job has written to FILE (--verdict-filename), for people.  hvdrun-verdict(5) has the\n"
    "fields and the words for causes and advice.\n";

/// Reads fields of one object; each failure names the file and the field.
class VerdictFields {
 public:
  VerdictFields(const Json& json, std::string name) : json_(json), name_(std::move(name)) {
    if (!json_.is_object()) fail("is no object");
  }
  const Json& at(const char* field) const {
    if (!json_.contains(field)) fail(formatted("has no field \"{}\"", field));
    return json_[field];
  }
  std::string text(const char* field) const { return checked(field, at(field).is_string(), "text").get<std::string>(); }
  std::string text_or_empty(const char* field) const { return at(field).is_null() ? "" : text(field); }
  long long integer(const char* field) const {
    return checked(field, at(field).is_number_integer(), "whole number").get<long long>();
  }
  std::vector<VerdictFields> objects(const char* field) const {
    std::vector<VerdictFields> found;
    for (const Json& one : checked(field, at(field).is_array(), "list")) found.push_back({one, name_ + ": " + field});
    return found;
  }
  /// Of a field that an earlier hvdrun has not written.
  std::vector<VerdictFields> optional_objects(const char* field) const {
    return json_.contains(field) ? objects(field) : std::vector<VerdictFields>{};
  }
  std::vector<std::string> texts(const char* field) const {
    std::vector<std::string> found;
    for (const Json& one : checked(field, at(field).is_array(), "list")) {
      checked(field, one.is_string(), "list of texts");
      found.push_back(one.get<std::string>());
    }
    return found;
  }
  VerdictFields object(const char* field) const { return {at(field), name_ + ": " + field}; }
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(Code::usage, name_, why, "hvdrun --verdict-filename FILE writes one: hvdrun-verdict(5)");
  }

 private:
  const Json& checked(const char* field, bool is_good, const char* wanted) const {
    if (!is_good) fail(formatted("\"{}\" is no {}", field, wanted));
    return json_[field];
  }
  const Json& json_;
  std::string name_;
};

void check_version(const VerdictFields& verdict) {
  if (verdict.text("schema") != verdict_schema) verdict.fail("is no verdict of hvdrun");
  const long long version = verdict.integer("version");
  if (version > verdict_version)
    verdict.fail(formatted("is of version {}; hvdrun " HVD_VERSION
                           " reads version {}: use the hvdrun that wrote it, {}",
                           version, verdict_version, verdict.text("hvdrun")));
  if (version < verdict_version) verdict.fail(formatted("has version {}; no hvdrun writes this version", version));
}

/// "train.py:12 (step)"; empty: no line is known.
std::string frame_of(const VerdictFields& one) {
  if (one.at("frame").is_null()) return {};
  const VerdictFields frame = one.object("frame");
  const std::string function = frame.text_or_empty("function");
  return formatted("{}:{}{}", frame.text("file"), frame.integer("line"), function.empty() ? "" : " (" + function + ")");
}

/// "rank 1 on h2, train.py:12 (step)"; empty: no place is known.
std::string place_of(const VerdictFields& verdict) {
  std::vector<std::string> parts;
  if (!verdict.at("rank").is_null()) parts.push_back(formatted("rank {}", verdict.integer("rank")));
  if (const std::string host = verdict.text_or_empty("host"); !host.empty())
    parts.empty() ? parts.push_back(host) : void(parts.back() += " on " + host);
  if (std::string frame = frame_of(verdict); !frame.empty()) parts.push_back(std::move(frame));
  return join(parts, ", ");
}

std::string others_of(const VerdictFields& verdict) {
  std::vector<std::string> parts;
  for (const VerdictFields& one : verdict.objects("others")) {
    const std::string ranks = one.text("ranks"), end = one.text("end");
    parts.push_back((ranks.empty() ? count_of(one.integer("count"), "rank") : "rank " + ranks) + " " +
                    (end == "not_started" ? "not started" : end));
  }
  return join(parts, "; ");
}

/// The first finding of each kind and tensor, with the number of those like it.  Findings that repeat hide no other
/// one.
std::string findings_text(const std::vector<VerdictFields>& findings) {
  struct Alike {
    std::string kind, tensor, line;
    std::size_t count = 1;
  };
  std::vector<Alike> firsts;
  for (const VerdictFields& one : findings) {
    const std::string kind = one.text("kind"), tensor = one.text_or_empty("tensor");
    const auto same = std::find_if(firsts.begin(), firsts.end(),
                                   [&](const Alike& a) { return a.kind == kind && a.tensor == tensor; });
    if (same != firsts.end())
      ++same->count;
    else
      firsts.push_back({kind, tensor, formatted("  {}  {}", one.text("time"), one.text("text"))});
  }
  std::string out;
  const std::size_t shown = std::min(firsts.size(), most_findings_shown);
  for (std::size_t i = 0; i < shown; ++i) {
    const Alike& a = firsts[i];
    out += printable(a.line) + (a.count > 1 ? formatted(" (and {} more about it)", a.count - 1) : "") + "\n";
  }
  if (shown < firsts.size()) out += formatted("  and findings about {} more\n", firsts.size() - shown);
  return out;
}

std::string advice_of(const VerdictFields& of) {
  const VerdictFields advice = of.object("advice");
  const std::string reason = advice.text("reason");
  return advice.text("action") + (reason.empty() ? "" : ": " + reason);
}

}  // namespace

std::string explained(const std::string& json, const std::string& name) {
  const Json parsed = Json::parse(json, nullptr, false);
  if (parsed.is_discarded())
    throw Error(Code::usage, name, "is incomplete, or is not JSON", "hvdrun --verdict-filename FILE writes a verdict");
  const VerdictFields verdict(parsed, name);
  check_version(verdict);
  std::string out;
  const auto add = [&](const char* word, const std::string& text) {
    if (!text.empty())
      out += formatted("{}{}{}\n", word, std::string(10 - std::string_view(word).size(), ' '), printable(text));
  };
  add("job", std::string(trim(verdict.text_or_empty("job") + " " + verdict.text("payload"))));
  add("outcome", formatted("{}, exit code {}", verdict.text("outcome"), verdict.integer("exit_code")));
  add("what", verdict.text("headline"));
  add("cause", verdict.text("cause"));
  add("where", place_of(verdict));
  add("operation", verdict.text_or_empty("operation"));
  add("when", verdict.text("time"));
  add("others", others_of(verdict));
  add("advice", advice_of(verdict));
  if (const auto incidents = verdict.objects("incidents"); incidents.size() > 1) {
    out += "incidents\n";
    for (const VerdictFields& one : incidents)
      out += printable(formatted("  {}  {} [{}; {}]", one.text("time"), one.text("headline"), one.text("cause"),
                                 one.object("advice").text("action"))) +
             "\n";
  }
  if (const auto calls = verdict.optional_objects("calls"); !calls.empty()) {
    out += "calls\n";
    for (const VerdictFields& one : calls)
      out +=
          printable(formatted("  rank {}  {}  {}", one.text("ranks"), one.text_or_empty("function"), frame_of(one))) +
          "\n";
  }
  if (const auto findings = verdict.optional_objects("findings"); !findings.empty()) {
    out += "findings\n" + findings_text(findings);
  }
  if (const auto lines = verdict.texts("evidence"); !lines.empty()) {
    out += "evidence\n";
    for (const std::string& line : lines) out += "  " + printable(line) + "\n";
  }
  return out;
}

int explain(const std::vector<std::string>& words) {
  if (words.size() == 1 && (words[0] == "--help" || words[0] == "-h")) return std::fputs(usage, stdout) < 0;
  const std::string hint = "hvdrun explain --help; to run a program of that name: hvdrun -- explain";
  if (words.empty()) throw Error(Code::usage, "explain", "which file?", hint);
  if (words.size() > 1 || words[0].starts_with('-'))
    throw Error(Code::usage, words.back(), "hvdrun explain takes one file", hint);
  return std::fputs(explained(read_file(words[0], most_bytes), words[0]).c_str(), stdout) < 0;
}

}  // namespace hvd::launcher
