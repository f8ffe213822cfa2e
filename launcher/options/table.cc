#include "launcher/options/table.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

using enum Kind;
using enum Group;
using enum Convert;
using enum Support;

constexpr std::string_view no_elastic = "elastic jobs are not built yet; start with a fixed -np";
constexpr std::string_view no_autotune = "autotune is not built yet; the job runs with the fixed values";

// clang-format off
constexpr auto table = std::to_array<Option>({
    // where
    {.id = "num-proc", .spellings = "-np,-n,--num-proc", .kind = integer, .group = where, .metavar = "N", .yaml = "hosts.num_proc", .help = "number of ranks"},
    {.id = "hosts", .spellings = "-H,--hosts", .kind = text, .group = where, .metavar = "h1:2,h2:2", .yaml = "hosts.hosts", .help = "hosts and how many ranks each takes (default: what is found, else localhost)"},
    {.id = "hostfile", .spellings = "-hostfile,--hostfile", .kind = text, .group = where, .metavar = "FILE", .yaml = "hosts.hostfile", .help = "the same, one host a line: host slots=2"},
    {.id = "host-discovery-script", .spellings = "--host-discovery-script", .kind = text, .group = where, .metavar = "FILE", .yaml = "elastic.host_discovery_script", .help = "program that prints the hosts, one a line: host or host:slots"},
    {.id = "manifest", .spellings = "--manifest", .kind = text, .group = where, .metavar = "FILE", .variable = "HVD_MANIFEST", .yaml = "hosts.manifest", .help = "hosts as another program wrote them down: hvdrun-manifest(5)"},
    {.id = "ssh-port", .spellings = "-p,--ssh-port", .kind = integer, .group = where, .metavar = "PORT", .yaml = "ssh.port", .help = "port of sshd on the hosts", .least = 1, .most = 65535},
    {.id = "ssh-identity-file", .spellings = "-i,--ssh-identity-file", .kind = text, .group = where, .metavar = "FILE", .yaml = "ssh.identity_file", .help = "private key for ssh"},
    {.id = "ssh-program", .spellings = "--ssh-program", .kind = text, .group = network, .metavar = "COMMAND", .variable = "HVD_SSH", .fallback = "ssh", .yaml = "ssh.program", .help = "the ssh to run, with its own options"},
    {.id = "network-interfaces", .spellings = "--network-interfaces,--network-interface,--nics", .kind = text, .group = network, .metavar = "a,b", .yaml = "hosts.network_interfaces", .help = "interfaces that may be used between hosts (default: those that reach them)"},
    {.id = "mpirun", .spellings = "--mpirun", .kind = text, .group = network, .metavar = "PATH", .variable = "HVD_MPIRUN", .help = "the mpirun of Open MPI 4.1 or 5 (default: the first in PATH)"},
    {.id = "mpi-args", .spellings = "--mpi-args", .kind = text, .group = network, .metavar = "ARGS", .help = "more arguments for mpirun, quoted as for a shell"},
    {.id = "binding-args", .spellings = "--binding-args", .kind = text, .group = network, .metavar = "ARGS", .help = "arguments for mpirun in place of its part about mapping and binding"},
    {.id = "tcp", .spellings = "--tcp", .kind = flag, .group = network, .help = "MPI uses TCP only"},
    // what
    {.id = "python", .spellings = "--python", .kind = text, .group = what, .metavar = "PATH", .variable = "HVD_PYTHON", .help = "interpreter (default: $VIRTUAL_ENV, hvdrun's own venv, python3)"},
    {.id = "allow-writable", .spellings = "--allow-writable", .kind = flag, .group = what, .variable = "HVD_ALLOW_WRITABLE", .help = "run what other users could have written or put there, on all hosts"},
    {.id = "config-file", .spellings = "--config-file", .kind = text, .group = what, .metavar = "FILE", .help = "options from a YAML file; flags and environment come first"},
    {.id = "dry-run", .spellings = "--dry-run", .kind = flag, .group = what, .help = "say which rank would run where and the mpirun command, then stop"},
    {.id = "json", .spellings = "--json", .kind = flag, .group = what, .help = "--dry-run, --show-map, --report or doctor as JSON"},
    {.id = "bind", .spellings = "--bind", .kind = negatable, .group = tuning, .fallback = "1", .yaml = "placement.bind", .help = "give each rank an equal share of the cores"},
    {.id = "show-map", .spellings = "--show-map", .kind = flag, .group = what, .help = "show rank, host, GPU, NUMA node, cores and network card, then stop"},
    {.id = "svg", .spellings = "--svg", .kind = flag, .group = what, .help = "--show-map as a picture, to standard output"},
    {.id = "gpus", .spellings = "--gpus", .kind = text, .group = where, .metavar = "all|own|none", .variable = "HVD_GPUS", .fallback = "all", .yaml = "placement.gpus", .help = "GPUs that a rank sees; its cores are near its own: hvdrun-placement(7)", .choices = "all,own,none"},
    {.id = "share-gpus", .spellings = "--share-gpus", .kind = negatable, .group = where, .variable = "HVD_SHARE_GPUS", .fallback = "0", .yaml = "placement.share_gpus", .help = "more ranks than GPUs on a host are fine"},
    {.id = "topology", .spellings = "--topology", .kind = text, .group = what, .metavar = "FILE", .help = "--show-map and --dry-run for a machine exported by lstopo"},
    // output
    {.id = "output-filename", .spellings = "--output-filename", .kind = text, .group = output, .metavar = "DIR", .yaml = "output.filename", .help = "also write DIR/rank.N/stdout and stderr"},
    {.id = "prefix-output-with-timestamp", .spellings = "--prefix-output-with-timestamp,--prefix-timestamp,-prefix-timestamp", .kind = flag, .group = output, .yaml = "output.timestamp", .help = "time of day before each line"},
    {.id = "collapse", .spellings = "--collapse", .kind = negatable, .group = output, .variable = "HVD_COLLAPSE", .yaml = "output.collapse", .help = "lines that several ranks print alike become one (default: on a terminal)"},
    {.id = "stdin", .spellings = "--stdin", .kind = integer, .group = output, .metavar = "RANK", .yaml = "output.stdin", .help = "give hvdrun's standard input to this rank, mostly 0 (default: to none)", .least = 0},
    {.id = "report", .spellings = "--report", .kind = negatable, .group = output, .variable = "HVD_REPORT", .yaml = "output.report", .help = "at the end: time, steps, the slowest rank, use of CPU, memory and GPUs (default: on a terminal)"},
    {.id = "report-filename", .spellings = "--report-filename", .kind = text, .group = timeline, .metavar = "FILE", .variable = "HVD_REPORT_FILENAME", .yaml = "output.report_filename", .help = "write the report there too, as JSON"},
    {.id = "timeline-filename", .spellings = "--timeline-filename", .kind = text, .group = output, .metavar = "FILE", .variable = "HOROVOD_TIMELINE", .for_ranks = true, .yaml = "timeline.filename", .help = "record a trace of all ranks (open it in ui.perfetto.dev)"},
    {.id = "timeline-mark-cycles", .spellings = "--timeline-mark-cycles", .kind = negatable, .group = timeline, .variable = "HOROVOD_TIMELINE_MARK_CYCLES", .for_ranks = true, .fallback = "0", .yaml = "timeline.mark_cycles", .help = "mark each cycle in the trace"},
    {.id = "verbose", .spellings = "--verbose", .kind = flag, .group = output, .help = "say each step; show what mpirun says; ranks log at level info"},
    // life
    {.id = "start-timeout", .spellings = "--start-timeout", .kind = number, .group = life, .metavar = "S", .variable = "HOROVOD_START_TIMEOUT", .fallback = "30", .yaml = "hosts.start_timeout", .help = "longest time for all ranks to come up", .least = 0.1},
    {.id = "time-limit", .spellings = "--time-limit", .kind = number, .group = life, .metavar = "S", .yaml = "hosts.time_limit", .help = "end the job after so many seconds, with the grace, exit code 6", .least = 0.1},
    {.id = "grace", .spellings = "--grace", .kind = number, .group = life, .metavar = "S", .variable = "HVD_GRACE", .fallback = "5", .yaml = "hosts.grace", .help = "time for a rank to end by itself before it is killed", .least = 0},
    // tuning
    {.id = "fusion-threshold-mb", .spellings = "--fusion-threshold-mb", .kind = number, .group = tuning, .metavar = "N", .variable = "HOROVOD_FUSION_THRESHOLD", .for_ranks = true, .convert = megabytes, .fallback = "128", .yaml = "params.fusion_threshold_mb", .help = "most data in one fused operation; 0: no fusion", .least = 0},
    {.id = "cycle-time-ms", .spellings = "--cycle-time-ms", .kind = number, .group = tuning, .metavar = "F", .variable = "HOROVOD_CYCLE_TIME", .for_ranks = true, .fallback = "1", .yaml = "params.cycle_time_ms", .help = "longest time a tensor is held to be fused", .least = 0},
    {.id = "cache-capacity", .spellings = "--cache-capacity", .kind = integer, .group = tuning, .metavar = "N", .variable = "HOROVOD_CACHE_CAPACITY", .for_ranks = true, .fallback = "1024", .yaml = "params.cache_capacity", .help = "tensors whose agreement is remembered", .least = 0},
    {.id = "hierarchical-allreduce", .spellings = "--hierarchical-allreduce", .kind = negatable, .group = tuning, .variable = "HOROVOD_HIERARCHICAL_ALLREDUCE", .for_ranks = true, .yaml = "params.hierarchical_allreduce", .help = "sums on GPUs within hosts first, by NCCL (on CPUs they always are)"},
    {.id = "hierarchical-allgather", .spellings = "--hierarchical-allgather", .kind = negatable, .group = tuning, .variable = "HOROVOD_HIERARCHICAL_ALLGATHER", .for_ranks = true, .yaml = "params.hierarchical_allgather", .help = "allgathers on GPUs host by host, by NCCL"},
    {.id = "torus-allreduce", .spellings = "--torus-allreduce", .kind = negatable, .group = tuning, .variable = "HOROVOD_TORUS_ALLREDUCE", .for_ranks = true, .yaml = "params.torus_allreduce", .help = "the same as --hierarchical-allreduce"},
    {.id = "mpi-threads-disable", .spellings = "--mpi-threads-disable", .kind = negatable, .group = tuning, .variable = "HOROVOD_MPI_THREADS_DISABLE", .for_ranks = true, .yaml = "library_options.mpi_threads_disable", .help = "MPI without threads"},
    {.id = "num-nccl-streams", .spellings = "--num-nccl-streams", .kind = integer, .group = tuning, .metavar = "N", .variable = "HOROVOD_NUM_NCCL_STREAMS", .for_ranks = true, .fallback = "1", .yaml = "library_options.num_nccl_streams", .help = "NCCL streams of each process set, which batches take in turn", .least = 1},
    {.id = "thread-affinity", .spellings = "--thread-affinity", .kind = text, .group = tuning, .metavar = "CORE,...", .variable = "HOROVOD_THREAD_AFFINITY", .for_ranks = true, .yaml = "library_options.thread_affinity", .help = "cores of the runtime's threads, by local rank"},
    // autotune
    {.id = "autotune", .spellings = "--autotune", .kind = negatable, .group = autotune, .variable = "HOROVOD_AUTOTUNE", .for_ranks = true, .fallback = "0", .yaml = "autotune.enabled", .help = "tune fusion and the like while running", .support = note, .remark = no_autotune},
    {.id = "autotune-log-file", .spellings = "--autotune-log-file", .kind = text, .group = autotune, .metavar = "FILE", .variable = "HOROVOD_AUTOTUNE_LOG", .for_ranks = true, .yaml = "autotune.log_file", .help = "what was tried, as CSV"},
    {.id = "autotune-warmup-samples", .spellings = "--autotune-warmup-samples", .kind = integer, .group = autotune, .metavar = "N", .variable = "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", .for_ranks = true, .fallback = "3", .yaml = "autotune.warmup_samples", .help = "samples thrown away at first", .least = 0},
    {.id = "autotune-steps-per-sample", .spellings = "--autotune-steps-per-sample", .kind = integer, .group = autotune, .metavar = "N", .variable = "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", .for_ranks = true, .fallback = "10", .yaml = "autotune.steps_per_sample", .help = "steps in a sample", .least = 1},
    {.id = "autotune-bayes-opt-max-samples", .spellings = "--autotune-bayes-opt-max-samples", .kind = integer, .group = autotune, .metavar = "N", .variable = "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", .for_ranks = true, .fallback = "20", .yaml = "autotune.bayes_opt_max_samples", .help = "samples before tuning ends", .least = 1},
    {.id = "autotune-gaussian-process-noise", .spellings = "--autotune-gaussian-process-noise", .kind = number, .group = autotune, .metavar = "F", .variable = "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", .for_ranks = true, .fallback = "0.8", .yaml = "autotune.gaussian_process_noise", .help = "noise that the tuner assumes", .least = 0},
    // stall
    {.id = "stall-check", .spellings = "--stall-check", .kind = negatable, .group = stall, .variable = "HOROVOD_STALL_CHECK_DISABLE", .for_ranks = true, .convert = inverted, .fallback = "1", .yaml = "stall_check.enabled", .help = "warn when ranks wait for one another"},
    {.id = "stall-check-warning-time-seconds", .spellings = "--stall-check-warning-time-seconds", .kind = number, .group = stall, .metavar = "S", .variable = "HOROVOD_STALL_CHECK_TIME_SECONDS", .for_ranks = true, .fallback = "60", .yaml = "stall_check.warning_time_seconds", .help = "when to warn", .least = 0},
    {.id = "stall-check-shutdown-time-seconds", .spellings = "--stall-check-shutdown-time-seconds", .kind = number, .group = stall, .metavar = "S", .variable = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", .for_ranks = true, .fallback = "0", .yaml = "stall_check.shutdown_time_seconds", .help = "when to end the job; 0: never", .least = 0},
    // logging
    {.id = "log-level", .spellings = "--log-level", .kind = text, .group = logging, .metavar = "LEVEL", .variable = "HOROVOD_LOG_LEVEL", .for_ranks = true, .fallback = "warning", .yaml = "logging.level", .help = "how much the runtime says: trace, debug, info, warning, error, fatal", .choices = "trace,debug,info,warning,error,fatal"},
    {.id = "log-with-timestamp", .spellings = "--log-with-timestamp", .kind = negatable, .group = logging, .variable = "HOROVOD_LOG_HIDE_TIME", .for_ranks = true, .convert = inverted, .fallback = "0", .yaml = "logging.with_timestamp", .help = "time in the runtime's messages", .opposites = "--log-without-timestamp,--log-hide-timestamp"},
    // elastic
    {.id = "min-np", .spellings = "--min-np,--min-num-proc", .kind = integer, .group = elastic, .metavar = "N", .yaml = "elastic.min_np", .help = "fewest ranks to go on with", .support = later, .remark = no_elastic},
    {.id = "max-np", .spellings = "--max-np,--max-num-proc", .kind = integer, .group = elastic, .metavar = "N", .yaml = "elastic.max_np", .help = "most ranks to grow to", .support = later, .remark = no_elastic},
    {.id = "slots-per-host", .spellings = "--slots-per-host,--slots", .kind = integer, .group = elastic, .metavar = "N", .fallback = "1", .yaml = "elastic.slots_per_host", .help = "ranks on each discovered host that comes without a number", .least = 1},
    {.id = "elastic-timeout", .spellings = "--elastic-timeout", .kind = number, .group = elastic, .metavar = "S", .variable = "HOROVOD_ELASTIC_TIMEOUT", .fallback = "600", .yaml = "elastic.timeout", .help = "longest wait for ranks after a change", .support = later, .remark = no_elastic},
    {.id = "reset-limit", .spellings = "--reset-limit", .kind = integer, .group = elastic, .metavar = "N", .yaml = "elastic.reset_limit", .help = "most changes of the world", .support = later, .remark = no_elastic},
    {.id = "blacklist-cooldown-range", .spellings = "--blacklist-cooldown-range", .kind = pair, .group = elastic, .metavar = "MIN MAX", .yaml = "elastic.blacklist_cooldown_range", .help = "seconds before a failed host is tried again", .support = later, .remark = no_elastic},
    // horovod
    {.id = "mpi", .spellings = "--mpi", .kind = flag, .group = horovod, .help = "accepted: MPI is the one controller"},
    {.id = "gloo", .spellings = "--gloo", .kind = flag, .group = horovod, .help = "MPI is used; ranks get HOROVOD_RANK and its like", .support = note, .remark = "MPI is the one controller here; for --gloo ranks get HOROVOD_RANK and its like"},
    {.id = "jsrun", .spellings = "--jsrun", .kind = flag, .group = horovod, .help = "accepted; MPI is used", .support = note, .remark = "MPI is the one controller here; --jsrun changes nothing"},
    {.id = "gloo-timeout-seconds", .spellings = "--gloo-timeout-seconds", .kind = number, .group = horovod, .metavar = "S", .variable = "HOROVOD_GLOO_TIMEOUT_SECONDS", .for_ranks = true, .yaml = "library_options.gloo_timeout_seconds", .help = "accepted; there is no gloo here", .support = note, .remark = "there is no gloo here; --gloo-timeout-seconds changes nothing", .least = 0},
    {.id = "disable-cache", .spellings = "--disable-cache", .kind = flag, .group = horovod, .help = "accepted: hvdrun keeps no cache of earlier checks"},
    // other
    {.id = "help", .spellings = "-h,--help", .kind = flag, .group = other, .help = "this text"},
    {.id = "help-all", .spellings = "--help-all", .kind = flag, .group = other, .help = "every option"},
    {.id = "version", .spellings = "-v,--version", .kind = flag, .group = other, .help = "version"},
    {.id = "check-build", .spellings = "-cb,--check-build", .kind = flag, .group = other, .help = "what this build can do"},
    {.id = "completion", .spellings = "--completion", .kind = text, .group = other, .metavar = "SHELL", .help = "completion for bash, zsh or fish, to standard output", .choices = "bash,zsh,fish"},
    {.id = "results", .spellings = "--results", .kind = text, .group = other, .metavar = "FILE", .help = "where the ranks' results go (for hvd.run)", .hidden = true},
    {.id = "results-of", .spellings = "--results-of", .kind = integer, .group = other, .metavar = "RANK", .help = "the one rank whose result is wanted (for HorovodRunner)", .least = 0, .hidden = true},
    {.id = "parent", .spellings = "--parent", .kind = integer, .group = other, .metavar = "PID", .help = "end with this process (for hvd.run)", .hidden = true},
    {.id = "dump-options", .spellings = "--dump-options", .kind = flag, .group = other, .help = "this table as JSON", .hidden = true},
});
// clang-format on

/// Edits (insert, delete, replace) between two words.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const Option> option_table() { return table; }

const Option& option(std::string_view id) {
  for (const Option& o : table)
    if (o.id == id) return o;
  throw Error(Code::internal, std::string(id), "no such option in the table");
}

const Option* find_spelling(std::string_view spelling, bool* negated) {
  if (negated) *negated = false;
  for (const Option& o : table) {
    for (const std::string& s : split(o.opposites, ',')) {
      if (s.empty()) continue;
      const bool doubled = spelling.starts_with("--no-") && s.substr(2) == spelling.substr(5);
      if (s != spelling && !doubled) continue;
      if (negated) *negated = !doubled;
      return &o;
    }
    for (const std::string& s : split(o.spellings, ',')) {
      if (s == spelling) return &o;
      if (o.kind == negatable && spelling.starts_with("--no-") && s.substr(2) == spelling.substr(5)) {
        if (negated) *negated = true;
        return &o;
      }
    }
  }
  return nullptr;
}

namespace {

/// What others call it (torchrun, mpirun, srun, accelerate): our name of it, or why there is none.
struct Neighbour {
  std::string_view typed, ours, needless = {};
};
constexpr auto neighbours = std::to_array<Neighbour>({
    {"--np", "-np"},
    {"-c", "-np"},
    {"--ntasks", "-np"},
    {"--nproc", "-np"},
    {"--nproc_per_node", "-np, and -H host:slots for several hosts"},
    {"--nproc-per-node", "-np, and -H host:slots for several hosts"},
    {"--num_processes", "-np"},
    {"--nnodes", "-H host:slots,host:slots"},
    {"--host", "-H"},
    {"--machinefile", "--hostfile"},
    {"--oversubscribe", "", "ranks are not limited to cores"},
    {"--bind-to", "--bind or --no-bind"},
    {"--map-by", "-H, in whose order ranks are placed"},
    {"-x", "", "the environment travels to every rank"},
    {"--allow-run-as-root", "", "root may start jobs"},
    {"--mca", "--mpi-args=\"--mca name value\""},
    {"--rdzv_backend", "", "ranks find one another"},
    {"--rdzv_endpoint", "", "ranks find one another"},
    {"--master_addr", "", "ranks find one another"},
    {"--master_port", "", "ranks find one another"},
    {"--standalone", "", "one host is the default"},
});

/// The nearest of @p names, where few enough edits make one of the other.
std::string nearest(std::string_view typed, const std::vector<std::string>& names) {
  std::string best;
  std::size_t best_distance = typed.size() / 3 + 1;  // more edits than that is another word
  for (const std::string& name : names)
    if (const std::size_t d = distance(typed, name); d < best_distance) best = name, best_distance = d;
  return best;
}

}  // namespace

std::string advice_on(std::string_view typed) {
  for (const Neighbour& n : neighbours)
    if (n.typed == typed)
      return n.ours.empty() ? "not needed here: " + std::string(n.needless)
                            : "did you mean " + std::string(n.ours) + "?";
  std::vector<std::string> names;
  for (const Option& o : table)
    for (const std::string& s : split(o.spellings, ','))
      if (!o.hidden && s.starts_with("--")) names.push_back(s);
  const std::string near = nearest(typed, names);
  return near.empty() ? near : "did you mean " + near + "?";
}

std::string nearest_key(std::string_view typed) {
  std::vector<std::string> names;
  for (const Option& o : table)
    if (!o.yaml.empty()) names.emplace_back(o.yaml);
  const std::string near = nearest(typed, names);
  if (!near.empty()) return near;
  for (const std::string& name : names)  // the right word in the wrong section, or without one
    if (name.substr(name.rfind('.') + 1) == typed.substr(typed.rfind('.') + 1)) return name;
  return {};
}

std::string_view group_title(Group group) {
  switch (group) {
    case where:
      return "Where to run";
    case what:
      return "What to run";
    case output:
      return "Output";
    case life:
      return "Starting and ending";
    case network:
      return "Network and MPI";
    case tuning:
      return "Tuning";
    case autotune:
      return "Autotune";
    case timeline:
      return "Timeline";
    case stall:
      return "Stall check";
    case logging:
      return "Logging";
    case elastic:
      return "Elastic jobs";
    case horovod:
      return "Accepted for horovodrun's sake";
    case other:
      return "Other";
  }
  return {};
}

}  // namespace hvd::launcher
