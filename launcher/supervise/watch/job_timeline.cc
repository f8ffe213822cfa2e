#include "launcher/supervise/watch/job_timeline.h"

#include <algorithm>

#include "base/error.h"
#include "base/json_text.h"

namespace hvd::launcher {

JobTimeline::JobTimeline(const std::string& path, const JobMap& map, std::uint64_t max_bytes)
    : map_(map), max_bytes_(max_bytes) {
  if (!path.empty()) open(path);
}

void JobTimeline::open(const std::string& path) {
  file_ = std::make_unique<TimelineFile>(TimelineFileOptions{path, max_bytes_});
  path_ = path;
}

void JobTimeline::rank_came(int rank, bool local) {
  if (file_) file_->rank_started(rank, map_.host_of(rank).name, local);
}

/// A new rank of an elastic job comes while the others record.
void JobTimeline::rank_runs(Session& session, int rank) const {
  if (asked_) session.record_timeline(rank, true);
}

void JobTimeline::rank_ended(int rank, const std::string& text) {
  if (file_) file_->rank_ended(rank, text);
}

void JobTimeline::records(int rank, std::string_view body) {
  if (file_) file_->append(rank, std::string(body));
}

void JobTimeline::clock_sample(int rank, std::int64_t sent_ns, std::int64_t received_ns, std::int64_t guard_ns) {
  if (file_) file_->clock_sample(rank, sent_ns, received_ns, guard_ns);
}

/// The event lies in the row of the first rank that it is about.
void JobTimeline::found(int rank, const wire::AgreementFinding& found) {
  if (!file_) return;
  std::string name = "agreement: " + std::string(wire::finding_words[static_cast<std::size_t>(found.kind)]);
  std::replace(name.begin(), name.end(), '_', ' ');
  std::string arguments = R"({"tensor":)";
  append_json_string(arguments, found.tensor);
  arguments += R"(,"step":)" + (found.step < 0 ? "null" : std::to_string(found.step)) + R"(,"ranks":[)";
  for (const int one : found.ranks) arguments += (arguments.back() == '[' ? "" : ",") + std::to_string(one);
  arguments += R"(],"text":)";
  append_json_string(arguments, found.text);
  const int about = found.ranks.empty() ? rank : found.ranks.front();
  file_->found(rank, about, std::move(name), arguments + "}", found.time_ns);
}

std::string JobTimeline::start(Session& session, const std::string& path, bool named) {
  if (file_ && named && path != path_) return "!this job's timeline is " + path_ + ": it goes on there\n";
  if (!file_) {
    try {
      open(path);
    } catch (const Error& e) { return std::string("!") + e.what() + "\n"; }
    for (std::size_t r = 0; r < session.ranks().size(); ++r) {
      const RankState& state = session.ranks()[r];
      if (state.stage == RankStage::greeted || state.stage == RankStage::running)
        file_->rank_found(static_cast<int>(r), map_.host_of(static_cast<int>(r)).name, state.local);
    }
  }
  asked_ = true;
  for (std::size_t r = 0; r < session.ranks().size(); ++r) session.record_timeline(static_cast<int>(r), true);
  return "each rank records from its next step on, into " + path_ + "\n";
}

std::string JobTimeline::stop(Session& session) {
  if (!file_) return "!this job records no timeline\n";
  asked_ = false;
  for (std::size_t r = 0; r < session.ranks().size(); ++r) session.record_timeline(static_cast<int>(r), false);
  return "each rank stops with its step; the timeline is " + path_ + "\n";
}

std::string JobTimeline::close(std::chrono::milliseconds limit) { return file_ ? file_->close(limit) : ""; }

}  // namespace hvd::launcher
