#include "rank/under_mpirun/mpirun_daemon.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "base/network/listen_filter.h"
#include "base/process/process.h"

namespace hvd::rank {
namespace {

/// mpirun's daemon, which is the watchdog's parent.  0: the daemon is gone, or this is mpirun's own host.
pid_t find_daemon() {
  const auto watchdog = process_entry(::getppid());
  const pid_t above = watchdog ? watchdog->parent : 0;
  const std::string name = above > 1 ? process_name(above) : "";
  return name == "orted" || name == "prted" ? above : 0;
}

/// True if the daemon has living children other than this guard's watchdog.
bool has_other_children(pid_t daemon) {
  const std::vector<pid_t> children = children_of(daemon);
  return std::any_of(children.begin(), children.end(),
                     [](pid_t child) { return child != ::getppid() && !process_name(child).empty(); });
}

}  // namespace

DaemonEnd::Order DaemonEnd::next(Time now, Time reported_at, bool daemon_is_there, bool has_other_children) {
  if (!daemon_is_there) return Order::done;
  if (!asked_at_) {
    if (has_other_children && now - reported_at < others_may_end) return Order::wait;
    asked_at_ = now;
    return Order::terminate;
  }
  return now - *asked_at_ < daemon_may_end ? Order::wait : Order::kill;
}

void MpirunDaemon::close_listeners() {
  if (const pid_t daemon = find_daemon()) hvd::close_listeners(daemon);
}

bool MpirunDaemon::end(DaemonEnd::Time now, DaemonEnd::Time reported_at) {
  const pid_t daemon = find_daemon();
  switch (end_.next(now, reported_at, daemon != 0, daemon != 0 && has_other_children(daemon))) {
    case DaemonEnd::Order::wait:
      return false;
    case DaemonEnd::Order::terminate:
      ::kill(daemon, SIGTERM);
      return false;
    case DaemonEnd::Order::kill:
      ::kill(daemon, SIGKILL);
      return true;
    case DaemonEnd::Order::done:
      return true;
  }
  return true;
}

}  // namespace hvd::rank
