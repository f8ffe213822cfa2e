#include "launcher/process/child_setup.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/process/signals.h"

namespace hvd::launcher {

void set_up_child(pid_t parent) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  restore_signals();
}

}  // namespace hvd::launcher
