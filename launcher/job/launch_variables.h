/// @file launch_variables.h — what ranks find in their environment when another launcher starts them, so that scripts
/// written for torchrun, or for Horovod's own launcher, run unchanged.
#pragma once
#include <map>
#include <string>

#include "base/file.h"
#include "launcher/mapping/job_map.h"

namespace hvd::launcher {

/// A TCP port that is kept free for a rank: bound here, so that the kernel gives it to nobody who asks for any port,
/// but not listening, so that the rank's own bind() succeeds (both with SO_REUSEADDR, as all servers set it).
class HeldPort {
 public:
  /// Throws Error{unavailable} where no port is to be had.
  HeldPort();
  int number() const { return number_; }

 private:
  Fd socket_;
  int number_ = 0;
};

/// Where the ranks of a job meet: a server of the script's own, which rank 0 starts.
struct MeetingPoint {
  std::string address;  ///< numeric
  int port = 0;
};

/// A port for a rank 0 on another host, which cannot be held from here: below those that kernels give away by
/// themselves, and another one for each job.
int port_on_another_host(const std::string& job_id);

/// torchrun's variables: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and so on.  A node is a host.  Pure.
std::map<std::string, std::string> torchrun_variables(const JobMap& map, const MappedRank& rank,
                                                      const MeetingPoint& meeting, const std::string& job_id);

/// Those of `horovodrun --gloo`: HOROVOD_RANK and so on.  Pure.
std::map<std::string, std::string> horovodrun_variables(const JobMap& map, const MappedRank& rank);

}  // namespace hvd::launcher
