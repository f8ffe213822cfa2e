/// @file launch_plan.h — turns a manifest into a process to start.
#pragma once
#include <string>

#include "rank/launch/binding.h"
#include "rank/launch/spawn.h"
#include "wire/manifest/manifest.h"

namespace hvd::rank {

struct LaunchPlan {
  ProcessSpec launch;
  Fd boot;               ///< the bootstrap's text for a .pkl, held until the rank has inherited it
  std::string python;    ///< "embedded", "exec", or "" for a command
  std::string kept_out;  ///< why imports do not look beside the payload; empty: they do
};

/// Descriptors that the rank inherits; -1: none.
struct InheritedFds {
  int link = -1;         ///< the rank's end of the link
  int payload = -1;      ///< the .pkl's bytes
  int stack = -1;        ///< the file for its Python frames (stack_capture.h)
  int status_page = -1;  ///< wire/shared/status_page.h
  int recorder = -1;     ///< wire/shared/recorder_memory.h
  int key = -1;          ///< the key by which ranks know each other
  int meeting = -1;      ///< the socket to the host daemon (wire/messages/meeting_message.h)
};

/// @p mine  the guard's own environment.
/// Throws Error{usage, unavailable} with one line for the user.
LaunchPlan plan_launch(const wire::RankManifest& m, const Environment& mine, const Binding& binding, InheritedFds fds);

}  // namespace hvd::rank
