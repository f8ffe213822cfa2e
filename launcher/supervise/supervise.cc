#include "launcher/supervise/supervise.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>

#include "base/error.h"
#include "launcher/supervise/supervisor.h"

namespace hvd::launcher {

void end_with_parent(int pid) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != pid) throw Error(Code::unavailable, "--parent", "process " + std::to_string(pid) + " is gone");
}

int supervise(JobPlan& job) { return Supervisor(job).run(); }

}  // namespace hvd::launcher
