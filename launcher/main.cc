/// hvdrun: reads the command line, decides, then hands over to the supervisor.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "launcher/doctor/ask.h"
#include "launcher/doctor/doctor.h"
#include "launcher/job.h"
#include "launcher/mpirun/agent.h"
#include "launcher/spark/host_shell.h"
#include "launcher/spark/relay.h"
#include "launcher/supervise/live.h"
#include "launcher/supervise/supervise.h"
#include "place/machine.h"

namespace hvd::launcher {
namespace {

const char* environment(const char* name) { return std::getenv(name); }

int check_build() {
  std::printf(
      "hvdrun " HVD_VERSION
      "\n\nControllers\n  [X] MPI (Open MPI 4.1, 5.x)\n  [ ] Gloo\n\nOperations\n  [X] shared memory\n  [X] MPI\n"
      "  [X] NCCL 2.18 and later (the framework's own copy, HVD_NCCL_LIBRARY, or libnccl.so.2: found at run time)\n"
      "  " HVD_GPU_KERNELS
      "\n\nPayloads\n"
      "  [X] .pkl  [X] .py  [X] -m module  [X] command\n");
  try {
    const Mpirun mpirun = find_mpirun("", std::getenv("PATH") ? std::getenv("PATH") : "", own_folder());
    std::printf("\nmpirun\n  %s (Open MPI %s)\n", mpirun.program.c_str(),
                mpirun.flavour == Flavour::openmpi4 ? "4" : "5");
  } catch (const Error& e) { std::printf("\nmpirun\n  %s (%s)\n", e.what(), e.hint.c_str()); }
  const std::size_t gpus = place::read_gpus().size();
  std::printf("\nGPUs\n  %zu here%s\n", gpus, gpus == 0 ? "; tensors on the CPU need none" : "");
  return 0;
}

int show_map(Settings settings) {
  JobPlan job;
  job.settings = std::move(settings);
  place_ranks(job, environment);
  if (!job.settings.has("topology") && !(job.plan.all_local() && place::read_gpus().empty())) {
    job.rank_program = find_rank_program(environment);
    std::string python;
    try {
      python = choose_python(job.settings.text("python"), environment, own_folder());
    } catch (const Error&) {}  // the map needs none
    look_at_machines(job, python);
  }
  share_out(job, environment);
  const std::string text = job.settings.flag("json")  ? map_json(job.plan, job.machines)
                           : job.settings.flag("svg") ? map_svg(job.plan, job.machines)
                                                      : map_text(job.plan, job.machines);
  return std::fputs(text.c_str(), stdout) < 0;
}

int run(const std::vector<std::string>& args) {
  CommandLine line = read_command_line(args, environment);
  const Settings& given = line.settings;
  if (given.flag("help") || given.flag("help-all"))
    return std::fputs(help_text(given.flag("help-all")).c_str(), stdout) < 0;
  if (given.flag("version")) return std::puts("hvdrun " HVD_VERSION) < 0;
  if (given.flag("check-build")) return check_build();
  if (given.has("completion")) return std::fputs(completion(given.text("completion")).c_str(), stdout) < 0;
  if (given.flag("dump-options")) return std::fputs(dump_options().c_str(), stdout) < 0;
  if (const auto parent = given.integer("parent")) end_with_parent(*parent);
  for (const std::string& remark : given.remarks()) std::fprintf(stderr, "hvdrun: %s\n", remark.c_str());

  if (given.flag("show-map")) return show_map(std::move(line.settings));
  JobPlan job = prepare(std::move(line), environment);
  if (!job.settings.flag("dry-run")) return supervise(job);
  share_out(job, environment);
  const std::string text = job.settings.flag("json") ? dry_run_json(job) : dry_run_text(job);
  return std::fputs(text.c_str(), stdout) < 0;
}

}  // namespace
}  // namespace hvd::launcher

int main(int argc, char** argv) {
  using namespace hvd;
  const std::vector<std::string> args(argv + 1, argv + argc);
  try {
    if (!args.empty() && args[0] == "--remote-agent") return launcher::remote_agent({args.begin() + 1, args.end()});
    if (!args.empty() && args[0] == "--host-shell") return launcher::host_shell({args.begin() + 1, args.end()});
    if (!args.empty() && args[0] == "--relay-listen") return launcher::relay_listen({args.begin() + 1, args.end()});
    if (!args.empty() && args[0] == "--relay-send") return launcher::relay_send({args.begin() + 1, args.end()});
    if (!args.empty() && args[0] == "doctor")
      return launcher::doctor(launcher::read_command_line({args.begin() + 1, args.end()}, launcher::environment),
                              launcher::environment);
    for (const char* word : {"ps", "stacks", "kill"})
      if (!args.empty() && args[0] == word) return launcher::live_command(args);
    return launcher::run(args);
  } catch (const Error& e) {
    std::fprintf(stderr, "hvdrun: %s\n", e.what());
    if (!e.hint.empty()) std::fprintf(stderr, "        %s\n", e.hint.c_str());
    return static_cast<int>(e.code);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "hvdrun: internal error: %s\n", e.what());
    return static_cast<int>(Code::internal);
  }
}
