/// @file daemon_manifest.h — hvdrun's description of the job for host daemons; all of them get the same.
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
  std::string pmix_namespace;   ///< random, so that strangers cannot guess it
  std::vector<Host> hosts;      ///< of the whole job
  bool oversubscribed = false;  ///< more ranks than cores on some host
  std::vector<int> programs;    ///< number of ranks of each program, in order; empty: there is one program
};

std::string to_json(const DaemonManifest& m);
/// Throws Error{usage} naming the field.
DaemonManifest daemon_manifest_from_json(const std::string& text);

}  // namespace hvd::wire
