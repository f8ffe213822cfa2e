#include "wire/collectives/collective_record.h"

#include "base/error.h"
#include "wire/collectives/collective_json.h"

namespace hvd::wire {
namespace {

constexpr std::size_t most_groups = 4096, most_records = 4096, most_text = 200;
constexpr double longest_seconds = 1e9;

/// Returns the text with a limited length and without control characters, since hvdrun prints it to a terminal.
std::string text_of(const Json& value) {
  std::string text = value.get<std::string>().substr(0, most_text);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  return text;
}

int rank_of(const Json& value) {
  const auto number = value.get<std::int64_t>();
  return number >= 0 && number < 1 << 24 ? static_cast<int>(number) : -1;
}

double seconds_of(const Json& value) {
  const auto seconds = value.get<double>();
  return seconds >= 0 && seconds < longest_seconds ? seconds : 0;
}

GroupStart group_start_of(const Json& json) {
  GroupStart start;
  start.rank = rank_of(json.at("rank"));
  start.world = rank_of(json.at("world"));
  start.address = text_of(json.at("address"));
  start.port = json.at("port").get<int>();
  start.seconds = seconds_of(json.at("since"));
  if (json.contains("reach")) start.refused = text_of(json.at("reach"));
  if (json.contains("place")) start.place = text_of(json.at("place"));
  return start;
}

Json json_of(const GroupStart& start) {
  return {{"rank", start.rank},     {"world", start.world},   {"address", start.address}, {"port", start.port},
          {"since", start.seconds}, {"reach", start.refused}, {"place", start.place}};
}

PresentCall present_call_of(const Json& json) {
  PresentCall call;
  call.name = text_of(json.at("name"));
  call.peer = rank_of(json.at("peer"));
  call.place = text_of(json.at("place"));
  call.seconds = seconds_of(json.at("seconds"));
  if (json.contains("group")) call.group = rank_of(json.at("group"));
  if (json.contains("tag")) call.tag = rank_of(json.at("tag"));
  return call;
}

bool has(const Json& json, const char* name) { return json.contains(name) && !json.at(name).is_null(); }

CollectiveRecord record_of(const Json& row, std::size_t groups) {
  CollectiveRecord r;
  r.group = rank_of(row.at(0));
  if (r.group < 0 || static_cast<std::size_t>(r.group) >= groups)
    throw Error(Code::usage, "collectives", "a record is of no group");
  r.sequence = row.at(1).get<std::int64_t>();
  r.kind = text_of(row.at(2));
  r.tensors = text_of(row.at(3));
  const int flags = row.at(4).get<int>();
  r.ended = (flags & 1) != 0;
  r.point_to_point = (flags & 2) != 0;
  r.at_once = (flags & 4) != 0;
  r.seconds = seconds_of(row.at(5));
  r.place = text_of(row.at(6));
  if (row.size() > 7) r.root = rank_of(row.at(7));  // files of the first version have no roots
  return r;
}

}  // namespace

RankCollectives collectives_of(const Json& json) try {
  RankCollectives c;
  c.whole = json.at("whole").get<bool>();
  c.rank = rank_of(json.at("rank"));
  c.pid = json.at("pid").get<std::int64_t>();
  c.torch = text_of(json.at("torch"));
  if (json.contains("recorded")) c.recorded = json.at("recorded").get<bool>();
  if (json.contains("longest_gap")) c.longest_gap_seconds = seconds_of(json.at("longest_gap"));
  if (has(json, "init")) c.init = group_start_of(json.at("init"));
  if (has(json, "call")) c.call = present_call_of(json.at("call"));
  for (const Json& row : json.at("groups")) {
    CollectiveGroup group{text_of(row.at(0)), text_of(row.at(1)), {}};
    for (const Json& rank : row.at(2)) group.ranks.push_back(rank_of(rank));
    c.groups.push_back(std::move(group));
  }
  for (const Json& row : json.at("records")) c.last.push_back(record_of(row, c.groups.size()));
  if (c.call && c.call->group >= static_cast<int>(c.groups.size())) c.call->group = -1;
  if (c.groups.size() > most_groups || c.last.size() > most_records)
    throw Error(Code::usage, "collectives", "there are too many");
  return c;
} catch (const Json::exception&) { throw Error(Code::usage, "collectives", "a field is missing, or of another type"); }

Json json_of(const RankCollectives& c) {
  Json groups = Json::array(), records = Json::array();
  for (const CollectiveGroup& g : c.groups) groups.push_back({g.name, g.description, g.ranks});
  for (const CollectiveRecord& r : c.last)
    records.push_back({r.group, r.sequence, r.kind, r.tensors,
                       (r.ended ? 1 : 0) + (r.point_to_point ? 2 : 0) + (r.at_once ? 4 : 0), r.seconds, r.place,
                       r.root});
  Json json{{"whole", c.whole},       {"rank", c.rank},   {"pid", c.pid},       {"torch", c.torch},
            {"recorded", c.recorded}, {"groups", groups}, {"records", records}, {"longest_gap", c.longest_gap_seconds}};
  if (c.init) json["init"] = json_of(*c.init);
  if (const auto& call = c.call)
    json["call"] = {{"name", call->name},       {"peer", call->peer},   {"place", call->place},
                    {"seconds", call->seconds}, {"group", call->group}, {"tag", call->tag}};
  return json;
}

RankCollectives rank_collectives_from_json(const std::string& text) {
  return collectives_of(parse_object(text, "collectives"));
}

std::string to_json(const RankCollectives& collectives) { return dump(json_of(collectives)); }

CollectiveWait collective_wait_from_json(const std::string& text) try {
  const Json json = parse_object(text, "collective wait");
  CollectiveWait wait;
  if (has(json, "init")) wait.init = group_start_of(json.at("init"));
  wait.what = text_of(json.at("what"));
  wait.seconds = seconds_of(json.at("seconds"));
  return wait;
} catch (const Json::exception&) {
  throw Error(Code::usage, "collective wait", "a field is missing, or of another type");
}

std::string to_json(const CollectiveWait& wait) {
  Json json{{"what", wait.what}, {"seconds", wait.seconds}};
  if (wait.init) json["init"] = json_of(*wait.init);
  return dump(json);
}

}  // namespace hvd::wire
