/// @file rank_environment.h — the guard's own environment, and the environment of its rank.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "wire/channel/channel.h"
#include "wire/manifest/manifest.h"

namespace hvd::rank {

using Environment = std::map<std::string, std::string>;

/// Facts about this process, from the environment that mpirun or hvdrun gave it.
struct LaunchContext {
  int rank = -1;
  std::string job;
  std::vector<std::string> addresses;          ///< where hvdrun listens; the unix socket alone on its own host
  std::vector<std::string> other_addresses{};  ///< for a daemon: where hvdrun listens in further networks
  bool local = false;                          ///< on hvdrun's own host: addresses is the unix socket
  std::string server_key;
  std::string host;  ///< as hvdrun calls this host, if it said; else the machine's own name
  wire::KeyPair client;
  std::string folder{};     ///< for a daemon on another host: the private folder, which the daemon removes at its end
  int environment_fd = -1;  ///< NAME=value texts for the rank come here, from the host daemon; -1: mpirun gave them
  int channel_fd = -1;      ///< connection through the host daemon; -1: the guard connects to `addresses`
  int meeting_fd = -1;  ///< the rank's socket to the host daemon (wire/messages/meeting_message.h); -1: there is none
};

struct Binding;  // binding.h

/// Reads HVD_* and the launcher's rank, then removes the job's secret from this process's environment, and from
/// /proc/PID/environ.  Throws Error{usage} when hvdrun did not start this process.
LaunchContext take_launch_context();
/// Like take_launch_context(), for a host daemon, which has no rank.
LaunchContext take_daemon_context();

/// The rank's whole environment: manifest.env, then mpirun's own variables from @p mine, then ours.
/// OMP_NUM_THREADS and the GPUs come from @p binding; a thread number that the user set stays.
Environment rank_environment(const wire::RankManifest& m, const Environment& mine, const Binding& binding);

/// This process's environment.
Environment current_environment();

}  // namespace hvd::rank
