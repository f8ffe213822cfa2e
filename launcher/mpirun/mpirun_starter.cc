#include "launcher/mpirun/mpirun_starter.h"

#include "base/network/listen_filter.h"

namespace hvd::launcher {

void MpirunStarter::close_to_strangers(bool complete) {
  if (complete || !is_closed_) is_closed_ = close_listeners(process_.pid()) > 0;
}

}  // namespace hvd::launcher
