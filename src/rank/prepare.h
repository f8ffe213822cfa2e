/// @file prepare.h — from a manifest to the process that it asks for.
#pragma once
#include <string>

#include "placement.h"
#include "spawn.h"
#include "wire/manifest.h"

namespace hvd::rank {

struct Prepared {
  Launch launch;
  Fd boot;             ///< the .pkl bootstrap's text, kept until the rank has it
  std::string python;  ///< "embedded", "exec", or "" for a command
};

/// @p mine        the guard's own environment.
/// @p link_fd     the rank's end of the link.
/// @p stack_fd    where the rank writes its Python frames when asked; -1: nowhere.
/// @p payload_fd  the .pkl's bytes; -1 for other payloads.
/// Throws Error{usage, unavailable} with one line for the user.
Prepared prepare(const wire::RankManifest& m, const Environment& mine, const Binding& binding, int link_fd,
                 int payload_fd, int stack_fd);

}  // namespace hvd::rank
