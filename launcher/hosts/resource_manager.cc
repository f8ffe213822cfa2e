#include "launcher/hosts/resource_manager.h"

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "launcher/hosts/host_reader.h"
#include "launcher/hosts/parse_hosts.h"

namespace hvd::launcher {

namespace {

[[noreturn]] void wrong(const std::string& where, const std::string& what) {
  throw Error(Code::usage, where, what, "is this a real allocation? -H or --hostfile overrides it");
}

int positive(std::string_view text, const std::string& where) {
  const auto n = to_integer(text);
  if (!n || *n < 1 || *n > 1 << 20) wrong(where, "'" + std::string(text) + "' is not a number of slots");
  return static_cast<int>(*n);
}

/// "2(x3),1" → 2 2 2 1.
std::vector<int> repeated(std::string_view text, const std::string& where) {
  std::vector<int> out;
  for (const std::string& part : split(text, ',')) {
    const std::size_t open = part.find('(');
    const int n = positive(trim(std::string_view(part).substr(0, open)), where);
    int times = 1;
    if (open != std::string::npos) {
      if (part.size() < open + 4 || part[open + 1] != 'x' || part.back() != ')')
        wrong(where, "'" + part + "' is not n(xm)");
      times = positive(std::string_view(part).substr(open + 2, part.size() - open - 3), where);
    }
    if (out.size() + static_cast<std::size_t>(times) > most_hosts) wrong(where, "has too many nodes");
    out.insert(out.end(), static_cast<std::size_t>(times), n);
  }
  return out;
}

/// A name alone, as in a manager's file.  The name is checked like one in a hostfile, ranges included.
std::string one_host(const std::string& text, const std::string& where) {
  HostReader reader(text, [&](std::size_t) { return where; });
  const std::vector<std::string> names = reader.hosts();
  if (names.size() != 1 || !reader.at_end()) wrong(where, "'" + text + "' is not a host name");
  return names[0];
}

std::string value(const Environment& environment, const char* name) {
  const char* text = environment(name);
  return text ? text : "";
}

std::optional<Allocation> find_slurm(const Environment& env) {
  std::string nodes = value(env, "SLURM_JOB_NODELIST");
  if (nodes.empty()) nodes = value(env, "SLURM_NODELIST");
  if (nodes.empty()) return {};
  std::string tasks = value(env, "SLURM_TASKS_PER_NODE");
  if (tasks.empty()) tasks = value(env, "SLURM_JOB_CPUS_PER_NODE");
  Allocation a = parse_slurm(nodes, tasks);
  const std::string job = value(env, "SLURM_JOB_ID");
  a.source = "Slurm job " + (job.empty() ? "(SLURM_JOB_NODELIST)" : job);
  // srun reaches Slurm's nodes also where ssh does not.  The step overlaps other steps, is not bound to cores, and
  // copies its stdin to no other task.  The environment stays here: ranks get theirs over our channel.  The few
  // exported variables are for the shell, and HOME for Open MPI 5's daemon, which crashes without it.
  a.launch_agent = {"srun",      "--nodes=1",       "--ntasks=1",           "--nodelist={host}",
                    "--overlap", "--cpu-bind=none", "--mpi=none",           "--export=PATH,HOME,USER,LOGNAME,SHELL",
                    "--input=0", "--unbuffered",    "--kill-on-bad-exit=0", "--quiet"};
  if (!job.empty()) a.launch_agent.push_back("--jobid=" + job);
  return a;
}

std::optional<Allocation> find_lsf(const Environment& env, const FileReader& read) {
  if (value(env, "LSB_JOBID").empty()) return {};
  std::optional<Allocation> a;
  if (const std::string text = value(env, "LSB_MCPU_HOSTS"); !text.empty())
    a = parse_lsf(text);
  else if (const std::string file = value(env, "LSB_DJOB_HOSTFILE"); !file.empty())
    a = parse_slot_list(read(file), file);
  else if (const std::string hosts = value(env, "LSB_HOSTS"); !hosts.empty())
    a = parse_slot_list(hosts, "LSB_HOSTS");
  if (a) a->source = "LSF job " + value(env, "LSB_JOBID");
  return a;
}

std::optional<Allocation> find_pbs(const Environment& env, const FileReader& read) {
  const std::string file = value(env, "PBS_NODEFILE");
  if (file.empty()) return {};
  Allocation a = parse_slot_list(read(file), file);
  const std::string job = value(env, "PBS_JOBID");
  a.source = "PBS job " + (job.empty() ? "(PBS_NODEFILE)" : job);
  return a;
}

std::optional<Allocation> find_grid_engine(const Environment& env, const FileReader& read) {
  const std::string file = value(env, "PE_HOSTFILE");
  if (file.empty()) return {};
  Allocation a = parse_grid_engine(read(file), file);
  const std::string job = value(env, "JOB_ID");
  a.source = "Grid Engine job " + (job.empty() ? "(PE_HOSTFILE)" : job);
  return a;
}

/// The MPI operator points Open MPI at its hostfile; with its kubexec script, pods are reached by kubectl.
std::optional<Allocation> find_kubernetes(const Environment& env, const FileReader& read) {
  if (value(env, "KUBERNETES_SERVICE_HOST").empty() && value(env, "K_MPI_JOB_ROLE").empty()) return {};
  for (const char* name : {"OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"}) {
    const std::string file = value(env, name);
    if (file.empty()) continue;
    Allocation a = parse_hostfile(read(file), file);
    a.source = "Kubernetes' MPI operator (" + file + ")";
    const std::string agent = value(env, "OMPI_MCA_plm_rsh_agent");
    if (agent.ends_with("kubexec.sh")) {
      const std::string own = "/opt/kube/kubectl";  // in the operator's launcher pod
      a.launch_agent = {value(env, "HVD_KUBECTL").empty() ? own : value(env, "HVD_KUBECTL"), "exec", "-i", "{host}",
                        "--"};
    }
    return a;
  }
  return {};
}

}  // namespace

Allocation parse_slurm(std::string_view nodes, std::string_view tasks) {
  Allocation a;
  HostReader reader(nodes, [](std::size_t column) { return formatted("SLURM_JOB_NODELIST:{}", column); });
  std::vector<std::string> names;
  do {
    for (std::string& name : reader.hosts()) names.push_back(std::move(name));
    if (names.size() > most_hosts) wrong("SLURM_JOB_NODELIST", "has too many nodes");
  } while (reader.take(','));
  if (!reader.at_end())
    wrong(reader.place(reader.column()), std::string("'") + reader.peek() + "' is not expected here");
  std::vector<int> slots(names.size(), 1);
  if (!tasks.empty()) slots = repeated(tasks, "SLURM_TASKS_PER_NODE");
  if (slots.size() != names.size())
    wrong("SLURM_TASKS_PER_NODE", formatted("counts {}, but there are {} in SLURM_JOB_NODELIST",
                                            count_of(static_cast<long long>(slots.size()), "node"), names.size()));
  for (std::size_t i = 0; i < names.size(); ++i) add_host(a, names[i], slots[i], "SLURM_JOB_NODELIST");
  return a;
}

Allocation parse_lsf(std::string_view text) {
  Allocation a;
  const std::vector<std::string> all = words(text);
  if (all.size() % 2 != 0) wrong("LSB_MCPU_HOSTS", "must hold pairs of host and slots");
  for (std::size_t i = 0; i + 1 < all.size(); i += 2)
    add_host(a, one_host(all[i], "LSB_MCPU_HOSTS"), positive(all[i + 1], "LSB_MCPU_HOSTS"), "LSB_MCPU_HOSTS");
  if (a.hosts.empty()) wrong("LSB_MCPU_HOSTS", "names no host");
  return a;
}

Allocation parse_slot_list(std::string_view text, const std::string& name) {
  Allocation a;
  std::size_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    for (const std::string& word : words(trim(line))) {
      const std::string where = formatted("{}:{}", name, number);
      add_host(a, one_host(word, where), 1, where);
    }
  }
  if (a.hosts.empty()) wrong(name, "names no host");
  return a;
}

Allocation parse_grid_engine(std::string_view text, const std::string& name) {
  Allocation a;
  std::size_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    const std::vector<std::string> fields = words(trim(line));
    if (fields.empty()) continue;
    const std::string where = formatted("{}:{}", name, number);
    if (fields.size() < 2) wrong(where, "must hold host and slots");
    add_host(a, one_host(fields[0], where), positive(fields[1], where), where);
  }
  if (a.hosts.empty()) wrong(name, "names no host");
  return a;
}

std::optional<Allocation> find_allocation(const Environment& environment, const FileReader& read) {
  if (auto a = find_slurm(environment)) return a;
  if (auto a = find_lsf(environment, read)) return a;
  if (auto a = find_pbs(environment, read)) return a;
  if (auto a = find_grid_engine(environment, read)) return a;
  return find_kubernetes(environment, read);
}

bool belongs_to_manager(std::string_view variable) {
  if (variable.starts_with("SLURM_")) return variable != "SLURM_CONF";
  for (const std::string_view prefix : {"PBS_", "LSB_", "OMPI_MCA_plm_rsh_", "OMPI_MCA_orte_default_hostfile",
                                        "PRTE_MCA_prte_default_hostfile", "PE_HOSTFILE"})
    if (variable.starts_with(prefix)) return true;
  return false;
}

}  // namespace hvd::launcher
