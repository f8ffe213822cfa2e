/// hvdrun: reads the command line, decides, then hands over to the supervisor.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/files/leftovers.h"
#include "base/files/trust.h"
#include "base/process/signals.h"
#include "base/text.h"
#include "launcher/commit.h"
#include "launcher/control/commands/jobs.h"
#include "launcher/doctor/doctor.h"
#include "launcher/job/job.h"
#include "launcher/job/outer_job.h"
#include "launcher/job/result_files.h"
#include "launcher/job/unused_options.h"
#include "launcher/join/join.h"
#include "launcher/join/listen.h"
#include "launcher/join/pass_script.h"
#include "launcher/mpirun/remote_agent.h"
#include "launcher/options/help.h"
#include "launcher/output/printer.h"
#include "launcher/process/open_files.h"
#include "launcher/process/process_tree.h"
#include "launcher/remote/ask_hosts.h"
#include "launcher/remote/sync_folder.h"
#include "launcher/spark/host_shell.h"
#include "launcher/spark/relay.h"
#include "launcher/supervise/supervise.h"
#include "launcher/verdict/explain.h"
#include "launcher/verdict/verdict_output.h"
#include "placement/machine.h"

namespace hvd::launcher {
namespace {

int print_version() {
  std::string text = "hvdrun " HVD_VERSION;
  if (*commit) text += std::string(" (commit ") + commit + ")";
  return std::puts(text.c_str()) < 0;
}

int check_build() {
  std::printf(
      "hvdrun " HVD_VERSION
      "\n\nControllers\n  [X] MPI (Open MPI 4.1, 5.x)\n  [ ] Gloo\n\nOperations\n  [X] shared memory\n  [X] MPI\n"
      "  [X] NCCL 2.18 and later (the framework's own copy, HVD_NCCL_LIBRARY, or libnccl.so.2: found at run time)\n"
      "  " HVD_GPU_KERNELS
      "\n\nPayloads\n"
      "  [X] .pkl  [X] .py  [X] -m module  [X] command\n");
  try {
    const Mpirun mpirun = find_mpirun("", environment_value("PATH") ? environment_value("PATH") : "", own_folder());
    std::printf("\nmpirun\n  %s (Open MPI %s)\n", mpirun.program.c_str(),
                mpirun.flavour == Flavour::openmpi4 ? "4" : "5");
  } catch (const Error& e) { std::printf("\nmpirun\n  %s (%s)\n", printable(e.what()).c_str(), e.hint.c_str()); }
  const std::size_t gpus = placement::read_gpus().size();
  std::printf("\nGPUs\n  %zu here%s\n", gpus, gpus == 0 ? "; tensors on the CPU need none" : "");
  return 0;
}

/// Throws Error{usage} for --json without an option that prints JSON, and for --show-map together with --dry-run.
void refuse_half_requests(const Settings& given) {
  const bool map = given.flag("show-map"), plan = given.flag("dry-run");
  if (map && plan) throw Error(Code::usage, "--show-map", "cannot be given with --dry-run", "keep one of them");
  if (given.flag("json") && !map && !plan && !(given.has("report") && given.flag("report")))
    throw Error(Code::usage, "--json", "says how --dry-run, --show-map or --report prints", "add one of them");
}

/// Options behind the program are the program's.  If nothing names the number of ranks, the user mostly meant hvdrun's.
void remark_on_misplaced_options(const CommandLine& line) {
  if (line.settings.has("num-proc") || line.settings.has("hosts") || line.prefix == PayloadPrefix::dashes) return;
  for (std::size_t i = 1; i < line.payload.size(); ++i)
    for (const char* ours : {"-np", "--num-proc", "-H", "--hosts", "--hostfile"})
      if (line.payload[i] == ours) {
        std::fprintf(
            stderr, "hvdrun: %s comes after %s, so hvdrun passes it to that program; hvdrun's own options come first\n",
            ours, printable(line.payload[0]).c_str());
        return;
      }
}

/// A ":" that starts no program is an argument.  Mostly the user meant a further program.
void remark_on_colon(const CommandLine& line) {
  const std::vector<std::string>& words = line.further.empty() ? line.payload : line.further.back().payload;
  const PayloadPrefix prefix = line.further.empty() ? line.prefix : line.further.back().prefix;
  if (prefix == PayloadPrefix::dashes || std::find(words.begin(), words.end(), ":") == words.end()) return;
  std::fprintf(stderr,
               "hvdrun: the \":\" goes to %s as an argument; a further program begins with -np: : -np 6 actor.py\n",
               printable(words[0]).c_str());
}

/// Columns of the terminal; 0: there is no terminal, so lines have no limit.
std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

int show_map(Settings settings) {
  Job job;
  job.settings = std::move(settings);
  place_ranks(job, environment_value);
  require_known(job.hosts);
  if (!job.settings.has("topology") && !(job.map.all_local() && placement::read_gpus().empty())) {
    job.rank_program = find_rank_program(environment_value);
    std::string python;
    try {
      const std::string found = choose_python(job.settings.text("python"), environment_value, own_folder());
      need_trusted_program(job, found, job.settings.text("python"));
      python = found;
    } catch (const Error&) {}  // the map needs none
    look_at_machines(job, python);
  }
  share_out(job, environment_value);
  const std::string text =
      job.settings.flag("json") ? map_json(job.map, job.machines) : map_text(job.map, job.machines);
  return std::fputs(printable_lines(text).c_str(), stdout) < 0;
}

/// Opens /dev/null for each of the descriptors 0, 1 and 2 that our parent has closed.  Otherwise the next file that
/// hvdrun opens would become a standard stream.
void fill_standard_descriptors() {
  for (int fd; (fd = ::open("/dev/null", O_RDWR)) >= 0;)
    if (fd > STDERR_FILENO) {
      ::close(fd);
      return;
    }
}

/// hvdrun mcp: becomes a server for agents, which is Python (src/python/hvd/_job/mcp_server.py).
int serve_agents(const std::vector<std::string>& words) {
  if (words.size() == 1 && (words[0] == "--help" || words[0] == "-h"))
    return std::fputs(
               "Usage: hvdrun mcp [--python PATH]\n"
               "An MCP server on standard input and output: an agent sees your jobs (ps, top, stacks, report, "
               "verdict),\n"
               "and changes nothing.  pip install 'hvdrun[mcp]'\n",
               stdout) < 0;
  const CommandLine line = read_command_line(words, environment_value);
  if (!line.payload.empty())
    throw Error(Code::usage, line.payload[0], "hvdrun mcp runs no program", "hvdrun mcp --help");
  Job job;
  job.settings = line.settings;
  const std::string typed = job.settings.text("python");
  const std::string python = choose_python(typed, environment_value, own_folder());
  need_trusted_program(job, python, typed);
  // Python puts the working folder into the path of modules, where anybody may have left some.
  const char* start =
      "import sys; sys.path[:] = [p for p in sys.path if p]; from hvd._job.mcp_server import main; main(sys.argv[1])";
  if (const char* path = environment_value("PYTHONPATH")) ::setenv("PYTHONPATH", absolute_only(path).c_str(), 1);
  const std::string self = own_folder() + "/hvdrun";
  restore_signals();
  ::execl(python.c_str(), python.c_str(), "-c", start, self.c_str(), nullptr);
  throw Error(Code::unavailable, python, errno_text(errno));
}

/// Writes the verdict of an error before the job's loop.  The loop writes the verdict of its own errors.
void tell_failed_start(const std::string& verdict_file, const Error& error) {
  JudgedJob job;
  job.started = job.ended = wall_seconds();
  const std::string trouble = tell_failed_start(verdict_file, job, error);
  if (!trouble.empty()) std::fprintf(stderr, "%s\n", printable(trouble).c_str());
}

/// --sync.  Tells the error of each host, and throws the last.
void copy_folder(Job& job) {
  const std::vector<Error> failures = sync_folder(job, environment_value);
  for (std::size_t i = 0; i + 1 < failures.size(); ++i) std::fputs(spoken(failures[i]).c_str(), stderr);
  if (!failures.empty()) throw Error(failures.back());
}

void tell(const std::vector<std::string>& remarks) {
  for (const std::string& remark : remarks) std::fprintf(stderr, "hvdrun: %s\n", printable(remark).c_str());
}

int run(const std::vector<std::string>& args) {
  forget_outer_job();
  CommandLine line = read_command_line(args, environment_value);
  const Settings& given = line.settings;
  if (given.flag("help") || given.flag("help-all"))
    return std::fputs(help_text(given.flag("help-all"), terminal_columns()).c_str(), stdout) < 0;
  if (given.flag("version")) return print_version();
  if (given.flag("check-build")) return check_build();
  if (given.has("completion")) return std::fputs(completion(given.text("completion")).c_str(), stdout) < 0;
  if (given.flag("dump-options")) return std::fputs(dump_options().c_str(), stdout) < 0;
  if (const auto parent = given.integer("parent")) end_with_parent(*parent);
  refuse_half_requests(given);
  remark_on_misplaced_options(line);
  remark_on_colon(line);
  tell(given.remarks());

  const bool starts = !given.flag("dry-run") && !given.flag("show-map");
  const std::string verdict_file = given.text("verdict-filename");
  const std::string verdict_where = given.has("verdict-filename") ? given.find("verdict-filename")->where : "";
  Job job;
  ResultPipes pipes;
  try {
    if (given.has("listen"))
      if (const auto code = listen_for_hosts(args, line.settings)) return *code;
    if (given.flag("show-map")) return show_map(std::move(line.settings));
    job = prepare(std::move(line), environment_value);
    tell(remarks_on_unused(job));
    if (starts) allow_files(job.map.ranks.size(), job.map.all_local() && job.launcher.kind == LauncherKind::daemons);
    if (starts) pipes = need_result_files(job.settings);
    if (starts && job.map.all_local()) need_state_folder(job.settings);
    tell(pipes.remarks);
    if (starts && job.settings.has("sync")) copy_folder(job);
  } catch (const Error& e) {
    const bool no_verdict = !verdict_where.empty() && e.where == verdict_where;  // the error itself says so
    if (starts) tell_failed_start(no_verdict ? "" : verdict_file, e);
    throw;
  }
  if (!job.settings.flag("dry-run")) return supervise(job);
  share_out(job, environment_value);
  const std::string text = job.settings.flag("json") ? dry_run_json(job) : dry_run_text(job);
  return std::fputs(printable_lines(text).c_str(), stdout) < 0;
}

}  // namespace
}  // namespace hvd::launcher

namespace {

int dispatch(const std::vector<std::string>& args) {
  using namespace hvd::launcher;
  const std::string first = args.empty() ? "" : args[0];
  const std::vector<std::string> rest(args.begin() + (args.empty() ? 0 : 1), args.end());
  if (first == "--remote-agent") return remote_agent(rest);
  if (first == "--host-shell") return host_shell(rest);
  if (first == "--agents-folder") return agents_folder(rest);
  if (first == "--pass-script") return pass_script(rest);
  if (first == "join") return join_job(read_command_line(rest, hvd::environment_value), hvd::environment_value);
  if (first == "--relay-listen") return relay_listen(rest);
  if (first == "--relay-send") return relay_send(rest);
  if (first == "mcp") return serve_agents(rest);
  if (first == "explain") return explain(rest);
  if (first == "doctor") return doctor(read_command_line(rest, hvd::environment_value), hvd::environment_value);
  for (const char* word : {"ps", "top", "stacks", "timeline", "attach", "kill"})
    if (first == word) return job_command(args);
  return run(args);
}

/// Throws when standard output could not be written, which exit() ignores.
void flush_stdout() {
  if (std::fflush(stdout) != 0 && errno != EPIPE)
    throw hvd::Error(hvd::Code::unavailable, "standard output", "cannot be written: " + hvd::errno_text(errno));
}

}  // namespace

int main(int argc, char** argv) {
  using namespace hvd;
  take_over_signals();
  launcher::fill_standard_descriptors();
  ::umask(::umask(077) & 077);  // with other umasks hvdrun could not enter folders that it makes
  try {
    const int code = dispatch({argv + 1, argv + argc});
    flush_stdout();
    return code;
  } catch (const Error& e) {
    std::fputs(launcher::spoken(e).c_str(), stderr);
    return static_cast<int>(e.code);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "hvdrun: internal error: %s\n", printable(e.what()).c_str());
    return static_cast<int>(Code::internal);
  }
}
