#include "launcher/doctor/doctor.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/files/trust.h"
#include "base/format.h"
#include "base/text.h"
#include "launcher/doctor/as_json.h"
#include "launcher/doctor/checkup.h"
#include "launcher/doctor/gpus.h"
#include "launcher/job/job.h"
#include "launcher/remote/ask_hosts.h"
#include "launcher/remote/preflight.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t most_peers_tried = 64;  // by each host
constexpr std::size_t most_source_bytes = 1u << 20;

double wall() {
  timespec t{};
  ::clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

/// Listens on @p ip, any port.  The kernel's queue takes the callers; no connection is accepted.
Fd listen_at(const std::string& ip, std::string* address) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(ip.c_str(), "0", &hints, &found) != 0) return {};
  Fd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  const bool good = fd && ::bind(fd.get(), found->ai_addr, found->ai_addrlen) == 0 && ::listen(fd.get(), 128) == 0 &&
                    ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0;
  ::freeaddrinfo(found);
  if (!good) return {};
  const int port = ntohs(reinterpret_cast<sockaddr_in*>(&own)->sin_port);  // sockaddr_in6 has it at the same place
  *address = formatted("{}:{}", ip.find(':') == std::string::npos ? ip : "[" + ip + "]", port);
  return fd;
}

Answers look_at_host(const MappedHost& host, const Job& job, const std::string& script) {
  Answers answers;
  answers.host = host.name;
  answers.local = host.local;
  for (const ResolvedHost& resolved : job.hosts)
    if (resolved.host == host.name && !resolved.unknown.empty()) {
      answers.unreachable = "unknown host: " + resolved.unknown;
      answers.hint = "check the spelling, or try: getent hosts " + host.name;
      return answers;
    }
  const double before = wall();
  const CaptureResult done = ask(host, job, script);
  const double after = wall();
  if (done.ok() && read_answers(done.out, answers)) {
    const double theirs = to_number(answers.values["clock"]).value_or((before + after) / 2);
    answers.clock_skew_seconds = theirs - (before + after) / 2;
    answers.clock_error_seconds = (after - before) / 2 + 0.1;
    return answers;
  }
  const Error error = no_answer(host, done);
  answers.unreachable = error.what();
  answers.hint = error.hint;
  return answers;
}

Questions questions_for(Job& job, const CommandLine& line, const Environment& environment) {
  const bool by_anybody = job.settings.flag("allow-writable");
  find_programs(job, line.prefix != PayloadPrefix::dashes, true, environment);
  Questions q;
  q.rank_program = job.rank_program;
  q.mpirun = job.mpirun.program;
  q.python = job.python;
  if (!by_anybody)
    q.before = trust_script({q.rank_program, launcher_beside(q.rank_program), q.mpirun, q.python}, job.software_owners);
  q.cwd = job.cwd;
  for (const MappedHost& h : job.map.hosts)
    if (!h.local && q.peers.size() < most_peers_tried) q.peers.push_back(h.name);
  if (const char* folders = environment("PYTHONPATH")) q.python_path = folders;
  if (line.prefix == PayloadPrefix::module && !line.payload.empty())
    q.modules = {split(line.payload[0], '.')[0]};
  else if (!line.payload.empty() && line.payload[0].ends_with(".py")) {
    q.modules = imports_of(read_trusted(line.payload[0], most_source_bytes, by_anybody));
    const std::string folder = std::filesystem::path(line.payload[0]).parent_path().string();
    if (!folder.empty()) q.script_folder = folder;
  }
  // Ours are looked at by themselves.
  std::erase_if(q.modules, [](const std::string& m) { return m == "hvd" || m == "horovod"; });
  return q;
}

}  // namespace

int doctor(CommandLine line, const Environment& environment) {
  Job job;
  job.settings = line.settings;
  place_ranks(job, environment);
  job.cwd = current_folder();
  Questions questions = questions_for(job, line, environment);
  std::vector<Fd> listeners;
  for (const std::string& ip : job.reach_us) {
    std::string address;
    listeners.push_back(listen_at(ip, &address));
    if (!address.empty()) questions.addresses.push_back(address);
  }
  const std::string script = checkup_script(questions);
  std::vector<Answers> all(job.map.hosts.size());
  for_each_host(job, [&](std::size_t i) { all[i] = look_at_host(job.map.hosts[i], job, script); });

  const std::vector<Problem> problems = find_problems(all, questions);
  const bool fatal = std::any_of(problems.begin(), problems.end(), [](const Problem& p) { return p.fatal; });
  const int code = fatal ? static_cast<int>(Code::unavailable) : 0;
  if (job.settings.flag("json")) {
    std::fputs(doctor_json(all, problems, job.reach_us).c_str(), stdout);
    return code;
  }
  std::fputs(printable_lines(matrix(all, questions)).c_str(), stdout);
  std::fputs(printable_lines(gpu_lines(all)).c_str(), stdout);
  const bool reached =
      std::any_of(all.begin(), all.end(), [](const Answers& a) { return !a.local && a.unreachable.empty(); });
  if (reached && !job.reach_us.empty())
    std::printf("hosts reach this one at %s: the address that the route to them uses%s\n",
                join(job.reach_us, ", ").c_str(),
                job.settings.has("network-interfaces") ? "; MPI keeps to --network-interfaces" : "");
  std::fputs(problem_lines(problems).c_str(), stdout);
  if (!fatal && reached)
    std::puts("to measure the network between them: hvdrun with the same options, and -m hvd.network");
  if (!fatal) std::puts("nothing stands in the way of a job");
  return code;
}

}  // namespace hvd::launcher
