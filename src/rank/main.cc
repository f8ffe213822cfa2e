/// @file main.cc — hvdrank: the host daemon; under mpirun, the watchdog and guard of one rank.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "base/environment.h"
#include "base/error.h"
#include "base/files/own_folder.h"
#include "base/process/signals.h"
#include "base/text.h"
#include "rank/diagnostics/stacks/stack_capture.h"
#include "rank/diagnostics/stacks/stopped_stack.h"
#include "rank/guard/guard.h"
#include "rank/host/host_daemon.h"
#include "rank/launch/rank_environment.h"
#include "rank/machine_report.h"
#include "rank/under_mpirun/watchdog.h"

namespace {

/// Opens the closed standard streams.  Otherwise the next opened file gets the number of a standard stream.
void open_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd)
    if (fcntl(fd, F_GETFD) < 0) static_cast<void>(open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY));
}

/// Makes a folder that process @p owner owns, for the shell that starts a daemon.  Prints the version and the path.
/// Removes the folders of earlier daemons.
int make_folder(int owner) {
  const std::string where = hvd::place_for_own_folder();
  hvd::sweep_own_folders(where, "hvdrank-");
  std::printf("hvdrank " HVD_VERSION " %s\n", hvd::OwnFolder(where, "hvdrank-", owner).release().c_str());
  return 0;
}

/// Runs a helper command; nothing if the arguments name no such command.
std::optional<int> run_helper(const std::string& what, const std::string& value) {
  if (what == "--folder") return make_folder(std::atoi(value.c_str()));
  if (what == "--remove-folder") return hvd::remove_own_folder(value) ? 0 : 1;
  if (what == "--native-stack") return hvd::rank::print_native_stack(std::atoi(value.c_str()));
  if (what == "--stopped-stack") return hvd::rank::run_handler_of_stopped(std::atoi(value.c_str()));
  return std::nullopt;
}

/// @param list        the ranks of this host: "0,1,2"
/// @param mpi_folder  the folder of the libmpi.so.40 that hvdrun found; empty: the dynamic loader's folders
/// @param elastic     the job's ranks may join and leave
int run_daemon(const std::string& list, const std::string& mpi_folder, bool elastic) {
  std::vector<int> ranks;
  for (const std::string& one : hvd::split(list, ','))
    if (const auto rank = hvd::to_integer(one); rank && *rank >= 0)
      ranks.push_back(static_cast<int>(*rank));
    else
      throw hvd::Error(hvd::Code::usage, "--daemon", "takes the ranks of this host, such as 0,1,2");
  return hvd::rank::run_host_daemon(hvd::rank::take_daemon_context(), ranks, mpi_folder, elastic);
}

}  // namespace

int main(int argc, char** argv) {
  hvd::take_over_signals();
  if (argc > 1 && std::strcmp(argv[1], "--version") == 0) {
    std::puts("hvdrank " HVD_VERSION);
    return 0;
  }
  if (argc > 1 && std::strcmp(argv[1], "--machine") == 0)
    _exit(hvd::rank::print_machine(hvd::rank::current_environment()));
  open_standard_streams();
  try {
    if (argc > 2)
      if (const auto code = run_helper(argv[1], argv[2])) return *code;
    if (argc > 2 && std::strcmp(argv[1], "--daemon") == 0) return run_daemon(argv[2], argc > 3 ? argv[3] : "", false);
    if (argc > 2 && std::strcmp(argv[1], "--elastic-daemon") == 0) return run_daemon(argv[2], "", true);
    const hvd::rank::LaunchContext call = hvd::rank::take_launch_context();
    return hvd::rank::watch_guard([&call] { return hvd::rank::run_guard(call); });
  } catch (const hvd::Error& e) {
    std::fprintf(stderr, "%s%s%s\n", e.what(), e.hint.empty() ? "" : "\n  ", e.hint.c_str());
    return static_cast<int>(e.code);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "hvdrank: %s\n", e.what());
    return static_cast<int>(hvd::Code::internal);
  }
}
