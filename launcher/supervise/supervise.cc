#include "launcher/supervise/supervise.h"

#include "launcher/supervise/supervisor.h"

namespace hvd::launcher {

int supervise(Job& job) { return Supervisor(job).run(); }

}  // namespace hvd::launcher
