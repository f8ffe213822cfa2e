#include "launcher/spark/host_shell.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/process/process.h"
#include "base/text.h"
#include "launcher/process/process_tree.h"
#include "launcher/process/script_shell.h"
#include "launcher/process/signal_queue.h"

namespace hvd::launcher {

int host_shell(const std::vector<std::string>& args) {
  const auto parent = args.size() == 1 ? to_integer(args[0]) : std::nullopt;
  if (!parent) throw Error(Code::usage, "--host-shell", "is for a Spark task's use");
  SignalQueue signals;
  end_with_parent(static_cast<int>(*parent));
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

}  // namespace hvd::launcher
