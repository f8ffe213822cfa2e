/// @file table.h — one row for every option of hvdrun and every environment variable of this project.
///
/// The rows define the command line, --config-file, --help, the manual pages and hvd.run()'s keywords.  All readers of
/// the environment use them: the launcher's Settings, the runtime's Configuration, and hvd/_runtime/environment.py.
///
/// A new option or variable needs one row here, and the code that uses its value.  Then run scripts/man-options, which
/// writes the manual pages and src/python/hvd/_job/options.py.
#pragma once
#include <array>
#include <cstddef>
#include <string_view>

#include "options/option.h"

namespace hvd::options {

// clang-format off
inline constexpr auto table = [] {
using enum ValueType;
using enum Section;
using enum Conversion;
using enum Component;
using Effect::none;
using Effect::refused;
return std::to_array<Option>({
    // where
    {.id = "num-proc", .spellings = "-np,-n,--num-proc", .type = integer, .section = where, .metavar = "N", .yaml = "hosts.num_proc", .keyword = "num_proc,np", .help = "number of ranks"},
    {.id = "hosts", .spellings = "-H,--hosts", .type = text, .section = where, .metavar = "h1:2,h2:2", .yaml = "hosts.hosts", .keyword = "hosts", .help = "hosts and the number of ranks on each (default: the scheduler's hosts, else localhost)"},
    {.id = "hostfile", .spellings = "-hostfile,--hostfile", .type = text, .section = where, .metavar = "FILE", .yaml = "hosts.hostfile", .keyword = "hostfile", .help = "file of hosts, one per line: host slots=2"},
    {.id = "host-discovery-script", .spellings = "--host-discovery-script", .type = text, .section = where, .metavar = "FILE", .yaml = "elastic.host_discovery_script", .keyword = "host_discovery_script", .help = "program that prints the hosts, one per line: host or host:slots; makes the job elastic; called every second"},
    {.id = "manifest", .spellings = "--manifest", .type = text, .section = where, .metavar = "FILE", .variable = "HVD_MANIFEST", .yaml = "hosts.manifest", .help = "hosts as JSON, written by another program: hvdrun-manifest(5)"},
    {.id = "listen", .spellings = "--listen", .type = integer, .section = network, .metavar = "PORT", .variable = "HVD_LISTEN", .yaml = "hosts.listen", .help = "wait for hosts that join at this port (hvdrun join HOST:PORT), until they have -np or --min-np slots", .least = 1, .most = 65535},
    {.id = "token-file", .spellings = "--token-file", .type = text, .section = network, .metavar = "FILE", .variable = "HVD_TOKEN_FILE", .yaml = "hosts.token_file", .help = "for --listen and join: file with the secret that a host proves to join"},
    {.id = "ssh-port", .spellings = "-p,--ssh-port", .type = integer, .section = where, .metavar = "PORT", .yaml = "ssh.port", .keyword = "ssh_port", .help = "port of sshd on the hosts", .least = 1, .most = 65535},
    {.id = "ssh-identity-file", .spellings = "-i,--ssh-identity-file", .type = text, .section = where, .metavar = "FILE", .yaml = "ssh.identity_file", .keyword = "ssh_identity_file", .help = "private key for ssh"},
    {.id = "ssh-program", .spellings = "--ssh-program", .type = text, .section = network, .metavar = "COMMAND", .variable = "HVD_SSH", .fallback = "ssh", .yaml = "ssh.program", .help = "ssh program, with its own options"},
    {.id = "network-interfaces", .spellings = "--network-interfaces,--network-interface,--nics", .type = text, .section = network, .metavar = "a,b", .yaml = "hosts.network_interfaces", .keyword = "network_interfaces,network_interface", .help = "network interfaces to use between hosts (default: those that reach the hosts)"},
    {.id = "sync", .spellings = "--sync", .type = text, .section = network, .metavar = "DIR", .yaml = "hosts.sync", .help = "before the start, copy this folder to the same path on all other hosts, and run uv sync --frozen there if it has a uv.lock"},
    {.id = "mpirun", .spellings = "--mpirun", .type = text, .section = network, .metavar = "PATH", .variable = "HVD_MPIRUN", .help = "the mpirun of Open MPI 4.1 or 5 (default: the first in PATH)"},
    {.id = "launcher", .spellings = "--launcher", .type = text, .section = network, .metavar = "WHO", .variable = "HVD_LAUNCHER", .fallback = "hvdrun", .help = "which program starts the ranks: hvdrun itself, or mpirun, for clusters where only mpirun can start processes", .choices = "hvdrun,mpirun"},
    {.id = "mpi-args", .spellings = "--mpi-args", .type = text, .section = network, .metavar = "ARGS", .keyword = "mpi_args", .help = "further arguments for mpirun, quoted as for a shell"},
    {.id = "binding-args", .spellings = "--binding-args", .type = text, .section = network, .metavar = "ARGS", .help = "arguments for mpirun that replace its mapping and binding"},
    {.id = "transport", .spellings = "--transport", .type = text, .section = network, .metavar = "mpi|tcp|auto", .variable = "HVD_TRANSPORT", .readers = hvdrun | libhvd, .for_ranks = true, .fallback = "auto", .yaml = "hosts.transport", .help = "transport of tensors between hosts: MPI, or hvdrun's TCP (auto: TCP, unless MPI has a fabric like InfiniBand or hosts cannot connect)", .choices = "mpi,tcp,auto"},
    {.id = "encrypt-tensors", .spellings = "--encrypt-tensors", .type = negatable, .section = network, .variable = "HVD_ENCRYPT_TENSORS", .readers = hvdrun | libhvd | python, .for_ranks = true, .fallback = "0", .yaml = "hosts.encrypt_tensors", .help = "also encrypt tensors between hosts, by TLS 1.3; they then travel by hvdrun's TCP, never by MPI or NCCL"},
    {.id = "tcp", .spellings = "--tcp", .type = flag, .section = network, .help = "MPI uses TCP only"},
    {.id = "tf-config", .spellings = "--tf-config", .type = flag, .section = network, .help = "set TF_CONFIG for TensorFlow's own strategies: each rank is a worker with a port for its server"},
    // what
    {.id = "python", .spellings = "--python", .type = text, .section = what, .metavar = "PATH", .variable = "HVD_PYTHON", .keyword = "executable", .help = "interpreter (default: $VIRTUAL_ENV, hvdrun's own venv, python3)"},
    {.id = "allow-writable", .spellings = "--allow-writable", .type = flag, .section = what, .variable = "HVD_ALLOW_WRITABLE", .help = "also run files that other users can write or replace, on all hosts"},
    {.id = "config-file", .spellings = "--config-file", .type = text, .section = what, .metavar = "FILE", .help = "options from a YAML file; flags and environment take precedence"},
    {.id = "dry-run", .spellings = "--dry-run", .type = flag, .section = what, .help = "print where each rank would run and the command that starts them, then stop"},
    {.id = "json", .spellings = "--json", .type = flag, .section = what, .help = "--dry-run, --show-map, --report or doctor as JSON"},
    {.id = "bind", .spellings = "--bind", .type = negatable, .section = tuning, .fallback = "1", .yaml = "placement.bind", .help = "give each rank an equal share of the cores"},
    {.id = "show-map", .spellings = "--show-map", .type = flag, .section = what, .help = "print rank, host, GPU, NUMA node, cores and network interface, then stop"},
    {.id = "gpus", .spellings = "--gpus", .type = text, .section = where, .metavar = "all|own|none", .variable = "HVD_GPUS", .fallback = "all", .yaml = "placement.gpus", .help = "GPUs that a rank sees; its cores are near its own GPU: hvdrun-placement(7)", .choices = "all,own,none"},
    {.id = "share-gpus", .spellings = "--share-gpus", .type = negatable, .section = where, .variable = "HVD_SHARE_GPUS", .fallback = "0", .yaml = "placement.share_gpus", .help = "allow more ranks than GPUs on a host"},
    {.id = "topology", .spellings = "--topology", .type = text, .section = what, .metavar = "FILE", .help = "--show-map and --dry-run for a machine that lstopo exported"},
    // output
    {.id = "output-filename", .spellings = "--output-filename", .type = text, .section = output, .metavar = "DIR", .yaml = "output.filename", .keyword = "output_filename", .help = "also write DIR/rank.N/stdout and stderr"},
    {.id = "prefix-output-with-timestamp", .spellings = "--prefix-output-with-timestamp,--prefix-timestamp,-prefix-timestamp", .type = flag, .section = output, .yaml = "output.timestamp", .keyword = "prefix_output_with_timestamp", .help = "time of day before each line"},
    {.id = "collapse", .spellings = "--collapse", .type = negatable, .section = output, .variable = "HVD_COLLAPSE", .yaml = "output.collapse", .help = "print equal lines of several ranks once (default: on a terminal)"},
    {.id = "stdin", .spellings = "--stdin", .type = integer, .section = output, .metavar = "RANK", .yaml = "output.stdin", .help = "rank that gets hvdrun's standard input, usually 0 (default: none)", .least = 0},
    {.id = "report", .spellings = "--report", .type = negatable, .section = output, .variable = "HVD_REPORT", .yaml = "output.report", .help = "report at the end: time, causes of slow steps, use of CPU, memory, GPUs (default: on a terminal)"},
    {.id = "report-filename", .spellings = "--report-filename", .type = text, .section = timeline, .metavar = "FILE", .variable = "HVD_REPORT_FILENAME", .yaml = "output.report_filename", .help = "also write the report to this file: JSON, or a page with plots (.html)"},
    {.id = "verdict-filename", .spellings = "--verdict-filename", .type = text, .section = output, .metavar = "FILE", .variable = "HVD_VERDICT_FILENAME", .yaml = "output.verdict_filename", .help = "write how the job ended, and advice, to this file, as JSON: hvdrun-verdict(5)"},
    {.id = "metrics", .spellings = "--metrics", .type = text, .section = timeline, .metavar = "FILE", .variable = "HVD_METRICS", .yaml = "output.metrics", .help = "write steps, waiting and causes to this file, for Prometheus (.prom)"},
    {.id = "timeline-filename", .spellings = "--timeline-filename", .type = text, .section = output, .metavar = "FILE", .variable = "HOROVOD_TIMELINE", .readers = hvdrun | libhvd, .for_ranks = true, .yaml = "timeline.filename", .help = "record a trace of all ranks, .pftrace or .json (open it in ui.perfetto.dev)"},
    {.id = "timeline-mark-cycles", .spellings = "--timeline-mark-cycles", .type = negatable, .section = timeline, .variable = "HOROVOD_TIMELINE_MARK_CYCLES", .readers = hvdrun | libhvd, .for_ranks = true, .fallback = "0", .yaml = "timeline.mark_cycles", .help = "mark each cycle in the trace"},
    {.id = "timeline-steps", .spellings = "--timeline-steps", .type = text, .section = timeline, .metavar = "FIRST-LAST", .variable = "HVD_TIMELINE_STEPS", .readers = hvdrun | libhvd, .for_ranks = true, .yaml = "timeline.steps", .help = "record only these steps, counted from 1: 100-200, or 100- to the end"},
    {.id = "timeline-max-mb", .spellings = "--timeline-max-mb", .type = integer, .section = timeline, .metavar = "MIB", .variable = "HVD_TIMELINE_MAX_MB", .readers = hvdrun | libhvd, .for_ranks = true, .fallback = "1024", .yaml = "timeline.max_mb", .help = "size limit of the trace; FILE has its end, and FILE.older the part before", .least = 1, .most = 1048576},
    {.id = "verbose", .spellings = "--verbose", .type = flag, .section = output, .keyword = "verbose", .help = "print each step and mpirun's output; ranks log at level info"},
    // life
    {.id = "start-timeout", .spellings = "--start-timeout", .type = number, .section = life, .metavar = "S", .variable = "HOROVOD_START_TIMEOUT", .fallback = "30", .yaml = "hosts.start_timeout", .keyword = "start_timeout", .help = "longest time until all ranks have started", .least = 0.1, .most = 1e9},
    {.id = "time-limit", .spellings = "--time-limit", .type = number, .section = life, .metavar = "S", .yaml = "hosts.time_limit", .help = "end the job after this time, with the grace period and exit code 6", .least = 0.1, .most = 1e9},
    {.id = "grace", .spellings = "--grace", .type = number, .section = life, .metavar = "S", .variable = "HVD_GRACE", .fallback = "5", .yaml = "hosts.grace", .help = "time for a rank to end by itself before it is killed", .least = 0, .most = 1e9},
    // tuning
    {.id = "fusion-threshold-mb", .spellings = "--fusion-threshold-mb", .type = number, .section = tuning, .metavar = "N", .variable = "HOROVOD_FUSION_THRESHOLD", .readers = hvdrun | libhvd, .for_ranks = true, .conversion = megabytes, .fallback = "128", .yaml = "params.fusion_threshold_mb", .help = "most data in one fused operation; 0: no fusion", .least = 0, .most = 1e9},
    {.id = "cycle-time-ms", .spellings = "--cycle-time-ms", .type = number, .section = tuning, .metavar = "F", .variable = "HOROVOD_CYCLE_TIME", .readers = hvdrun | libhvd, .for_ranks = true, .fallback = "1", .yaml = "params.cycle_time_ms", .help = "longest time a tensor is held to be fused", .least = 0, .most = 1e6},
    {.id = "cache-capacity", .spellings = "--cache-capacity", .type = integer, .section = tuning, .metavar = "N", .variable = "HOROVOD_CACHE_CAPACITY", .readers = hvdrun | libhvd, .for_ranks = true, .fallback = "131072", .yaml = "params.cache_capacity", .help = "most tensors whose agreement is remembered; 0: none", .least = 0, .most = 1048576},
    {.id = "hierarchical-allreduce", .spellings = "--hierarchical-allreduce", .type = negatable, .section = tuning, .variable = "HOROVOD_HIERARCHICAL_ALLREDUCE", .readers = hvdrun | libhvd, .for_ranks = true, .yaml = "params.hierarchical_allreduce", .help = "sum on GPUs within hosts first, by NCCL (on CPUs this is always so)"},
    {.id = "hierarchical-allgather", .spellings = "--hierarchical-allgather", .type = negatable, .section = tuning, .variable = "HOROVOD_HIERARCHICAL_ALLGATHER", .readers = hvdrun | libhvd, .for_ranks = true, .yaml = "params.hierarchical_allgather", .help = "gather on GPUs host by host, by NCCL"},
    {.id = "torus-allreduce", .spellings = "--torus-allreduce", .type = negatable, .section = tuning, .variable = "HOROVOD_TORUS_ALLREDUCE", .readers = hvdrun | libhvd, .for_ranks = true, .yaml = "params.torus_allreduce", .help = "the same as --hierarchical-allreduce"},
    {.id = "mpi-threads-disable", .spellings = "--mpi-threads-disable", .type = negatable, .section = tuning, .variable = "HOROVOD_MPI_THREADS_DISABLE", .readers = hvdrun | libhvd, .for_ranks = true, .yaml = "library_options.mpi_threads_disable", .help = "MPI without threads"},
    {.id = "num-nccl-streams", .spellings = "--num-nccl-streams", .type = integer, .section = tuning, .metavar = "N", .variable = "HOROVOD_NUM_NCCL_STREAMS", .readers = hvdrun | libhvd, .for_ranks = true, .fallback = "1", .yaml = "library_options.num_nccl_streams", .help = "NCCL streams of each process set; batches use them in turn", .least = 1, .most = 16},
    {.id = "thread-affinity", .spellings = "--thread-affinity", .type = text, .section = tuning, .metavar = "CORE,...", .variable = "HOROVOD_THREAD_AFFINITY", .readers = hvdrun | libhvd, .for_ranks = true, .yaml = "library_options.thread_affinity", .help = "cores of the runtime's threads, by local rank"},
    // autotune
    {.id = "autotune", .spellings = "--autotune", .type = negatable, .section = autotune, .variable = "HOROVOD_AUTOTUNE", .readers = libhvd, .for_ranks = true, .fallback = "0", .yaml = "autotune.enabled", .help = "search for the fastest fusion and exchange settings while the job runs; your own settings stay"},
    {.id = "autotune-log-file", .spellings = "--autotune-log-file", .type = text, .section = autotune, .metavar = "FILE", .variable = "HOROVOD_AUTOTUNE_LOG", .readers = libhvd, .for_ranks = true, .yaml = "autotune.log_file", .help = "CSV file of all tried settings, written by rank 0"},
    {.id = "autotune-from", .spellings = "--autotune-from", .type = text, .section = autotune, .metavar = "FILE", .variable = "HVD_AUTOTUNE_FROM", .readers = libhvd, .for_ranks = true, .yaml = "autotune.from", .help = "use the settings that --autotune found for a job of this shape, from a file on rank 0's host; with --autotune, start from them and write the new ones"},
    {.id = "autotune-warmup-samples", .spellings = "--autotune-warmup-samples", .type = integer, .section = autotune, .metavar = "N", .variable = "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", .readers = libhvd, .for_ranks = true, .fallback = "3", .yaml = "autotune.warmup_samples", .help = "windows that are discarded at the start", .least = 0},
    {.id = "autotune-steps-per-sample", .spellings = "--autotune-steps-per-sample", .type = integer, .section = autotune, .metavar = "N", .variable = "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", .readers = libhvd, .for_ranks = true, .fallback = "10", .yaml = "autotune.steps_per_sample", .help = "steps in a window; windows of two settings alternate", .least = 1},
    {.id = "autotune-bayes-opt-max-samples", .spellings = "--autotune-bayes-opt-max-samples", .type = integer, .section = autotune, .metavar = "N", .variable = "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", .readers = libhvd, .for_ranks = true, .fallback = "20", .yaml = "autotune.bayes_opt_max_samples", .help = "settings tried before tuning ends", .least = 1},
    {.id = "autotune-gaussian-process-noise", .spellings = "--autotune-gaussian-process-noise", .type = number, .section = autotune, .metavar = "F", .variable = "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", .readers = nobody, .for_ranks = true, .fallback = "0.8", .yaml = "autotune.gaussian_process_noise", .help = "accepted; autotune measures the noise itself", .effect = none, .remark = "autotune measures the noise itself; this value is not used", .least = 0},
    // stall
    {.id = "stall-check", .spellings = "--stall-check", .type = negatable, .section = stall, .variable = "HOROVOD_STALL_CHECK_DISABLE", .readers = hvdrun | libhvd, .for_ranks = true, .conversion = inverted, .fallback = "1", .yaml = "stall_check.enabled", .help = "warn when ranks wait for one another"},
    {.id = "stall-check-warning-time-seconds", .spellings = "--stall-check-warning-time-seconds", .type = number, .section = stall, .metavar = "S", .variable = "HOROVOD_STALL_CHECK_TIME_SECONDS", .readers = hvdrun | libhvd, .for_ranks = true, .fallback = "60", .yaml = "stall_check.warning_time_seconds", .help = "time until the warning", .least = 0, .most = 1e9},
    {.id = "stall-check-shutdown-time-seconds", .spellings = "--stall-check-shutdown-time-seconds", .type = number, .section = stall, .metavar = "S", .variable = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", .readers = hvdrun | libhvd, .for_ranks = true, .fallback = "0", .yaml = "stall_check.shutdown_time_seconds", .help = "time until the job is ended; 0: never", .least = 0, .most = 1e9},
    {.id = "agreement", .spellings = "--agreement", .type = text, .section = stall, .metavar = "off|report|stop|repair", .variable = "HVD_AGREEMENT", .readers = hvdrun | libhvd | python, .for_ranks = true, .fallback = "off", .yaml = "agreement.mode", .help = "compare the ranks' results, parameters and optimizer state; report, or stop at the first that differs and at NaN; repair gives a rank the others' parameters", .choices = "off,report,stop,repair"},
    {.id = "agreement-steps", .spellings = "--agreement-steps", .type = integer, .section = stall, .metavar = "N", .variable = "HVD_AGREEMENT_STEPS", .readers = hvdrun | libhvd | python, .for_ranks = true, .fallback = "500", .yaml = "agreement.steps", .help = "for --agreement: steps in which every byte is compared; 1: all bytes in each step", .least = 1, .most = 1000000},
    // logging
    {.id = "log-level", .spellings = "--log-level", .type = text, .section = logging, .metavar = "LEVEL", .variable = "HOROVOD_LOG_LEVEL", .readers = hvdrun | libhvd, .for_ranks = true, .fallback = "warning", .yaml = "logging.level", .help = "level of the runtime's log: trace, debug, info, warning, error, fatal", .choices = "trace,debug,info,warning,error,fatal"},
    {.id = "log-with-timestamp", .spellings = "--log-with-timestamp", .type = negatable, .section = logging, .variable = "HOROVOD_LOG_HIDE_TIME", .readers = hvdrun | libhvd, .for_ranks = true, .conversion = inverted, .fallback = "0", .yaml = "logging.with_timestamp", .help = "time in the runtime's messages", .opposites = "--log-without-timestamp,--log-hide-timestamp"},
    // elastic
    {.id = "min-np", .spellings = "--min-np,--min-num-proc", .type = integer, .section = elastic, .metavar = "N", .yaml = "elastic.min_np", .keyword = "min_num_proc,min_np", .help = "fewest ranks to continue with (default: -np); makes the job elastic", .least = 1},
    {.id = "max-np", .spellings = "--max-np,--max-num-proc", .type = integer, .section = elastic, .metavar = "N", .yaml = "elastic.max_np", .keyword = "max_num_proc,max_np", .help = "most ranks to grow to (default: all slots); makes the job elastic", .least = 1},
    {.id = "slots-per-host", .spellings = "--slots-per-host,--slots", .type = integer, .section = elastic, .metavar = "N", .fallback = "1", .yaml = "elastic.slots_per_host", .keyword = "slots", .help = "ranks on a discovered host that has no number", .least = 1},
    {.id = "elastic-timeout", .spellings = "--elastic-timeout", .type = number, .section = elastic, .metavar = "S", .variable = "HOROVOD_ELASTIC_TIMEOUT", .readers = hvdrun | python, .for_ranks = true, .fallback = "600", .yaml = "elastic.timeout", .help = "longest wait for slots at the start, for ranks after a change, and for a new rank from its init() to the training", .least = 0.001, .most = 1e9},
    {.id = "state-dir", .spellings = "--state-dir", .type = text, .section = elastic, .metavar = "DIR", .variable = "HVD_STATE_DIR", .readers = hvdrun | python, .for_ranks = true, .yaml = "elastic.state_dir", .keyword = "state_dir", .help = "keep the last commit of hvd.elastic.run in this folder; the next run resumes from it"},
    {.id = "spares", .spellings = "--spares", .type = integer, .section = elastic, .metavar = "N", .fallback = "0", .yaml = "elastic.spares", .keyword = "spares", .help = "extra ranks on each host that are ready to replace a dead rank", .least = 0, .most = 64},
    {.id = "reset-limit", .spellings = "--reset-limit", .type = integer, .section = elastic, .metavar = "N", .yaml = "elastic.reset_limit", .keyword = "reset_limit", .help = "most changes of the world", .least = 0},
    {.id = "blacklist-cooldown-range", .spellings = "--blacklist-cooldown-range", .type = pair, .section = elastic, .metavar = "MIN MAX", .yaml = "elastic.blacklist_cooldown_range", .keyword = "cooldown_range", .help = "seconds before a slot that has failed twice is tried again (default: never)"},
    // horovod
    {.id = "mpi", .spellings = "--mpi", .type = flag, .section = horovod, .keyword = "use_mpi", .help = "accepted; there is one way to start and coordinate ranks"},
    {.id = "gloo", .spellings = "--gloo", .type = flag, .section = horovod, .keyword = "use_gloo", .help = "hvd.gloo_enabled() returns True; nothing else changes"},
    {.id = "jsrun", .spellings = "--jsrun", .type = flag, .section = horovod, .help = "accepted; hvdrun starts ranks itself", .effect = none, .remark = "ranks are started by hvdrun itself, in LSF allocations too; --jsrun changes nothing"},
    {.id = "gloo-timeout-seconds", .spellings = "--gloo-timeout-seconds", .type = number, .section = horovod, .metavar = "S", .variable = "HOROVOD_GLOO_TIMEOUT_SECONDS", .readers = nobody, .for_ranks = true, .yaml = "library_options.gloo_timeout_seconds", .help = "accepted; hvdrun has no gloo", .effect = none, .remark = "there is no gloo here; --gloo-timeout-seconds changes nothing", .least = 0},
    {.id = "disable-cache", .spellings = "--disable-cache", .type = flag, .section = horovod, .keyword = "disable_cache", .help = "accepted: hvdrun keeps no cache of earlier checks"},
    // other
    {.id = "help", .spellings = "-h,--help", .type = flag, .section = other, .help = "print this text"},
    {.id = "help-all", .spellings = "--help-all", .type = flag, .section = other, .help = "print every option"},
    {.id = "version", .spellings = "-v,--version", .type = flag, .section = other, .help = "print version and commit"},
    {.id = "check-build", .spellings = "-cb,--check-build", .type = flag, .section = other, .help = "print the features of this build"},
    {.id = "completion", .spellings = "--completion", .type = text, .section = other, .metavar = "SHELL", .help = "print the completion for bash, zsh or fish", .choices = "bash,zsh,fish"},
    {.id = "results", .spellings = "--results", .type = text, .section = other, .metavar = "FILE", .help = "file for the ranks' results (for hvd.run)", .hidden = true},
    {.id = "results-of", .spellings = "--results-of", .type = integer, .section = other, .metavar = "RANK", .keyword = "only", .help = "the only rank whose result is returned (for HorovodRunner)", .least = 0, .hidden = true},
    {.id = "parent", .spellings = "--parent", .type = integer, .section = other, .metavar = "PID", .help = "end when this process ends (for hvd.run)", .hidden = true},
    {.id = "dump-options", .spellings = "--dump-options", .type = flag, .section = other, .help = "print this table as JSON", .hidden = true},
    // Variables without an option.  runtime
    {.type = flag, .section = Section::runtime, .variable = "HVD_DETERMINISTIC", .readers = libhvd, .help = "1 requests bitwise equal results of an allreduce from run to run, within a node and across nodes, for any fusion and timing.  Results always have this property if the same ranks share the same nodes, so the variable changes nothing.", .effect = none},
    {.type = text, .section = Section::runtime, .variable = "HVD_BACKENDS", .readers = libhvd, .help = "Same value on all ranks: the backends for ranges of sizes, for measurements.  A list like shm_rings:1M-64M,pinned of nccl, pinned, shm_eager, shm_direct, shm_rings, between_nodes.  A backend runs only operations that it supports."},
    {.type = integer, .section = Section::runtime, .variable = "HVD_RANKS_PER_NODE", .readers = libhvd | tools, .fallback = "0", .help = "Splits a host into nodes of this many ranks, which then communicate as hosts do.  0: each host is one node.  With 1, addition follows the order of the ranks on any hosts: this is slower, but the bits no longer depend on the spread of ranks over hosts.", .least = 0, .most = 1048576},
    {.type = flag, .section = Section::runtime, .variable = "HVD_FILTER_PEERS", .readers = libhvd, .fallback = "1", .help = "0 on all ranks leaves the ports on which ranks listen open to everybody.  Otherwise, in a job over several hosts, only addresses of the job's hosts may connect to them.  This fails only if addresses are translated between hosts.  With --verbose each rank prints which connections it has closed."},
    {.type = flag, .section = Section::runtime, .variable = "HVD_STRICT", .readers = python, .fallback = "0", .help = "1 makes init() fail if another launcher seems to have started several processes and each would train alone."},
    // gpu
    {.type = text, .section = gpu, .variable = "HOROVOD_GPU_OPERATIONS", .readers = libhvd, .help = "NCCL, the default, or MPI.  With MPI, tensors on GPUs go through pinned host memory; MPI itself gets no memory of a GPU.", .choices = "NCCL,MPI"},
    {.type = text, .section = gpu, .variable = "HOROVOD_GPU_ALLREDUCE", .readers = libhvd, .help = "NCCL or MPI for allreduce only; takes precedence over HOROVOD_GPU_OPERATIONS.", .choices = "NCCL,MPI"},
    {.type = text, .section = gpu, .variable = "HOROVOD_GPU_ALLGATHER", .readers = libhvd, .help = "NCCL or MPI for allgather only; takes precedence over HOROVOD_GPU_OPERATIONS.", .choices = "NCCL,MPI"},
    {.type = text, .section = gpu, .variable = "HOROVOD_GPU_BROADCAST", .readers = libhvd, .help = "NCCL or MPI for broadcast only; takes precedence over HOROVOD_GPU_OPERATIONS.", .choices = "NCCL,MPI"},
    {.type = text, .section = gpu, .variable = "HOROVOD_GPU_ALLTOALL", .readers = libhvd, .help = "NCCL or MPI for alltoall only; takes precedence over HOROVOD_GPU_OPERATIONS.", .choices = "NCCL,MPI"},
    {.type = text, .section = gpu, .variable = "HOROVOD_GPU_REDUCESCATTER", .readers = libhvd, .help = "NCCL or MPI for reducescatter only; takes precedence over HOROVOD_GPU_OPERATIONS.", .choices = "NCCL,MPI"},
    {.type = text, .section = gpu, .variable = "HOROVOD_CPU_OPERATIONS", .readers = libhvd, .help = "If it is set and none of the variables above is, tensors on GPUs go through pinned host memory."},
    {.type = flag, .section = gpu, .variable = "HVD_TORCH_MEMORY", .readers = libhvd, .fallback = "1", .help = "0: buffers and results on GPUs come from the driver, not from torch's allocator."},
    {.type = flag, .section = gpu, .variable = "HVD_NCCL_WIDE", .readers = libhvd, .fallback = "0", .help = "1 on all ranks: sums of 16-bit floats on GPUs use 32 bits and are rounded once."},
    {.type = flag, .section = gpu, .variable = "HVD_NCCL_FLOAT8", .readers = libhvd, .fallback = "0", .help = "1 on all ranks: NCCL makes sums of 8-bit floats on GPUs, unless they are averaged or scaled.  This is a quarter of the traffic, but each step rounds and saturates.  It requires NCCL 2.24 and GPUs of compute capability 9.0.  Otherwise sums use 32 bits and are rounded once."},
    {.type = flag, .section = gpu, .variable = "HVD_NCCL_WINDOWS", .readers = libhvd, .fallback = "0", .help = "1 on all ranks: each process set's fusion buffer is memory of ncclMemAlloc, as large as the fusion threshold, and a symmetric window of NCCL.  It requires NCCL 2.27."},
    // frameworks
    {.type = flag, .section = frameworks, .variable = "HOROVOD_DYNAMIC_PROCESS_SETS", .readers = python, .fallback = "1", .help = "0: process sets can be given to init() only."},
    {.type = number, .section = frameworks, .variable = "HOROVOD_SPARK_START_TIMEOUT", .readers = python, .help = "Seconds that a job in Spark waits for executors, and for its ranks to start.  The start_timeout argument takes precedence.", .least = 0.001, .most = 1e9},
    {.type = integer, .section = frameworks, .variable = "HVD_TENSORFLOW_BATCH_BYTES", .readers = python, .fallback = "33554432", .help = "Bytes of gradients that TensorFlow submits in one operation.", .least = 1},
    {.type = flag, .section = frameworks, .variable = "HOROVOD_ENABLE_XLA_OPS", .readers = python, .fallback = "0", .help = "1 on all ranks: TensorFlow's allreduce with Sum or Average can be in a function that XLA compiles on the CPU (jit_compile=True).  Requires tensors of known shapes.  Tested with TensorFlow 2.21."},
    {.type = flag, .section = frameworks, .variable = "HVD_TENSORFLOW_GPU", .readers = python, .fallback = "0", .help = "1 on all ranks: TensorFlow's allreduce and broadcast leave tensors on the GPU.  Requires TensorFlow 2.13 and a driver for CUDA 12.5.  Tested only on a stand-in for a GPU.  Without it TensorFlow copies them to the host and back."},
    // files
    {.type = text, .section = files, .variable = "HVD_NCCL_LIBRARY", .readers = libhvd, .help = "Path of libnccl.so.2; replaces the framework's and the system's."},
    {.type = text, .section = files, .variable = "HVD_CUDA_LIBRARY", .readers = libhvd | python | tools, .help = "Path of libcuda.so.1; replaces the system's."},
    {.type = text, .section = files, .variable = "HVD_LIBRARY", .readers = python, .help = "Path of libhvd.so; replaces the one in the Python package."},
    {.type = text, .section = files, .variable = "HVD_RUN_PROGRAM", .readers = python, .help = "Path of the hvdrun that hvd.run() starts; replaces the installed one."},
    {.type = text, .section = files, .variable = "HVD_RANK_PROGRAM", .readers = hvdrun, .help = "Path of hvdrank; replaces the one beside hvdrun."},
    {.type = text, .section = files, .variable = "HVD_TERMINATION_LOG", .readers = hvdrun, .fallback = "/dev/termination-log", .help = "File that gets the headline of a failed job, if it exists: the terminationMessagePath of a Kubernetes pod."},
    {.type = text, .section = files, .variable = "HVD_KUBECTL", .readers = hvdrun, .help = "Path of the kubectl that reaches the hosts of a Kubernetes MPIJob; replaces the one that the job names."},
    {.type = flag, .section = files, .variable = "HVD_RANK_EXEC", .readers = guard, .fallback = "0", .help = "1: a Python rank starts the interpreter itself, even if a shared libpython could be embedded."},
    // testing
    {.type = number, .section = testing, .variable = "HVD_INIT_TIMEOUT", .readers = libhvd | python, .fallback = "600", .help = "Seconds that init() waits for the other ranks.", .least = 0.001, .most = 1e9},
    {.type = integer, .section = testing, .variable = "HVD_TREE_ARITY", .readers = libhvd, .fallback = "0", .help = "Children of a node's leader in the tree over nodes; 0: the built-in number.", .least = 0, .most = 1024},
    {.type = text, .section = testing, .variable = "HVD_TENSORFLOW_DEVICE_TYPE", .readers = python, .fallback = "GPU", .help = "Type of the TensorFlow device whose tensors are treated as a GPU's."},
    // job
    {.type = text, .section = job, .variable = "HVD_JOB", .readers = python | script | guard, .help = "The name of the job."},
    {.type = integer, .section = job, .variable = "HVD_RANK", .readers = script | python, .help = "The rank."},
    {.type = integer, .section = job, .variable = "HVD_SIZE", .readers = script | python, .help = "The number of ranks."},
    {.type = integer, .section = job, .variable = "HVD_LOCAL_RANK", .readers = script, .help = "The rank within its host."},
    {.type = integer, .section = job, .variable = "HVD_LOCAL_SIZE", .readers = script, .help = "The number of ranks on its host."},
    {.type = integer, .section = job, .variable = "HVD_CROSS_RANK", .readers = script, .help = "The index of its host among the hosts that have this local rank."},
    {.type = integer, .section = job, .variable = "HVD_CROSS_SIZE", .readers = script, .help = "The number of hosts that have this local rank."},
    {.type = text, .section = job, .variable = "HVD_HOST", .readers = script | guard, .help = "The name that hvdrun gives the host."},
    {.type = text, .section = job, .variable = "HVD_PROGRAMS", .readers = script | python, .help = "In a job of several programs: the numbers of their ranks, in the programs' order, comma-separated."},
    {.type = text, .section = job, .variable = "HVD_GPU", .readers = script | libhvd, .help = "The UUID or PCI address of the GPU that is planned for the rank."},
    {.type = flag, .section = job, .variable = "HOROVOD_ELASTIC", .readers = python | script, .fallback = "0", .help = "1: the job is elastic."},
    {.type = integer, .section = job, .variable = "HOROVOD_RANK", .readers = script | python, .fallback = "0", .help = "The same as HVD_RANK."},
    {.type = integer, .section = job, .variable = "HOROVOD_SIZE", .readers = script | python, .help = "The same as HVD_SIZE."},
    {.type = integer, .section = job, .variable = "HOROVOD_LOCAL_RANK", .readers = script, .help = "The same as HVD_LOCAL_RANK."},
    {.type = integer, .section = job, .variable = "HOROVOD_LOCAL_SIZE", .readers = script, .help = "The same as HVD_LOCAL_SIZE."},
    {.type = integer, .section = job, .variable = "HOROVOD_CROSS_RANK", .readers = script, .help = "The same as HVD_CROSS_RANK."},
    {.type = integer, .section = job, .variable = "HOROVOD_CROSS_SIZE", .readers = script, .help = "The same as HVD_CROSS_SIZE."},
    {.type = text, .section = job, .variable = "HOROVOD_HOSTNAME", .readers = script | python, .help = "The same as HVD_HOST."},
    {.type = text, .section = job, .variable = "HOROVOD_CONTROLLER", .readers = script | python, .help = "gloo with --gloo; otherwise unset."},
    // internal: from hvdrun to the guards
    {.type = text, .section = internal, .variable = "HVD_JOB_KEYS", .readers = guard, .help = "The key pair of a guard: public and secret key."},
    {.type = text, .section = internal, .variable = "HVD_FOLDER", .readers = guard, .help = "The host daemon's private folder, on another host than hvdrun's."},
    {.type = text, .section = internal, .variable = "HVD_JOB_DIR", .readers = guard, .help = "The job's own folder, on hvdrun's host."},
    {.type = text, .section = internal, .variable = "HVD_CONTROL", .readers = guard, .help = "Addresses of hvdrun, blank-separated."},
    {.type = text, .section = internal, .variable = "HVD_CONTROL_OTHERS", .readers = guard, .help = "Addresses of hvdrun in all its networks, blank-separated."},
    {.type = text, .section = internal, .variable = "HVD_SERVER_KEY", .readers = guard, .help = "hvdrun's public key."},
    {.type = text, .section = internal, .variable = "HVD_MPIRUN_ONLY", .readers = guard, .help = "Names of the variables that hvdrun sets for mpirun alone, blank-separated."},
    {.type = text, .section = internal, .variable = "HVD_HOST_CWD", .readers = guard, .help = "The path of the job's working folder on this host."},
    {.type = text, .section = internal, .variable = "HVD_HOST_SET_", .readers = guard, .help = "HVD_HOST_SET_NAME: the value of NAME on this host."},
    // internal: from hvdrun to its ssh agent, which mpirun starts
    {.type = text, .section = internal, .variable = "HVD_AGENT_SSH", .readers = hvdrun, .help = "The ssh program: words, blank-separated."},
    {.type = text, .section = internal, .variable = "HVD_AGENT_SEAL", .readers = hvdrun, .help = "munge: munge seals the secret, since the connection is not encrypted."},
    {.type = text, .section = internal, .variable = "HVD_AGENT_CWD", .readers = hvdrun, .help = "The working folder of the job."},
    {.type = text, .section = internal, .variable = "HVD_AGENT_PREFLIGHT", .readers = hvdrun, .help = "Shell text that runs first on a host."},
    {.type = text, .section = internal, .variable = "HVD_AGENT_LOGS", .readers = hvdrun, .help = "The folder for the output of ssh and the daemon."},
    // internal: from hvdrun --listen to the hvdrun that runs the job
    {.type = text, .section = internal, .variable = "HVD_JOINED_HOSTS", .readers = hvdrun, .help = "The manifest of the hosts that have joined."},
    // internal: from Spark's tasks to hvdrun --relay-send
    {.type = text, .section = internal, .variable = "HVD_RELAY_KEYS", .readers = hvdrun, .help = "The key pair of the sender."},
    {.type = text, .section = internal, .variable = "HVD_RELAY_SERVER_KEY", .readers = hvdrun, .help = "The public key of the listener."},
    // internal: from the guard to its rank
    {.type = integer, .section = internal, .variable = "HVD_LINK_FD", .readers = libhvd | guard | python, .fallback = "-1", .help = "The socket to the guard; -1: there is none.", .least = -1, .most = 1048576},
    {.type = integer, .section = internal, .variable = "HVD_KEY_FD", .readers = libhvd, .fallback = "-1", .help = "Memory with the key that ranks prove to each other; -1: there is none.", .least = -1, .most = 1048576},
    {.type = integer, .section = internal, .variable = "HVD_MEETING_FD", .readers = libhvd | python, .fallback = "-1", .help = "The socket to the host daemon, through which ranks find each other; -1: there is none.", .least = -1, .most = 1048576},
    {.type = flag, .section = internal, .variable = "HVD_ELASTIC_LATE", .readers = python, .fallback = "0", .help = "1: this rank started after others had trained."},
    {.type = integer, .section = internal, .variable = "HVD_STATUS_FD", .readers = libhvd | python, .fallback = "-1", .help = "The page in which a rank shows its state to its guard; -1: there is none.", .least = -1, .most = 1048576},
    {.type = integer, .section = internal, .variable = "HVD_RECORDER_FD", .readers = libhvd, .fallback = "-1", .help = "The memory in which a rank records its last steps for its guard; -1: there is none.", .least = -1, .most = 1048576},
    {.type = text, .section = internal, .variable = "HVD_SET_BY_HVDRUN", .readers = hvdrun, .help = "The settings of a job's hvdrun, for its ranks: a job that a rank starts does not take them."},
    {.type = flag, .section = internal, .variable = "HVD_TIMELINE_COLLECT", .readers = libhvd, .fallback = "0", .help = "1: hvdrun collects the timeline."},
    {.type = integer, .section = internal, .variable = "HVD_STACK_SIGNAL", .readers = python | guard, .help = "The signal that makes a rank write its Python stacks."},
    {.type = integer, .section = internal, .variable = "HVD_STACK_FD", .readers = python | guard, .help = "The memory file for these stacks."},
    {.type = text, .section = internal, .variable = "HVD_WATCH", .readers = guard, .help = "The abstract socket of the guard for what Python in the rank tells of torch.distributed."},
    {.type = text, .section = internal, .variable = "HVD_LIBPYTHON", .readers = guard, .help = "The libpython that hvdrank-python embeds."},
    {.type = text, .section = internal, .variable = "HVD_BOOT", .readers = guard, .help = "The program of a Python rank, as JSON."},
    {.type = text, .section = internal, .variable = "HVD_INIT", .readers = python, .help = "The process that has called init(), so that a program that replaces it can detect this."},
});
}();
// clang-format on

/// The number of rows with an option.  These rows come first; the variables without an option follow.
constexpr std::size_t count_options() {
  std::size_t count = 0;
  while (count < table.size() && table[count].is_option()) ++count;
  return count;
}
static_assert([] {
  for (std::size_t i = count_options(); i < table.size(); ++i)
    if (table[i].is_option() || !table[i].has_variable()) return false;
  return true;
}());

/// A variable of the table with one of @p types.  The compiler finds its row, and refuses a name without a row.
template <ValueType... types>
class Variable {
 public:
  consteval Variable(const char* name) : row_(row_of(name)) {}  // NOLINT(google-explicit-constructor): "HVD_X" is one
  template <ValueType... others>
  requires(sizeof...(types) == 0) constexpr Variable(Variable<others...> typed)
      : row_(typed.row()) {}  // NOLINT(google-explicit-constructor)
  constexpr std::size_t row() const { return row_; }
  constexpr const Option& option() const { return table[row_]; }

 private:
  static consteval std::size_t row_of(std::string_view name) {
    for (std::size_t i = 0; i < table.size(); ++i)
      if (name == table[i].variable) {
        if (sizeof...(types) != 0 && !((table[i].type == types) || ...)) throw "the variable has another type";
        return i;
      }
    throw "no row of the table has this variable";
  }

  std::size_t row_;
};

using AnyVariable = Variable<>;
using FlagVariable = Variable<ValueType::flag, ValueType::negatable>;
using IntegerVariable = Variable<ValueType::integer>;
using NumberVariable = Variable<ValueType::number>;
using TextVariable = Variable<ValueType::text>;

}  // namespace hvd::options
