#include "launcher/control/commands/jobs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/own_file.h"
#include "base/format.h"
#include "base/process/process_handle.h"
#include "base/text.h"
#include "launcher/control/commands/attach.h"
#include "launcher/control/commands/job_folder.h"
#include "launcher/control/commands/query_server.h"

namespace hvd::launcher {

namespace {

using namespace std::chrono_literals;
using Json = nlohmann::ordered_json;

constexpr const char* status_name = "/status.json";
constexpr std::size_t most_status_bytes = 4u << 20;
constexpr auto stacks_limit = 17s;  // the job waits 12 s for its ranks
constexpr auto top_limit = 5s, top_every = 2s;
constexpr double after_grace_seconds = 5;  // hvdrun's time to end, after its ranks' end

const std::map<std::string, std::string> usages{
    {"ps",
     "Usage: hvdrun ps [--json]\n"
     "Lists your jobs on this host: their names, hvdrun's process ids, ranks, times, states and hosts.\n"
     "A job runs, is stopped (by SIGSTOP: kill -CONT PID lets it go on), or is silent: it gave no answer in 2 s.\n"
     "\n"
     "  --json  as a JSON array\n"},
    {"stacks",
     "Usage: hvdrun stacks [JOB] [--ops]\n"
     "Prints where each rank is: Python and native frames of its threads.  JOB is the beginning of a name that hvdrun\n"
     "ps shows, or hvdrun's process id; it may be left out where only one job runs.\n"
     "\n"
     "  --ops  its last operations instead, those under way, and the first that differs between ranks\n"},
    {"top",
     "Usage: hvdrun top [JOB] [--once] [--json]\n"
     "Shows what a job's steps spend their time on, over the last half minute: every two seconds, until the job ends.\n"
     "\n"
     "  --once  one time only, as where the output is no terminal\n"
     "  --json  the same, as JSON\n"},
    {"timeline",
     "Usage: hvdrun timeline [JOB] start [FILE]\n"
     "       hvdrun timeline [JOB] stop\n"
     "Records a timeline of a running job, from each rank's next step until stop.  FILE is a timeline for Perfetto\n"
     "(.pftrace) or Chrome (.json).  Without FILE it is hvdrun-JOB.pftrace.  A job has one such file; a second\n"
     "recording is added to it.  JOB is the beginning of a name that hvdrun ps shows, or hvdrun's process id.  JOB "
     "may\n"
     "be left out if only one job runs.\n"},
    {"attach",
     "Usage: hvdrun attach [JOB] RANK\n"
     "Opens Python's debugger in the main thread of a rank, on any host, at the line that the thread runs.  The rank\n"
     "waits at the prompt, and the other ranks wait for it.  It goes on after quit, Ctrl-D, or the end of this "
     "hvdrun.\n"
     "JOB is the beginning of a name that hvdrun ps shows, or hvdrun's process id.  JOB may be left out if only one "
     "job\n"
     "runs.\n"},
    {"kill",
     "Usage: hvdrun kill JOB\n"
     "Sends SIGTERM to the job's hvdrun.  If that hvdrun is stopped or does not answer, kills the job after the grace\n"
     "period.\n"
     "JOB is the beginning of a name that hvdrun ps shows, or hvdrun's process id.\n"},
};

struct JobMatch {
  RunningJob job;
  Json status;

  std::string name() const { return status.value("job", ""); }
};

std::vector<JobMatch> find_jobs() {
  std::vector<JobMatch> found;
  for (RunningJob& job : running_jobs()) {
    Json status = Json::parse(job.status, nullptr, false);
    if (status.is_object() && status.contains("job")) found.push_back({std::move(job), std::move(status)});
  }
  std::sort(found.begin(), found.end(),
            [](const JobMatch& a, const JobMatch& b) { return a.status["started"] < b.status["started"]; });
  return found;
}

int list_as_json(const std::vector<JobMatch>& jobs) {
  Json all = Json::array();
  for (const JobMatch& f : jobs) {
    Json one = f.status;
    one["state"] = f.job.state;
    if (f.job.state != "runs") one["ended"] = nullptr;  // not known
    all.push_back(std::move(one));
  }
  return std::puts(all.dump(2).c_str()) < 0;
}

int list_jobs() {
  const std::vector<JobMatch> jobs = find_jobs();
  if (jobs.empty()) return std::puts("no job of yours runs here") < 0;
  std::printf("%-8s  %8s  %5s  %8s  %-7s  %-20s  %s\n", "JOB", "PID", "RANKS", "TIME", "STATE", "HOSTS", "RUNS");
  for (const JobMatch& f : jobs) {
    const double since = static_cast<double>(std::time(nullptr)) - f.status.value("started", 0.0);
    const auto seconds = std::max(0L, static_cast<long>(since));  // the clock may have been set back
    const std::string time = formatted("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    std::vector<std::string> hosts;
    for (const Json& h : f.status["hosts"]) hosts.push_back(h.get<std::string>());
    if (hosts.size() > 3) hosts = {hosts[0], hosts[1], formatted("and {} more", hosts.size() - 2)};
    std::printf("%-8s  %8d  %5d  %8s  %-7s  %-20s  %s\n", f.name().c_str(), f.status.value("pid", 0),
                f.status.value("np", 0), time.c_str(), f.job.state.c_str(), printable(join(hosts, ",")).c_str(),
                printable(f.status.value("payload", "")).c_str());
  }
  return 0;
}

/// Finds a job by its name, the beginning of its name, or hvdrun's process id.  Without a name: the only job.
JobMatch choose(const std::string& name) {
  std::vector<JobMatch> jobs = find_jobs(), fitting;
  for (JobMatch& f : jobs)
    if (name.empty() || f.name().starts_with(name) || std::to_string(f.status.value("pid", 0)) == name)
      fitting.push_back(std::move(f));
  if (fitting.size() == 1) return std::move(fitting[0]);
  if (fitting.empty())
    throw Error(Code::usage, name, name.empty() ? "no job of yours runs here" : "no such job of yours runs here",
                "hvdrun ps lists your jobs; set TMPDIR as it was set for the job's hvdrun");
  throw Error(Code::usage, name, formatted("{} jobs run here", fitting.size()), "name one: hvdrun ps lists them");
}

void refuse_stopped(const JobMatch& found) {
  if (found.job.state == "stopped")
    throw Error(Code::unavailable, found.name(), "is stopped and cannot answer",
                formatted("kill -CONT {} lets it go on", found.job.owner.pid));
}

int print_stacks(const JobMatch& found, bool operations) {
  refuse_stopped(found);
  return std::fputs(ask_job(found.job.folder, operations ? "operations" : "stacks", stacks_limit).c_str(), stdout) < 0;
}

int attach(const JobMatch& found, const std::string& rank) {
  refuse_stopped(found);
  const auto number = to_integer(rank);
  if (!number || *number < 0) throw Error(Code::usage, rank, "is no rank", "hvdrun attach --help");
  if (!is_in_this_namespace(found.job.owner))
    throw Error(Code::unavailable, found.name(), "runs in another container", "attach from there");
  return attach_to_rank(found.job.folder, *number);
}

struct TopOptions {
  bool once = false, json = false;
};

int show_top(const JobMatch& found, TopOptions options) {
  refuse_stopped(found);
  const bool screen = !options.once && !options.json && ::isatty(STDOUT_FILENO);
  for (;;) {
    std::string text;
    try {
      text = ask_job(found.job.folder, options.json ? "top json" : "top", top_limit);
    } catch (const Error&) {
      if (!screen || !is_gone(found.job.owner)) throw;
      return std::printf("job %s has ended\n", found.name().c_str()) < 0;
    }
    if (screen) std::fputs("\033[H\033[J", stdout);  // cursor to the top left, and clear the screen
    if (screen) std::printf("job %s, %s\n", found.name().c_str(), printable(found.status.value("payload", "")).c_str());
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) return 1;
    if (!screen) return 0;
    ::poll(nullptr, 0, static_cast<int>(std::chrono::milliseconds(top_every).count()));
  }
}

/// @p words  start [FILE], or stop
int record_timeline(const JobMatch& found, const std::vector<std::string>& words) {
  refuse_stopped(found);
  std::string question = "timeline stop";
  if (words[0] == "start") {
    const std::string path = words.size() > 1 ? words[1] : "hvdrun-" + found.name() + ".pftrace";
    if (path.empty() || path.find('\n') != path.npos)
      throw Error(Code::usage, "timeline", "\"" + printable(path) + "\" is no name for a file");
    question = (words.size() > 1 ? "timeline start named " : "timeline start usual ") +
               std::filesystem::absolute(path).lexically_normal().string();
  }
  const std::string answer = ask_job(found.job.folder, question, top_limit);
  if (answer.starts_with('!')) throw Error(Code::unavailable, "timeline", std::string(trim(answer.substr(1))));
  return std::fputs(answer.c_str(), stdout) < 0;
}

/// Ends a job that does not answer: by signals to its hvdrun, SIGKILL last.
int kill_by_signal(const JobMatch& found) {
  if (!is_in_this_namespace(found.job.owner))
    throw Error(Code::unavailable, found.name(), "does not answer", "it runs in another container: end it from there");
  const ProcessHandle owner(found.job.owner);
  if (owner.has_ended()) return 0;
  owner.signal(SIGTERM);
  owner.signal(SIGCONT);
  const double grace = found.status.value("grace", 5.0) + after_grace_seconds;
  if (owner.ends_within(std::chrono::milliseconds(static_cast<long long>(grace * 1000)))) return 0;
  std::fprintf(stderr, "hvdrun: job %s did not end within %.0f s; its hvdrun is killed, and its guards end the ranks\n",
               found.name().c_str(), grace);
  owner.signal(SIGKILL);
  return owner.ends_within(10s) ? 0 : static_cast<int>(Code::timeout);
}

int kill_job(const JobMatch& found) {
  if (std::printf("ending job %s\n", found.name().c_str()) < 0) return 1;
  std::fflush(stdout);
  if (found.job.state != "runs") return kill_by_signal(found);
  try {
    ask_job(found.job.folder, "kill", stacks_limit);
  } catch (const Error&) { return kill_by_signal(found); }  // the job does not answer any more
  return 0;
}

}  // namespace

void leave_status(const std::string& folder, const std::string& status) {
  const Fd file = open_own_file(folder + status_name, WriteMode::truncate, 0600);
  if (!write_all(file.get(), status))
    throw Error(Code::unavailable, folder, "cannot be written to: " + errno_text(errno));
}

std::vector<RunningJob> running_jobs() {
  std::vector<RunningJob> jobs;
  for (const LivingFolder& folder : folders_of_jobs()) {
    RunningJob job{folder.path, folder.owner, "silent", ""};
    try {
      job.status = read_file(folder.path + status_name, most_status_bytes);
    } catch (const Error&) { continue; }  // the job is just starting
    const char state = is_in_this_namespace(folder.owner) ? process_state(static_cast<pid_t>(folder.owner.pid)) : 0;
    try {
      if (state == 'T' || state == 't')
        job.state = "stopped";
      else
        job.status = ask_job(folder.path, "status", 2000ms), job.state = "runs";
    } catch (const Error&) {
      if (is_gone(folder.owner)) continue;
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

int job_command(const std::vector<std::string>& words) {
  const std::string& command = words[0];
  TopOptions options;
  bool operations = false;
  std::string name, rank;
  std::vector<std::string> timeline;  ///< start [FILE], or stop
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "--help" || words[i] == "-h") return std::fputs(usages.at(command).c_str(), stdout) < 0;
    const std::string hint =
        formatted("hvdrun {} --help; to run a program of that name: hvdrun -- {}", command, command);
    if ((command == "ps" || command == "top") && words[i] == "--json")
      options.json = true;
    else if (command == "stacks" && words[i] == "--ops")
      operations = true;
    else if (command == "top" && words[i] == "--once")
      options.once = true;
    else if (words[i].starts_with('-'))
      throw Error(Code::usage, words[i], "hvdrun " + command + " has no such option", hint);
    else if (command == "timeline" && timeline.empty() && (words[i] == "start" || words[i] == "stop"))
      timeline = {words[i]};
    else if (timeline.size() == 1 && timeline[0] == "start")
      timeline.push_back(words[i]);
    else if (command == "attach" && !name.empty() && rank.empty())
      rank = words[i];
    else if (command == "ps" || !name.empty() || !timeline.empty())
      throw Error(Code::usage, command, "too many arguments", hint);
    else
      name = words[i];
  }
  if (command == "ps") return options.json ? list_as_json(find_jobs()) : list_jobs();
  if (command == "timeline" && timeline.empty())
    throw Error(Code::usage, command, "start or stop?", "hvdrun timeline --help");
  if (command == "attach") {
    if (name.empty()) throw Error(Code::usage, command, "to which rank?", "hvdrun attach --help");
    return rank.empty() ? attach(choose(""), name) : attach(choose(name), rank);
  }
  const JobMatch found = choose(name);
  if (command == "kill" && name.empty())  // kill needs a name, even where there is only one job
    throw Error(Code::usage, command, "which job?",
                formatted("hvdrun kill {} ends {}", found.name(), printable(found.status.value("payload", ""))));
  if (command == "timeline") return record_timeline(found, timeline);
  if (command == "top") return show_top(found, options);
  return command == "kill" ? kill_job(found) : print_stacks(found, operations);
}

}  // namespace hvd::launcher
