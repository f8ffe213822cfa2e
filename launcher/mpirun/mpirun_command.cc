#include "launcher/mpirun/mpirun_command.h"

#include <unistd.h>

#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

using Words = std::vector<std::string>;

void append(Words& to, const Words& more) { to.insert(to.end(), more.begin(), more.end()); }

/// Wherever -H names its own machine, Open MPI 4 fills the slots of that machine first.  Open MPI's sequential mapper
/// keeps the order of hosts, and needs one host name for each rank.
bool needs_sequence(Flavour flavour, const JobMap& map) {
  if (flavour != Flavour::openmpi4) return false;
  for (std::size_t h = 1; h < map.hosts.size(); ++h)
    if (map.hosts[h].local) return true;
  return false;
}

std::string host_list(const JobMap& map, bool sequence) {
  Words hosts;
  if (sequence) {
    for (const MappedRank& p : map.ranks) hosts.push_back(map.host_of(p.rank).name);
    return join(hosts, ",");
  }
  for (const MappedHost& h : map.hosts) hosts.push_back(formatted("{}:{}", h.name, h.ranks));
  return join(hosts, ",");
}

/// mpirun neither checks slots nor binds ranks: hvdrun has checked the slots, and each rank binds itself.
Words mapping(Flavour flavour, bool sequence) {
  if (flavour == Flavour::openmpi4)
    return {"--bind-to", "none", "--map-by", sequence ? "seq" : "slot", "--oversubscribe"};
  return {"--bind-to", "none", "--map-by", "slot:OVERSUBSCRIBE"};
}

/// Options that make hvdrun the agent of mpirun: hvdrun starts mpirun's daemons, one by one.  Each daemon stays a child
/// of its ssh.
Words remote(Flavour flavour, const std::string& agent) {
  if (flavour == Flavour::openmpi4)
    return {"--mca",
            "plm",
            "rsh",
            "--mca",
            "plm_rsh_agent",
            agent,
            "--mca",
            "plm_rsh_no_tree_spawn",
            "1",
            "--mca",
            "orte_leave_session_attached",
            "1"};
  return {"--prtemca",
          "plm",
          "ssh",
          "--prtemca",
          "plm_ssh_agent",
          agent,
          "--prtemca",
          "plm_ssh_no_tree_spawn",
          "1",
          "--leave-session-attached"};
}

Words network_arguments(const Mpirun& mpirun, const MpirunOptions& options) {
  Words out;
  const bool four = mpirun.flavour == Flavour::openmpi4;
  if (options.tcp) append(out, {"--mca", "pml", "ob1", "--mca", "btl", four ? "tcp,self,vader" : "tcp,self,sm"});
  if (!options.interfaces.empty()) {
    append(out, {four ? "--mca" : "--prtemca", four ? "oob_tcp_if_include" : "prte_if_include", options.interfaces});
    append(out, {"--mca", "btl_tcp_if_include", options.interfaces});
  }
  return out;
}

}  // namespace

MpirunOptions mpirun_options(const Settings& settings, const std::string& own_program,
                             const std::string& rank_program) {
  MpirunOptions options;
  options.as_root = ::geteuid() == 0;
  options.tcp = settings.flag("tcp");
  options.interfaces = settings.text("network-interfaces");
  options.extra = shell_words(settings.text("mpi-args"), "--mpi-args");
  options.binding = shell_words(settings.text("binding-args"), "--binding-args");
  options.agent = {own_program, "--remote-agent"};  // words for plm_rsh_agent, which mpirun splits at blanks and colons
  options.rank_program = rank_program;
  return options;
}

std::vector<std::string> mpirun_command(const Mpirun& mpirun, const JobMap& map, const MpirunOptions& options) {
  const bool sequence = options.binding.empty() && needs_sequence(mpirun.flavour, map);
  Words command{mpirun.program};
  if (options.as_root) command.push_back("--allow-run-as-root");
  append(command, {"-np", std::to_string(map.ranks.size()), "-H", host_list(map, sequence)});
  append(command, options.binding.empty() ? mapping(mpirun.flavour, sequence) : options.binding);
  if (!map.all_local()) {
    append(command, remote(mpirun.flavour, join(options.agent, " ")));
    for (const char* name : {"HVD_CONTROL", "HVD_SERVER_KEY", "HVD_JOB"}) append(command, {"-x", name});
  }
  append(command, network_arguments(mpirun, options));
  append(command, options.extra);
  command.push_back(options.rank_program);
  return command;
}

}  // namespace hvd::launcher
