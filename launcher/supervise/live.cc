#include "launcher/supervise/live.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

using namespace std::chrono_literals;

constexpr auto python_limit = 3000ms;      // a guard gives up after 1.5 s
constexpr auto native_limit = 12000ms;     // and after 8 s more
constexpr auto time_for_the_runtime = 2s;  // to tell of a stopped rank, with who waits for what
constexpr std::size_t most_told = 1000;

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
    case 'Z':
      return "has ended";
    default:
      return "waits";
  }
}

}  // namespace

Live::Live(Session& session, const Plan& plan, const std::string& folder, JobCard card, Hands hands)
    : session_(session), plan_(plan), commands_(folder), card_(std::move(card)), hands_(std::move(hands)) {}

void Live::turn() {
  while (const auto call = commands_.next()) obey(*call);
  tell_of_paused();
  for (std::size_t i = 0; i < rounds_.size();) {
    if (!rounds_[i].open.empty() && Clock::now() < rounds_[i].limit) {
      ++i;
      continue;
    }
    const Round round = std::move(rounds_[i]);
    rounds_.erase(rounds_.begin() + static_cast<std::ptrdiff_t>(i));
    round.done(round.pictures);
  }
}

void Live::stack(int rank, const wire::StackPicture& picture) {
  for (Round& round : rounds_)
    if (round.open.erase(rank)) round.pictures[rank] = picture;
}

void Live::ask(const std::vector<int>& ranks, bool native, std::chrono::milliseconds limit,
               std::function<void(const Pictures&)> done) {
  Round round{{}, {}, Clock::now() + limit, std::move(done)};
  for (const int rank : ranks)
    if (session_.ask_stack(rank, native)) round.open.insert(rank);
  rounds_.push_back(std::move(round));
}

void Live::paused(int rank, bool paused) {
  paused_.erase(rank);
  if (paused && !all_paused_ && card_.hang_seconds > 0) paused_[rank] = Clock::now();
}

void Live::all_paused(bool paused) {
  all_paused_ = paused;
  paused_.clear();
}

void Live::tell_of_paused() {
  const auto patience = std::chrono::duration<double>(card_.hang_seconds) + time_for_the_runtime;
  for (auto it = paused_.begin(); it != paused_.end();) {
    const auto since = Clock::now() - it->second;
    if (since < patience) {
      ++it;
      continue;
    }
    const int rank = it->first;
    it = paused_.erase(it);
    if (session_.ranks()[static_cast<std::size_t>(rank)].stage >= Stage::ended) continue;
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.0f s", std::chrono::duration<double>(since).count());
    hands_.say("hvdrun: rank " + std::to_string(rank) + " on " + plan_.host_of(rank).name +
               " is stopped (kill -CONT lets it go on); it has not run for " + seconds);
  }
}

std::vector<int> Live::ended() const {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < session_.ranks().size(); ++r)
    if (session_.ranks()[r].stage >= Stage::ended) ranks.push_back(static_cast<int>(r));
  return ranks;
}

void Live::stall(std::string_view body) {
  Stall stall;
  try {
    stall = stall_from_json(std::string(body), static_cast<int>(plan_.ranks.size()));
  } catch (const Error&) { return; }  // from the rank itself, which may send anything
  if (stall.missing.empty() || told_.size() > most_told || !told_.insert(stall.tensor).second) return;
  for (const int rank : stall.missing) paused_.erase(rank);  // told here
  ask(stall.missing, false, python_limit, [this, stall](const Pictures& pictures) {
    for (const std::string& line : hang_lines(stall, plan_, pictures, ended())) hands_.say(line);
  });
}

void Live::obey(const CommandServer::Call& call) {
  if (call.line == "status") return commands_.answer(call.id, status());
  if (call.line == "kill") {
    commands_.answer(call.id, "ok\n");
    return hands_.kill();
  }
  if (call.line != "stacks") return commands_.answer(call.id, "this job does not know that command\n");
  std::vector<int> all;
  for (const RankPlace& p : plan_.ranks) all.push_back(p.rank);
  ask(all, true, native_limit,
      [this, id = call.id](const Pictures& pictures) { commands_.answer(id, stacks_text(pictures)); });
}

std::string Live::status() const {
  nlohmann::ordered_json hosts = nlohmann::ordered_json::array();
  for (const PlanHost& h : plan_.hosts) hosts.push_back(h.name);
  return nlohmann::ordered_json{{"job", card_.id},          {"pid", ::getpid()},
                                {"np", plan_.ranks.size()}, {"hosts", hosts},
                                {"ended", ended().size()},  {"started", card_.started_seconds},
                                {"payload", card_.payload}}
      .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string Live::stacks_text(const Pictures& pictures) const {
  std::string out;
  for (const RankPlace& p : plan_.ranks) {
    out += "rank " + std::to_string(p.rank) + " on " + plan_.host_of(p.rank).name;
    const auto it = pictures.find(p.rank);
    if (it == pictures.end()) {
      out += session_.ranks()[static_cast<std::size_t>(p.rank)].stage >= Stage::ended ? " has ended\n"
                                                                                      : " gave no answer\n";
      continue;
    }
    const wire::StackPicture& picture = it->second;
    out += std::string(" ") + state_text(picture.state) + "\n";
    if (!picture.python.empty())
      out += indented(picture.python, "  ");
    else if (!picture.state.empty())
      out += "  no Python frames: it has not imported hvd, or is stopped\n";
    if (!picture.native.empty()) out += indented(picture.native, "  ");
  }
  return out;
}

// ---- the other side ----

namespace {

using Json = nlohmann::ordered_json;

struct Found {
  std::string folder;
  Json status;
};

std::vector<Found> find_jobs() {
  std::vector<Found> found;
  for (RunningJob& job : running_jobs()) {
    Json status = Json::parse(job.status, nullptr, false);
    if (status.is_object() && status.contains("job")) found.push_back({job.folder, std::move(status)});
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.status["started"] < b.status["started"]; });
  return found;
}

int list_jobs() {
  const std::vector<Found> jobs = find_jobs();
  if (jobs.empty()) return std::puts("no job of yours runs here") < 0;
  std::printf("%-8s  %8s  %5s  %8s  %-20s  %s\n", "JOB", "PID", "RANKS", "TIME", "HOSTS", "RUNS");
  for (const Found& f : jobs) {
    const auto seconds = static_cast<long>(static_cast<double>(std::time(nullptr)) - f.status.value("started", 0.0));
    char time[32];
    std::snprintf(time, sizeof time, "%ld:%02ld:%02ld", seconds / 3600, seconds / 60 % 60, seconds % 60);
    std::vector<std::string> hosts;
    for (const Json& h : f.status["hosts"]) hosts.push_back(h.get<std::string>());
    if (hosts.size() > 3) hosts = {hosts[0], hosts[1], "and " + std::to_string(hosts.size() - 2) + " more"};
    std::printf("%-8s  %8d  %5d  %8s  %-20s  %s\n", f.status.value("job", "").c_str(), f.status.value("pid", 0),
                f.status.value("np", 0), time, printable(join(hosts, ",")).c_str(),
                printable(f.status.value("payload", "")).c_str());
  }
  return 0;
}

/// By the (beginning of the) job's name or by hvdrun's process id; the only job when none is named.
Found choose(const std::string& name) {
  std::vector<Found> jobs = find_jobs(), fitting;
  for (Found& f : jobs)
    if (name.empty() || f.status.value("job", "").starts_with(name) || std::to_string(f.status.value("pid", 0)) == name)
      fitting.push_back(std::move(f));
  if (fitting.size() == 1) return std::move(fitting[0]);
  if (fitting.empty())
    throw Error(Code::usage, name, name.empty() ? "no job of yours runs here" : "no such job of yours runs here",
                "hvdrun ps lists them; a job that another TMPDIR was set for is found with that");
  throw Error(Code::usage, name, std::to_string(fitting.size()) + " jobs run here", "name one: hvdrun ps lists them");
}

}  // namespace

int live_command(const std::vector<std::string>& words) {
  if (words.size() > 2 || (words[0] == "ps" && words.size() > 1))
    throw Error(Code::usage, words[0], "too many arguments", "to run a program of that name: hvdrun -- " + words[0]);
  if (words[0] == "ps") return list_jobs();
  const Found job = choose(words.size() > 1 ? words[1] : "");
  const std::string answer = ask_job(job.folder, words[0], native_limit + 5s);
  if (words[0] == "kill") return std::printf("ending job %s\n", job.status.value("job", "").c_str()) < 0;
  return std::fputs(answer.c_str(), stdout) < 0;
}

}  // namespace hvd::launcher
