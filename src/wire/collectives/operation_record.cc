#include "wire/collectives/operation_record.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "hvd/hvd.h"
#include "wire/collectives/collective_json.h"
#include "wire/json.h"

namespace hvd::wire {
namespace {

constexpr const char* file_mark = "hvdrun operations 1";
constexpr std::size_t most_file_bytes = 512u << 20;

std::string kind_name(int kind) {
#define HVD_KIND_NAME(enumerator, number, word, name) name,
  static constexpr const char* names[] = {HVD_KINDS(HVD_KIND_NAME)};
#undef HVD_KIND_NAME
  const auto index = static_cast<std::size_t>(kind);
  return index < std::size(names) ? names[index] : "process set";
}

std::string dtype_name(int dtype) {
#define HVD_DTYPE_NAME(enumerator, number, word, name, bytes) \
  if (dtype == (number)) return name;
  HVD_DTYPES(HVD_DTYPE_NAME)
#undef HVD_DTYPE_NAME
  return "?";
}

Json json_of(const RankOperations& r) {
  Json rows = Json::array();
  for (const OperationRecord& o : r.last)
    rows.push_back(
        {o.epoch, o.sequence, o.set, o.kind, o.dtype, o.bytes, o.name, o.submit_ns, o.begin_ns, o.end_ns, o.status});
  Json json{{"host", r.host}, {"now_ns", r.now_ns}, {"submitted", r.submitted}, {"operations", std::move(rows)}};
  if (!r.gpu.empty()) json["gpu"] = r.gpu;
  if (r.collectives) json["collectives"] = json_of(*r.collectives);
  return json;
}

RankOperations operations_of(const Json& json) try {
  RankOperations r;
  r.host = json.at("host").get<std::string>();
  r.now_ns = json.at("now_ns").get<std::int64_t>();
  r.submitted = json.at("submitted").get<std::int64_t>();
  for (const Json& row : json.at("operations")) {
    OperationRecord o;
    o.epoch = row.at(0).get<std::int64_t>();
    o.sequence = row.at(1).get<std::int64_t>();
    o.set = row.at(2).get<int>();
    o.kind = row.at(3).get<int>();
    o.dtype = row.at(4).get<int>();
    o.bytes = row.at(5).get<std::int64_t>();
    o.name = row.at(6).get<std::string>();
    o.submit_ns = row.at(7).get<std::int64_t>();
    o.begin_ns = row.at(8).get<std::int64_t>();
    o.end_ns = row.at(9).get<std::int64_t>();
    o.status = row.at(10).get<int>();
    r.last.push_back(std::move(o));
  }
  if (json.contains("gpu")) r.gpu = json.at("gpu").get<std::string>();
  if (json.contains("collectives")) r.collectives = collectives_of(json.at("collectives"));
  return r;
} catch (const Json::exception&) { throw Error(Code::usage, "operations", "a field is missing, or of another type"); }

std::string seconds_text(std::int64_t ns) { return formatted("{:.3f} s", static_cast<double>(ns) / 1e9); }

bool is_open(const OperationRecord& o) { return o.end_ns == 0; }

std::string set_text(int set) { return set == 0 ? "" : formatted(" of process set {}", set); }

/// The ranks' operations of one name that are under way.
struct OpenOperation {
  std::map<int, OperationRecord> by_rank;
  std::int64_t first_sequence = 0;
  bool begun = false;
};

/// True if the records of two ranks can be the same operation. Ranks may have different sizes in an allgather or
/// alltoall.
bool agree(const OperationRecord& a, const OperationRecord& b) {
  const bool own_sizes = a.kind == HVD_ALLGATHER || a.kind == HVD_ALLTOALL;
  return a.kind == b.kind && a.dtype == b.dtype && (own_sizes || a.bytes == b.bytes);
}

}  // namespace

std::string OperationRecord::text() const {
  std::string out = kind_name(kind) + " " + printable(name);
  if (kind != HVD_BARRIER && kind != HVD_JOIN) out += formatted(" ({} B {})", bytes, dtype_name(dtype));
  return out;
}

std::string to_json(const RankOperations& operations) { return dump(json_of(operations)); }

RankOperations rank_operations_from_json(const std::string& text) {
  return operations_of(parse_object(text, "operations"));
}

std::string operations_file(const JobOperations& ranks) {
  std::string out = std::string(file_mark) + "\n";
  for (const auto& [rank, operations] : ranks) out += std::to_string(rank) + " " + to_json(operations) + "\n";
  return out;
}

JobOperations operations_of_file(const std::string& text) {
  const std::vector<std::string> lines = split(text, '\n');
  if (text.size() > most_file_bytes || lines.empty() || lines[0] != file_mark)
    throw Error(Code::usage, "", "is no file of operations that hvdrun kept");
  JobOperations ranks;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    const std::size_t blank = lines[i].find(' ');
    const auto rank = to_integer(lines[i].substr(0, blank));
    if (!rank || *rank < 0 || blank == std::string::npos)
      throw Error(Code::usage, formatted("line {}", i + 1), "names no rank");
    ranks[static_cast<int>(*rank)] = rank_operations_from_json(lines[i].substr(blank + 1));
  }
  return ranks;
}

std::string operations_text(const JobOperations& ranks, std::size_t most) {
  std::string out;
  for (const auto& [rank, r] : ranks) {
    std::vector<const OperationRecord*> open, ended;
    for (const OperationRecord& o : r.last) (is_open(o) ? open : ended).push_back(&o);
    out += formatted("rank {} on {}: {} operations submitted, {} under way\n", rank, r.host, r.submitted, open.size());
    for (std::size_t i = ended.size() - std::min(most, ended.size()); i < ended.size(); ++i) {
      const OperationRecord& o = *ended[i];
      out += formatted("  ended {} ago after {}: #{} {}{}{}\n", seconds_text(r.now_ns - o.end_ns),
                       seconds_text(o.end_ns - o.submit_ns), o.sequence, o.text(), set_text(o.set),
                       o.status == 0 ? "" : formatted(", failed with {}", o.status));
    }
    for (std::size_t i = 0; i < std::min(most, open.size()); ++i) {
      const OperationRecord& o = *open[i];
      out += formatted("  {} for {}: #{} {}{}\n", o.begin_ns == 0 ? "waits for other ranks" : "moves its data",
                       seconds_text(r.now_ns - o.submit_ns), o.sequence, o.text(), set_text(o.set));
    }
    if (!r.gpu.empty()) out += "  its GPU " + printable(r.gpu) + "\n";
    if (r.collectives) out += collectives_text(*r.collectives, most);
  }
  return out;
}

JobCollectives collectives_of(const JobOperations& ranks) {
  JobCollectives job;
  for (const auto& [rank, r] : ranks)
    if (r.collectives) job[rank] = *r.collectives;
  return job;
}

RankDifference difference_between(const JobOperations& ranks) {
  std::int64_t epoch = 0;
  std::map<int, std::set<int>> members;  // of a set: ranks that have used it
  for (const auto& [rank, r] : ranks)
    for (const OperationRecord& o : r.last) epoch = std::max(epoch, o.epoch), members[o.set].insert(rank);
  for (const auto& [rank, r] : ranks) members[0].insert(rank);
  std::map<std::pair<int, std::string>, OpenOperation> open;
  for (const auto& [rank, r] : ranks)
    for (const OperationRecord& o : r.last) {
      if (o.epoch != epoch || !is_open(o)) continue;
      OpenOperation& one = open[{o.set, o.name}];
      if (one.by_rank.empty() || o.sequence < one.first_sequence) one.first_sequence = o.sequence;
      one.by_rank[rank] = o;
      one.begun |= o.begin_ns != 0;
    }
  const std::pair<const std::pair<int, std::string>, OpenOperation>* first = nullptr;
  const auto differs = [&](const auto& one) {
    if (one.second.begun) return false;  // all have submitted it; some may have ended it already
    const OperationRecord& any = one.second.by_rank.begin()->second;
    return one.second.by_rank.size() < members[one.first.first].size() ||
           std::any_of(one.second.by_rank.begin(), one.second.by_rank.end(),
                       [&](const auto& other) { return !agree(any, other.second); });
  };
  for (const auto& one : open)
    if (differs(one) && (!first || one.second.first_sequence < first->second.first_sequence)) first = &one;
  if (!first) return {difference_lines(collective_differences(collectives_of(ranks))), false};

  const int set = first->first.first;
  const auto& by_rank = first->second.by_rank;
  std::map<std::string, std::vector<int>> variants;
  for (const auto& [rank, o] : by_rank) variants[o.text()].push_back(rank);
  std::string line = formatted("the ranks differ at operation {}{}: ", first->second.first_sequence, set_text(set));
  for (const auto& [text, who] : variants) {
    if (line.back() != ' ') line += "; ";
    line += text + " on " + ranks_text(who);
  }
  RankDifference difference{{line}, variants.size() > 1};
  // The last operations of the ranks without it.
  std::map<std::string, std::vector<int>> others;
  for (const int rank : members[set]) {
    if (by_rank.count(rank) > 0) continue;
    const OperationRecord *instead = nullptr, *last = nullptr;
    for (const OperationRecord& o : ranks.at(rank).last) {
      if (o.epoch != epoch) continue;
      last = &o;
      if (is_open(o) && o.begin_ns == 0 && !instead) instead = &o;
    }
    difference.branches |= instead != nullptr;
    others[instead ? "has submitted " + instead->text() + set_text(instead->set) + " instead"
           : last  ? "has not submitted it; its last was " + last->text()
                   : "has submitted nothing"]
        .push_back(rank);
  }
  for (const auto& [text, who] : others)
    if (difference.lines.size() < 3) difference.lines.push_back(ranks_text(who, text));
  return difference;
}

}  // namespace hvd::wire
