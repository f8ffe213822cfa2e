#include "launcher/process/process_tree.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>

#include "base/error.h"

namespace hvd::launcher {

void reap_orphans(const std::vector<pid_t>& own) {
  for (;;) {
    siginfo_t ended{};
    if (::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) return;
    if (std::find(own.begin(), own.end(), ended.si_pid) != own.end())
      return;  // the part that waits for this child reaps it first
    ::waitpid(ended.si_pid, nullptr, WNOHANG);
  }
}

void end_with_parent(int pid) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != pid) throw Error(Code::unavailable, "--parent", "process " + std::to_string(pid) + " is gone");
}

}  // namespace hvd::launcher
