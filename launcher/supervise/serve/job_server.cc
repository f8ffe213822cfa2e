#include "launcher/supervise/serve/job_server.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "launcher/control/commands/jobs.h"

namespace hvd::launcher {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_operations_shown = 8;
constexpr auto python_limit = 3000ms;   // a guard gives up after 1.5 s
constexpr auto native_limit = 12000ms;  // and after 8 s more

std::string indented(const std::string& text, const char* blanks) {
  std::string out;
  for (const std::string& line : split(trim(text), '\n')) out += blanks + printable(line) + "\n";
  return out;
}

const char* state_text(const std::string& state) {
  if (state.empty()) return "does not run";
  switch (state[0]) {
    case 'R':
      return "runs";
    case 'D':
      return "waits for a disk or a device";
    case 'T':
    case 't':
      return "is stopped";
    case 'F':
      return "is frozen by its cgroup";
    case 'Z':
      return "has ended";
    default:
      return "waits";
  }
}

}  // namespace

JobServer::JobServer(ServedJob job, const std::string& folder, JobDescription description, EventSink events)
    : session_(job.session),
      map_(job.map),
      job_(job),
      commands_(folder),
      consoles_(session_, map_, commands_),
      description_(std::move(description)),
      events_(std::move(events)) {
  leave_status(folder, status());
}

void JobServer::turn() {
  while (const auto call = commands_.next()) obey(*call);
  consoles_.turn();
  rounds_.turn();
}

void JobServer::ask(const std::vector<int>& ranks, bool native, std::chrono::milliseconds limit, StacksDone done) {
  std::set<int> asked;
  for (const int rank : ranks)
    if (session_.tell(rank, wire::Type::stacks, native ? "native" : "")) asked.insert(rank);
  rounds_.open(std::move(asked), limit, std::move(done));
}

void JobServer::ask(const std::vector<int>& ranks, StacksDone done) {
  ask(ranks, false, python_limit, std::move(done));
}

std::vector<int> JobServer::ended() const {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < session_.ranks().size(); ++r)
    if (session_.ranks()[r].stage >= RankStage::ended) ranks.push_back(static_cast<int>(r));
  return ranks;
}

std::vector<MappedRank> JobServer::shown() const {
  std::vector<MappedRank> ranks = map_.ranks;
  if (job_.elastic)
    std::erase_if(ranks, [this](const MappedRank& p) {
      const RankStage stage = session_.ranks()[static_cast<std::size_t>(p.rank)].stage;
      return stage == RankStage::absent || stage >= RankStage::ended;
    });
  return ranks;
}

void JobServer::obey(const QueryServer::Query& call) {
  if (call.line == "status") return commands_.answer(call.id, status());
  if (call.line == "kill") {
    commands_.answer(call.id, "ok\n");
    return events_(KillWanted{});
  }
  if (call.line == "top" || call.line == "top json")
    return commands_.answer(call.id, job_.reports.top(call.line == "top json"));
  if (call.line == "timeline stop") return commands_.answer(call.id, job_.timeline.stop(session_));
  for (const bool named : {false, true})
    if (const std::string_view start = named ? "timeline start named " : "timeline start usual ";
        call.line.starts_with(start))
      return commands_.answer(call.id, job_.timeline.start(session_, call.line.substr(start.size()), named));
  if (call.line == "operations")
    return job_.operations.ask([this, id = call.id](const wire::JobOperations& operations) {
      std::string text = operations_text(operations, most_operations_shown);
      for (const std::string& line : difference_between(operations).lines) text += line + "\n";
      commands_.answer(id, text);
    });
  if (call.line.starts_with("console ")) return consoles_.open(call.id, to_integer(call.line.substr(8)).value_or(-1));
  if (call.line.starts_with("stack of ")) {
    const auto rank = to_integer(call.line.substr(9));
    if (!rank || *rank < 0 || *rank >= static_cast<long long>(map_.ranks.size())) return commands_.answer(call.id, "");
    return ask({static_cast<int>(*rank)}, [this, id = call.id](const Pictures& pictures) {
      commands_.answer(id, pictures.empty() ? "" : indented(pictures.begin()->second.python, "  "));
    });
  }
  if (call.line != "stacks") return commands_.answer(call.id, "this job does not know that command\n");
  std::vector<int> all;
  for (const MappedRank& p : shown()) all.push_back(p.rank);
  ask(all, true, native_limit,
      [this, id = call.id](const Pictures& pictures) { commands_.answer(id, stacks_text(pictures)); });
}

std::string JobServer::status() const {
  std::vector<int> all, gone = ended();
  std::vector<std::string> hosts;
  if (job_.elastic) {  // many ranks of the map may have ended, or never come
    all = job_.elastic->ranks();
    for (const int rank : all)
      if (const std::string& host = map_.host_of(rank).name; std::ranges::find(hosts, host) == hosts.end())
        hosts.push_back(host);
    std::erase_if(gone, [&](int rank) { return std::ranges::find(all, rank) == all.end(); });
  } else {
    for (const MappedRank& p : map_.ranks) all.push_back(p.rank);
    for (const MappedHost& h : map_.hosts) hosts.push_back(h.name);
  }
  return nlohmann::ordered_json{{"job", description_.id},
                                {"pid", ::getpid()},
                                {"np", all.size()},
                                {"hosts", hosts},
                                {"ended", gone.size()},
                                {"started", description_.started_seconds},
                                {"payload", description_.payload},
                                {"grace", description_.grace_seconds}}
      .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string JobServer::stacks_text(const Pictures& pictures) const {
  std::string out;
  for (const MappedRank& p : shown()) {
    out += "rank " + std::to_string(p.rank) + " on " + map_.host_of(p.rank).name;
    const auto it = pictures.find(p.rank);
    if (it == pictures.end()) {
      out += session_.ranks()[static_cast<std::size_t>(p.rank)].stage >= RankStage::ended ? " has ended\n"
                                                                                          : " gave no answer\n";
      continue;
    }
    const wire::StackPicture& picture = it->second;
    out += std::string(" ") + state_text(picture.state) + "\n";
    if (!picture.python.empty())
      out += indented(picture.python, "  ");
    else if (!picture.state.empty())
      out += "  no Python frames: it has not imported hvd, or is stopped\n";
    if (picture.worker && !picture.worker->python.empty())
      out += "  its DataLoader worker, process id " + std::to_string(picture.worker->pid) + "\n" +
             indented(picture.worker->python, "    ");
    if (!picture.native.empty()) out += indented(picture.native, "  ");
  }
  return out;
}

}  // namespace hvd::launcher
