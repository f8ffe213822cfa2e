#include "launcher/job/job.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/files/trust.h"
#include "base/process/capture.h"
#include "base/text.h"
#include "launcher/hosts/choose_allocation.h"
#include "launcher/hosts/host_manifest.h"
#include "launcher/hosts/parse_hosts.h"
#include "launcher/hosts/resolve.h"
#include "launcher/hosts/resource_manager.h"
#include "launcher/job/elastic_plan.h"
#include "launcher/job/first_hosts.h"
#include "launcher/job/launch_variables.h"
#include "launcher/mapping/topology.h"
#include "launcher/mpirun/mpirun_command.h"
#include "launcher/mpirun/mpirun_environment.h"
#include "launcher/process/find_program.h"
#include "launcher/start/host_daemons.h"
#include "trace/trace_steps.h"

namespace hvd::launcher {

namespace {

namespace fs = std::filesystem;

bool travels(const std::string& name) {
  static constexpr std::string_view kept_back[] = {"OLDPWD",      "_",           "HVD_JOB_KEYS",       "HVD_JOB_DIR",
                                                   "HVD_FOLDER",  "HVD_CONTROL", "HVD_CONTROL_OTHERS", "HVD_SERVER_KEY",
                                                   "HVD_LINK_FD", "HVD_HOST",    own_variables};
  return !name.starts_with("BASH_FUNC_") &&
         std::find(std::begin(kept_back), std::end(kept_back), name) == std::end(kept_back);
}

constexpr std::size_t most_alloc_bytes = 16u << 20;

std::string search_path(const Environment& environment) {
  const char* path = environment("PATH");
  return path ? path : "/usr/local/bin:/usr/bin:/bin";
}

/// @param waits  wait for slots while the job's discovery script names too few
AllocationSources sources(const Settings& settings, const Environment& environment, bool waits) {
  AllocationSources from;
  from.np = settings.integer("num-proc");
  from.by_anybody = settings.flag("allow-writable");
  if (!from.np) from.gpus = static_cast<int>(usable_gpus(environment).size());
  // Each setting may come from a flag, a variable or a config file: the strongest counts.
  std::string chosen;
  const Setting *strongest = nullptr, *rival = nullptr;
  for (const char* id : {"hosts", "hostfile", "manifest", "host-discovery-script"})
    if (const Setting* s = settings.find(id); s && !s->value.empty()) {
      if (strongest && s->source == strongest->source) rival = s;
      if (!strongest || s->source > strongest->source) chosen = id, strongest = s, rival = nullptr;
    }
  if (rival)
    throw Error(Code::usage, rival->where, "names the hosts, and " + strongest->where + " does too",
                "keep one of them");
  if (chosen == "hosts") from.hosts = strongest->value;
  if (chosen == "hostfile") from.hostfile = strongest->value;
  if (chosen == "manifest")
    from.explicitly =
        parse_manifest(read_trusted(strongest->value, most_alloc_bytes, from.by_anybody), strongest->value);
  if (settings.has("listen")) from.least = slots_to_begin(settings);  // the manifest of hosts that have joined
  if (chosen == "host-discovery-script") {
    from.explicitly = first_hosts(settings, environment, waits);
    from.least = slots_to_begin(settings);
  }
  try {
    from.found =
        find_allocation(environment, [](const std::string& path) { return read_file(path, most_alloc_bytes); });
  } catch (const Error&) {
    // The given hosts count, so a broken allocation does no harm.
    if (from.hosts.empty() && from.hostfile.empty() && !from.explicitly) throw;
  }
  return from;
}

}  // namespace

std::string path_of_program(const std::string& program, const Environment& environment) {
  if (program.find('/') != std::string::npos) return fs::absolute(program);
  const std::string found = find_program(program, search_path(environment));
  return found.empty() ? program : found;
}

std::string find_rank_program(const Environment& environment) {
  if (const char* given = environment("HVD_RANK_PROGRAM"); given && *given) return given;
  if (::access("/proc/self/exe", F_OK) != 0)
    throw Error(Code::unavailable, "/proc", "cannot be read: " + errno_text(errno),
                "mount it: mount -t proc proc /proc");
  const std::string folder = own_folder();
  for (const char* candidate : {"/hvdrank", "/../src/rank/hvdrank"}) {  // installed; in the build tree
    std::error_code ignored;
    const fs::path path = fs::weakly_canonical(folder + candidate, ignored);
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  throw Error(Code::unavailable, "hvdrank", "not found beside hvdrun in " + folder,
              "install again, or set HVD_RANK_PROGRAM to its path");
}

std::string current_folder() {
  std::error_code error;
  const std::string folder = fs::current_path(error);
  if (error) throw Error(Code::usage, "the working folder", error.message(), "cd to a folder that exists");
  return folder;
}

void need_trusted_program(Job& job, const std::string& path, const std::string& typed) {
  if (job.settings.flag("allow-writable") || path.find('/') == std::string::npos)
    return;  // a name without a path: the program is on other hosts only
  const bool chosen_by_place = typed.starts_with('/') || typed.find('/') == std::string::npos;
  const PathCheck found = look_at(path, PathUse::file, {::geteuid() != 0 && chosen_by_place, {}});
  found.need_trust(path);
  if (found.software_owner) job.software_owners.push_back(*found.software_owner);
}

std::string own_folder() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? std::string(".") : self.parent_path().string();
}

void place_ranks(Job& job, const Environment& environment) {
  const Settings& settings = job.settings;
  struct stat self {};
  if (::stat("/proc/self/exe", &self) == 0 && self.st_uid != 0 && self.st_uid != ::geteuid())
    job.software_owners.push_back(self.st_uid);
  check_elastic_options(settings);
  const bool is_plan = settings.flag("show-map") || settings.flag("dry-run");
  const AllocationChoice wanted = choose_allocation(sources(settings, environment, !is_plan));
  job.why = wanted.why;
  if (!settings.has("ssh-program")) job.launch_agent = wanted.allocation.launch_agent;
  std::vector<bool> local(wanted.allocation.hosts.size());
  // With --topology, a plan may name hosts that do not exist.
  const bool imagined = settings.has("topology") && is_plan;
  job.hosts = imagined ? std::vector<ResolvedHost>{} : resolve(wanted.allocation);
  const std::vector<ResolvedHost>& hosts = job.hosts;
  if (const std::string& told = wanted.allocation.launcher_address; !told.empty()) job.reach_us.push_back(told);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    local[i] = hosts[i].local;
    if (!hosts[i].local && !hosts[i].reach_us.empty() &&
        std::find(job.reach_us.begin(), job.reach_us.end(), hosts[i].reach_us) == job.reach_us.end())
      job.reach_us.push_back(hosts[i].reach_us);
  }
  job.elastic = elastic_plan(settings, wanted.allocation, wanted.np);
  int np = wanted.np;
  if (job.elastic)  // an elastic job begins with all ranks that it may have
    np = static_cast<int>(
        std::min<long long>(wanted.allocation.total_slots(), job.elastic->limits.world.most.value_or(1 << 20)));
  job.map = map_ranks(wanted.allocation, local, np);
  if (job.elastic) {
    job.elastic->places = places_of(job.map, wanted.allocation, local);
    job.elastic->first = np;
    job.elastic->source = discovery_source(settings, environment);
    job.elastic->limits.hosts_may_change =
        !job.elastic->source.command.empty() || !job.elastic->source.hostfile.empty();
    for (std::size_t i = 0; i < hosts.size(); ++i)
      if (local[i]) job.elastic->here.insert(hosts[i].host);
    job.elastic->may_spread = !job.map.all_local() || settings.has("host-discovery-script");
  }
  if (job.map.all_local() || imagined) return;
  const std::string agent = job.launch_agent.empty() ? shell_words(settings.text("ssh-program"), "--ssh-program").at(0)
                                                     : job.launch_agent.at(0);
  need_trusted_program(job, path_of_program(agent, environment), agent);
  if (const Setting* key = settings.find("ssh-identity-file"); key && !settings.flag("allow-writable"))
    look_at(key->value).need_trust(key->value);
}

void share_out(Job& job, const Environment& environment) {
  const Settings& settings = job.settings;
  job.machines.resize(job.map.hosts.size());
  const std::string file = settings.text("topology");
  if (!file.empty() && !settings.flag("allow-writable")) look_at(file).need_trust(file);
  for (std::size_t h = 0; h < job.map.hosts.size(); ++h) {
    if (!file.empty()) {
      job.machines[h] = machine_in_file(file);
    } else if (job.map.hosts[h].local) {
      placement::Machine here = machine_here(environment);
      if (auto& told = job.machines[h])
        here.ways = std::move(told->ways), here.driver = std::move(told->driver), here.nccl = std::move(told->nccl);
      job.machines[h] = std::move(here);
    }
    if (const auto& gpus = job.map.hosts[h].gpus; !gpus.empty() && job.machines[h])
      job.machines[h]->gpus = placement::visible_gpus(job.machines[h]->gpus, join(gpus, ","));
  }
  share_hosts(job.map, job.machines, *placement::gpu_mode(settings.text("gpus")), settings.flag("share-gpus"));
}

void find_programs(Job& job, bool with_python, bool with_mpirun, const Environment& environment) {
  const Settings& settings = job.settings;
  if (with_python) {
    job.python = choose_python(settings.text("python"), environment, own_folder());
    need_trusted_program(job, job.python, settings.text("python"));
  }
  bool is_trusted = true;
  const auto look = [&](const std::string& path) {
    is_trusted = false;
    need_trusted_program(job, path, settings.text("mpirun"));
    is_trusted = true;
  };
  try {
    job.mpirun = find_mpirun(settings.text("mpirun"), search_path(environment), own_folder(), look);
  } catch (const Error&) {
    if (!is_trusted || with_mpirun) throw;
    job.mpirun = {};
  }
  job.rank_program = find_rank_program(environment);
}

void choose_command(Job& job) {
  const Settings& settings = job.settings;
  LauncherFacts facts;
  facts.wants_mpirun = settings.text("launcher") == "mpirun";
  facts.has_mpirun_arguments = !settings.text("mpi-args").empty() || !settings.text("binding-args").empty();
  if (job.elastic) {
    job.launcher = {LauncherKind::daemons, "an elastic job"};
    std::vector<int> first;
    for (const MappedRank& r : job.map.ranks)
      if (r.host == job.map.ranks[0].host) first.push_back(r.rank);
    job.command = daemon_command(job.rank_program, first, job.mpirun.library_folder, true);
    return;
  }
  job.launcher = choose_launcher(facts);
  if (job.launcher.kind == LauncherKind::mpirun) {
    job.command =
        mpirun_command(job.mpirun, job.map, mpirun_options(settings, own_folder() + "/hvdrun", job.rank_program));
    return;
  }
  std::vector<int> ranks;
  for (const MappedRank& r : job.map.ranks)
    if (r.host == job.map.ranks[0].host) ranks.push_back(r.rank);
  job.command = daemon_command(job.rank_program, ranks, job.mpirun.library_folder);
}

/// False: ranks can run without Open MPI, as they may not use MPI.
static bool needs_mpirun(const Settings& settings) {
  return settings.text("launcher") == "mpirun" || settings.has("mpirun") || !settings.text("mpi-args").empty() ||
         !settings.text("binding-args").empty();
}

/// The kind of each program.
static std::vector<Program> classify_programs(const CommandLine& line, const std::string& folders) {
  const auto payload = [&](PayloadPrefix prefix, const std::vector<std::string>& words) {
    wire::Payload p = classify(prefix, words);
    if (prefix == PayloadPrefix::plain && p.kind == wire::PayloadKind::command && is_python_program(p.name, folders))
      p.kind = wire::PayloadKind::script;
    return p;
  };
  std::vector<Program> programs{{payload(line.prefix, line.payload), 0, line.first_np}};
  for (const ProgramWords& p : line.further)
    programs.push_back({payload(p.prefix, p.payload), programs.back().first_rank + programs.back().ranks, p.np});
  for (const Program& p : programs)
    if (programs.size() > 1 && p.payload.kind == wire::PayloadKind::pickle)
      throw Error(Code::usage, p.payload.name, "a .pkl cannot be one of several programs", "call it from a .py");
  return programs;
}

/// Refuses `python - <<EOF`: ranks do not share hvdrun's standard input, so Python would run an empty program.
static void need_program(const Program& program, int ranks, std::optional<int> reader) {
  if (!wire::is_read_from_input(program.payload) || (ranks == 1 && reader == program.first_rank)) return;
  throw Error(Code::usage, program.payload.name, "would read its program from standard input, which ranks do not share",
              "save the program as a file, or write -c \"...\"");
}

const wire::Payload& payload_of(const Job& job, int rank) {
  for (const Program& p : job.programs)
    if (rank < p.first_rank + p.ranks) return p.payload;
  return job.payload.wire;
}

Job prepare(CommandLine line, const Environment& environment) {
  Job job;
  const std::string folders = search_path(environment);
  std::vector<Program> programs = classify_programs(line, folders);
  job.settings = std::move(line.settings);
  const Settings& settings = job.settings;
  if (settings.has("topology") && !settings.flag("dry-run"))
    throw Error(Code::usage, "--topology", "is for --show-map and --dry-run",
                "a job runs on the machines that there are");
  place_ranks(job, environment);
  if (job.elastic && programs.size() > 1)
    throw Error(Code::usage, ":", "several programs cannot be one elastic job",
                "a further program needs ranks that stay: without --min-np, --max-np and --host-discovery-script");
  require_known(job.hosts);
  if (settings.flag("encrypt-tensors") && settings.text("transport") == "mpi" && !job.map.all_local())
    throw Error(Code::usage, "--encrypt-tensors", "MPI would carry tensors between hosts in clear (--transport mpi)",
                "use --transport tcp");
  if (const std::string steps = settings.text("timeline-steps"); !steps.empty()) {
    if (!trace::trace_steps(steps))
      throw Error(Code::usage, "--timeline-steps", "\"" + printable(steps) + "\" are no steps",
                  "write 100-200, or 100- for all from the hundredth on");
    if (settings.text("timeline-filename").empty())
      throw Error(Code::usage, "--timeline-steps", "no timeline is recorded", "name its file: --timeline-filename");
  }
  if (const auto rank = settings.integer("stdin"); rank && *rank >= static_cast<int>(job.map.ranks.size()))
    throw Error(Code::usage, "--stdin", "there is no rank " + std::to_string(*rank),
                "the ranks are 0 to " + std::to_string(job.map.ranks.size() - 1));
  for (const Program& p : programs)
    need_program(p, programs.size() == 1 ? static_cast<int>(job.map.ranks.size()) : p.ranks, settings.integer("stdin"));
  job.cwd = current_folder();

  bool needs_python = false;
  for (Program& p : programs) {
    LoadedPayload loaded = load_payload(p.payload, job.map.all_local(), folders, settings.flag("allow-writable"));
    p.payload = loaded.wire;
    if (&p == &programs.front()) job.payload = std::move(loaded);
    if (p.payload.kind != wire::PayloadKind::command)
      needs_python = true;
    else
      need_trusted_program(job, path_of_program(p.payload.name, environment), p.payload.name);
  }
  if (programs.size() > 1) job.programs = std::move(programs);
  find_programs(job, needs_python, needs_mpirun(settings), environment);
  choose_command(job);
  return job;
}

std::map<std::string, std::string> rank_environment(const Job& job, const MappedRank& place,
                                                    const std::vector<std::string>& environ_lines) {
  const MappedHost& host = job.map.host_of(place.rank);
  const bool local = host.local;
  std::map<std::string, std::string> env;
  for (const std::string& entry : environ_lines) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    const std::string name = entry.substr(0, equals);
    // CUDA_VISIBLE_DEVICES counts on this host only: each host decides which of its GPUs may be used.
    if (travels(name) && (local || name != "CUDA_VISIBLE_DEVICES")) env[name] = entry.substr(equals + 1);
  }
  for (const auto& [name, value] : job.settings.rank_variables()) env[name] = value;
  if (const auto folder = env.find("HVD_STATE_DIR"); folder != env.end() && !folder->second.empty())
    folder->second = std::filesystem::path(job.cwd) / folder->second;  // the script may change its own folder
  if (!host.gpus.empty()) env["CUDA_VISIBLE_DEVICES"] = join(host.gpus, ",");
  if (job.settings.flag("verbose")) env.try_emplace("HOROVOD_LOG_LEVEL", "info");
  for (auto& [name, value] : horovodrun_variables(job.map, place)) env[name] = std::move(value);
  if (job.settings.flag("gloo")) env["HOROVOD_CONTROLLER"] = "gloo";  // hvd.gloo_enabled()
  if (const std::string nics = job.settings.text("network-interfaces"); !nics.empty())
    env["NCCL_SOCKET_IFNAME"] = env["GLOO_SOCKET_IFNAME"] = nics;
  env.try_emplace("PYTHONUNBUFFERED", "1");  // output goes through a pipe, and users want to see it at once
  if (!job.mpirun.library_folder.empty()) {
    std::string& folders = env["LD_LIBRARY_PATH"];
    folders = job.mpirun.library_folder + (folders.empty() ? "" : ":" + folders);
  }
  return env;
}

}  // namespace hvd::launcher
