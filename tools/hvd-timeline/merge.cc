#include "merge.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "event_reader.h"
#include "event_writer.h"

namespace hvd::timeline {

namespace {

using Json = nlohmann::ordered_json;

/// The first event of a rank's own file: its rank and its clock.
struct FileOrigin {
  std::int64_t rank = 0;
  std::string host, boot_id;
  std::int64_t origin_ns = 0, realtime_minus_monotonic_ns = 0;
};

FileOrigin read_origin(const std::string& path) {
  EventReader reader(path);
  TimelineEvent event;
  const Error missing(Code::usage, path, "was not written by a rank alone: it does not say which clock it uses",
                      "merge joins the files of HOROVOD_TIMELINE without hvdrun; hvdrun's own file holds all ranks");
  if (!reader.next(event) || event.name != "hvd_file") throw missing;
  FileOrigin origin;
  origin.rank = event.pid;
  simdjson::ondemand::parser parser;
  const simdjson::padded_string text(event.arguments);
  simdjson::ondemand::document document;
  std::string_view host, boot_id;
  if (parser.iterate(text).get(document) || document["host"].get_string().get(host) ||
      document["boot_id"].get_string().get(boot_id) || document["origin_ns"].get_int64().get(origin.origin_ns) ||
      document["realtime_minus_monotonic_ns"].get_int64().get(origin.realtime_minus_monotonic_ns))
    throw missing;
  origin.host = host;
  origin.boot_id = boot_id;
  return origin;
}

/// The numbers of rows that all files share. The key is the name. If several process sets use one name, its index among
/// them is part of the key.
class RowNumbers {
 public:
  std::int64_t add(const std::string& name, int repetition) {
    return numbers_.try_emplace({name, repetition}, static_cast<std::int64_t>(numbers_.size() + 1)).first->second;
  }

 private:
  std::map<std::pair<std::string, int>, std::int64_t> numbers_;
};

/// Copies one file's events with new rows and times.
class Copier {
 public:
  Copier(const std::string& path, std::int64_t shift_ns, RowNumbers& rows, EventWriter& to)
      : reader_(path), shift_ns_(shift_ns), rows_(rows), to_(to) {}

  void run() {
    TimelineEvent event;
    while (reader_.next(event)) {
      if (event.name == "hvd_file" || event.name == "hvd_end") continue;
      if (event.name == "thread_name" && event.phase == 'M') name_row(event);
      copy(event);
    }
  }
  bool cut_off() const { return reader_.cut_off(); }

 private:
  void name_row(const TimelineEvent& event) {
    if (event.tid == 0 || numbers_.contains(event.tid)) return;
    const std::string name(event.arguments);
    numbers_[event.tid] = rows_.add(name, seen_[name]++);
  }

  void copy(const TimelineEvent& event) {
    // The two places that change, in their order in the line.
    std::map<const char*, std::pair<std::size_t, std::string>> changes;
    if (const auto row = numbers_.find(event.tid); !event.tid_text.empty() && row != numbers_.end())
      changes[event.tid_text.data()] = {event.tid_text.size(), std::to_string(row->second)};
    if (!event.ts_text.empty()) {
      std::string ts;
      append_us(ts, std::llround(event.ts_us * 1000) + shift_ns_);
      changes[event.ts_text.data()] = {event.ts_text.size(), ts};
    }
    const char* at = event.line.data();
    const char* const end = at + event.line.size();
    line_.clear();
    for (const auto& [place, change] : changes) {
      line_.append(at, place);
      line_ += change.second;
      at = place + change.first;
    }
    line_.append(at, end);
    TimelineEvent moved = event;
    if (const auto row = numbers_.find(event.tid); row != numbers_.end()) moved.tid = row->second;
    moved.ts_us += static_cast<double>(shift_ns_) / 1000;
    moved.line = line_;
    to_.put(moved, line_, reader_.of_packets());
  }

  EventReader reader_;
  const std::int64_t shift_ns_;
  RowNumbers& rows_;
  EventWriter& to_;
  std::map<std::int64_t, std::int64_t> numbers_;  ///< this file's row → the merged row
  std::map<std::string, int> seen_;
  std::string line_;
};

}  // namespace

std::vector<std::string> merge(const std::vector<std::string>& inputs, const std::string& output) {
  std::map<std::int64_t, std::pair<std::string, FileOrigin>> files;  // by rank
  for (const std::string& path : inputs) {
    FileOrigin origin = read_origin(path);
    const auto rank = origin.rank;
    const auto [place, fresh] = files.try_emplace(rank, path, std::move(origin));
    if (!fresh) throw Error(Code::usage, path, formatted("is of rank {}, and so is {}", rank, place->second.first));
    std::error_code not_there;
    if (std::filesystem::equivalent(path, output, not_there))
      throw Error(Code::usage, "-o", output + " is also an input");
  }
  EventWriter to(output);

  const FileOrigin& first = files.begin()->second.second;
  std::vector<std::string> warnings;
  RowNumbers rows;
  for (const auto& [rank, file] : files) {
    const auto& [path, origin] = file;
    std::int64_t shift_ns = origin.origin_ns - first.origin_ns;
    const bool same_clock = origin.boot_id == first.boot_id;
    if (!same_clock) {
      shift_ns += origin.realtime_minus_monotonic_ns - first.realtime_minus_monotonic_ns;
      warnings.push_back(formatted("{}: aligned by the wall clocks of {} and {}, which may differ by milliseconds",
                                   path, origin.host, first.host));
    }
    const Json clock{{"ph", "M"},
                     {"name", "hvd_clock"},
                     {"pid", rank},
                     {"args", {{"offset_ns", shift_ns}, {"aligned_by", same_clock ? "same clock" : "wall clock"}}}};
    to.put_note(clock.dump());
    Copier copier(path, shift_ns, rows, to);
    copier.run();
    if (copier.cut_off()) warnings.push_back(path + ": ends early, its rank was killed");
  }
  to.close("merged");
  return warnings;
}

std::vector<std::string> convert(const std::string& input, const std::string& output) {
  std::error_code not_there;
  if (std::filesystem::equivalent(input, output, not_there)) throw Error(Code::usage, "-o", output + " is the input");
  EventReader reader(input);
  EventWriter to(output);
  TimelineEvent event;
  while (reader.next(event))
    if (event.name != "hvd_end") to.put(event, event.line, reader.of_packets());
  to.close("converted");
  if (reader.cut_off()) return {input + ": has no end: its job still records, or its writer was killed"};
  return {};
}

}  // namespace hvd::timeline
