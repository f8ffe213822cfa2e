#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/text.h"
#include "launcher/job/job.h"

namespace hvd::launcher {

namespace {

std::string quoted(const std::vector<std::string>& command) {
  std::vector<std::string> out;
  for (const std::string& w : command) out.push_back(shell_quote(w));
  return join(out, " ");
}

const char* kind_name(wire::PayloadKind kind) {
  switch (kind) {
    case wire::PayloadKind::pickle:
      return "pickle";
    case wire::PayloadKind::script:
      return "script";
    case wire::PayloadKind::module:
      return "module";
    case wire::PayloadKind::command:
      return "command";
  }
  return "";
}

std::string cores_text(const Job& job, const MappedRank& place) {
  if (!place.share) return "its share";
  const std::string cores = place.share->cpus.empty() || !job.settings.flag("bind") ? "any" : ranges(place.share->cpus);
  return place.share->gpu ? cores + ", GPU " + std::to_string(place.share->gpu->index) : cores;
}

std::string payload_text(const Job& job, const wire::Payload& payload) {
  std::vector<std::string> words;
  if (payload.kind != wire::PayloadKind::command) words.push_back(job.python);
  if (payload.kind == wire::PayloadKind::module) words.emplace_back("-m");
  words.push_back(payload.name);
  words.insert(words.end(), payload.args.begin(), payload.args.end());
  return std::string("(") + kind_name(payload.kind) + ")\n  " + quoted(words) + "\n";
}

nlohmann::ordered_json payload_json(const Job& job, const wire::Payload& payload) {
  const bool by_python = payload.kind != wire::PayloadKind::command;
  return {{"kind", kind_name(payload.kind)},
          {"name", payload.name},
          {"args", payload.args},
          {"python", by_python ? job.python : ""}};
}

}  // namespace

std::string dry_run_text(const Job& job) {
  std::size_t width = 4;
  for (const MappedHost& h : job.map.hosts) width = std::max(width, h.name.size());
  std::string out = count_of(static_cast<long long>(job.map.ranks.size()), "rank") + " on " +
                    count_of(static_cast<long long>(job.map.hosts.size()), "host") + ", from " + job.map.source + ": " +
                    job.why + "\n";
  char line[512];
  std::snprintf(line, sizeof line, "%6s  %-*s  %9s  %9s  %s\n", "rank", static_cast<int>(width), "host", "local",
                "cross", "cores");
  out += line;
  for (const MappedRank& p : job.map.ranks) {
    const std::string local = std::to_string(p.local_rank) + "/" + std::to_string(p.local_size);
    const std::string cross = std::to_string(p.cross_rank) + "/" + std::to_string(p.cross_size);
    std::snprintf(line, sizeof line, "%6d  %-*.200s  %9s  %9s  ", p.rank, static_cast<int>(width),
                  job.map.host_of(p.rank).name.c_str(), local.c_str(), cross.c_str());
    out += line + cores_text(job, p) + "\n";
  }
  if (job.programs.empty()) out += "runs  " + payload_text(job, job.payload.wire);
  for (const Program& p : job.programs) {
    std::vector<int> ranks(static_cast<std::size_t>(p.ranks));
    std::iota(ranks.begin(), ranks.end(), p.first_rank);
    out += ranks_text(ranks, "runs  " + payload_text(job, p.payload));
  }
  const bool daemons = job.launcher.kind == LauncherKind::daemons;
  const std::string mpi = job.mpirun.program.empty()                ? "no Open MPI"
                          : job.mpirun.flavour == Flavour::openmpi4 ? "Open MPI 4"
                                                                    : "Open MPI 5";
  out += std::string(daemons ? "host daemon" : "mpirun") + "  (" + mpi + "; " + job.launcher.why + ")\n  ";
  return out + quoted(job.command) + "\n";
}

std::string dry_run_json(const Job& job) {
  using nlohmann::ordered_json;
  ordered_json hosts = ordered_json::array(), ranks = ordered_json::array();
  for (const MappedHost& h : job.map.hosts) hosts.push_back({{"host", h.name}, {"local", h.local}, {"ranks", h.ranks}});
  for (const MappedRank& p : job.map.ranks)
    ranks.push_back({{"rank", p.rank},
                     {"host", job.map.host_of(p.rank).name},
                     {"local_rank", p.local_rank},
                     {"local_size", p.local_size},
                     {"cross_rank", p.cross_rank},
                     {"cross_size", p.cross_size},
                     {"cpus", p.share ? p.share->cpus : std::vector<int>{}},
                     {"gpu", p.share && p.share->gpu ? p.share->gpu->pci : ""}});
  const bool daemons = job.launcher.kind == LauncherKind::daemons;
  ordered_json document = {
      {"np", job.map.ranks.size()},
      {"source", job.map.source},
      {"why", job.why},
      {"launch_agent", job.launch_agent},
      {"hosts", hosts},
      {"ranks", ranks},
      {"payload", payload_json(job, job.payload.wire)},
      {"mpirun",
       {{"open_mpi", job.mpirun.program.empty()                ? 0
                     : job.mpirun.flavour == Flavour::openmpi4 ? 4
                                                               : 5},
        {"command", daemons ? std::vector<std::string>{} : job.command}}},
      {"launcher", {{"name", daemons ? "hvdrun" : "mpirun"}, {"why", job.launcher.why}, {"command", job.command}}},
      {"rank_variables", job.settings.rank_variables()}};
  for (const Program& p : job.programs) {
    ordered_json program = payload_json(job, p.payload);
    program["first_rank"] = p.first_rank, program["ranks"] = p.ranks;
    document["programs"].push_back(std::move(program));
  }
  return document.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace hvd::launcher
