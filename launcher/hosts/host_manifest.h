/// @file host_manifest.h — --manifest: the hosts of a job, written by another program (Spark, a scheduler).
///
/// JSON or YAML, version 1, described in hvdrun-manifest(5):
///   version: 1                      required
///   source: spark                   required: the program that wrote the file, for messages
///   application: app-2026-0001      optional: that program's name for the job
///   hosts:                          required, at least one
///     - {address: 10.0.0.1, slots: 2, gpus: 2}      slots: default gpus, else 1
///   launch_agent: [words…]          optional: runs a shell on a host; {host} is put in
///   launcher_address: 10.0.0.9      optional: where the hosts reach hvdrun
#pragma once
#include <string>

#include "launcher/hosts/allocation.h"

namespace hvd::launcher {

/// Pure.  Throws Error{usage, "name:line:column"} for malformed text and unknown keys.
Allocation parse_manifest(const std::string& text, const std::string& name);

}  // namespace hvd::launcher
