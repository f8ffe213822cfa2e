/// @file daemon_manifest.h — what hvdrun tells the host daemons about the job: to all the same.
#pragma once
#include <string>
#include <vector>

namespace hvd::wire {

struct DaemonManifest {
  struct Host {
    std::string name;        ///< as hvdrun calls it
    std::vector<int> ranks;  ///< by local rank
  };
  std::string job;              ///< as in HVD_JOB
  std::string pmix_namespace;   ///< random: no stranger can name it
  std::vector<Host> hosts;      ///< of the whole job
  bool oversubscribed = false;  ///< more ranks than cores on some host
  std::vector<int> programs;    ///< ranks of each program, in order; empty: there is one
};

std::string to_json(const DaemonManifest& m);
/// Throws Error{usage} naming the field.
DaemonManifest daemon_manifest_from_json(const std::string& text);

}  // namespace hvd::wire
