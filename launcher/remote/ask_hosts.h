/// @file ask_hosts.h — runs shell text on all hosts of a job at once, and returns their output.
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/process/capture.h"
#include "launcher/job/job.h"

namespace hvd::launcher {

/// A host's time to answer, with the time to connect.
constexpr auto most_time_to_answer = std::chrono::seconds(15);

/// The command that runs /bin/sh on @p host.  On a remote host it uses the job's launch agent, or ssh.
std::vector<std::string> way_to(const MappedHost& host, const Job& job);

/// Runs @p script in the shell of way_to().
CaptureResult ask(const MappedHost& host, const Job& job, const std::string& script);

/// The error for a host whose ask() ended without an answer.
Error no_answer(const MappedHost& host, const CaptureResult& done);

/// Calls @p work(i) for each host of the map, in some dozens of threads.  @p work must not throw.
void for_each_host(const Job& job, const std::function<void(std::size_t)>& work);

/// Fills in job.machines with hvdrank's reports: from the remote hosts, and from this one if it has GPUs.  Throws the
/// Error of the first remote host that does not answer.
/// @param python  the interpreter to ask for NCCL's version; empty: the version is not asked for
void look_at_machines(Job& job, const std::string& python);

/// Python text that prints "nccl 2.30.7": the version of the wheel that torch depends on.
std::string nccl_question();
/// Shell words after an interpreter: Python runs its stdin.  Not "-", which would import from the working folder, where
/// other users may have put modules.
inline constexpr const char* run_stdin =
    " -c 'import sys;sys.path[:1]==[\"\"]and sys.path.pop(0);exec(sys.stdin.read())'";

}  // namespace hvd::launcher
