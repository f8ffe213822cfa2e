#include "launcher/spark/host_shell.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/files/own_folder.h"
#include "base/process/process.h"
#include "base/text.h"
#include "launcher/process/process_tree.h"
#include "launcher/process/script_shell.h"
#include "launcher/process/signal_queue.h"

namespace hvd::launcher {
namespace {

pid_t process_in(const std::vector<std::string>& args, const char* command) {
  const auto number = args.size() == 1 ? to_integer(args[0]) : std::nullopt;
  if (!number) throw Error(Code::usage, command, "is for use by Python programs in a cluster: it takes their process");
  return static_cast<pid_t>(*number);
}

}  // namespace

int host_shell(const std::vector<std::string>& args) {
  const pid_t parent = process_in(args, "--host-shell");
  SignalQueue signals;
  end_with_parent(parent);
  become_subreaper();
  ScriptShell shell(script_on_stdin());
  for (;;) {
    pollfd on[2] = {{signals.fd(), POLLIN, 0}, {shell.output_fd(), POLLIN, 0}};
    ::poll(on, shell.output_fd() < 0 ? 1 : 2, 200);
    while (const auto number = signals.next())
      if (*number != SIGCHLD) shell.stop();
    const auto code = shell.code();
    write_all(1, shell.read_output());
    if (code) return *code;
  }
}

int agents_folder(const std::vector<std::string>& args) {
  constexpr const char* prefix = "hvd-agents-";
  const pid_t owner = process_in(args, "--agents-folder");
  const std::string parent = place_for_own_folder();
  sweep_own_folders(parent, prefix);
  return std::puts(OwnFolder(parent, prefix, owner).release().c_str()) < 0;
}

}  // namespace hvd::launcher
