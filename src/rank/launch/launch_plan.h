/// @file launch_plan.h — from a manifest to the process that it asks for.
#pragma once
#include <string>

#include "rank/launch/binding.h"
#include "rank/launch/spawn.h"
#include "wire/manifest.h"

namespace hvd::rank {

struct LaunchPlan {
  ProcessSpec launch;
  Fd boot;               ///< the .pkl bootstrap's text, kept until the rank has it
  std::string python;    ///< "embedded", "exec", or "" for a command
  std::string kept_out;  ///< why imports do not look beside the payload; empty: they do
};

/// What the rank inherits; -1: it has none of that.
struct InheritedFds {
  int link = -1;         ///< the rank's end of the link
  int payload = -1;      ///< the .pkl's bytes
  int stack = -1;        ///< where it writes its Python frames when asked
  int status_page = -1;  ///< wire/status_page.h
};

/// @p mine  the guard's own environment.
/// Throws Error{usage, unavailable} with one line for the user.
LaunchPlan plan_launch(const wire::RankManifest& m, const Environment& mine, const Binding& binding, InheritedFds fds);

}  // namespace hvd::rank
