/// @file gpus.h — hvdrun doctor's questions about GPUs: ways between them, NCCL, and MPI with their memory.  Pure.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "launcher/doctor/checkup.h"

namespace hvd::launcher {

/// Shell text that runs hvdrank.  Prints "driver 580.65.06" and "links NV18:28": the number of pairs of GPUs for each
/// kind of path (placement/gpu_paths.h).
std::string gpu_question(const std::string& rank_program);
/// Shell text that asks whether this Open MPI takes pointers to GPU memory.  Prints "aware yes", "aware no", or
/// nothing.  Only programs that call MPI themselves need the answer: the runtime gives MPI no GPU memory.
std::string aware_question(const std::string& mpirun);

/// Returns the number of pairs of the host's GPUs for each kind of path between two GPUs.
std::vector<std::pair<std::string, long long>> pairs_by_way(const Answers& a);
/// Lines about the hosts with GPUs: driver, NCCL, MPI and ways.  Hosts that are alike share a line.
std::string gpu_lines(const std::vector<Answers>& all);

/// Adds problems of this host's NCCL.  @param usual_nccl  the version of most hosts
void check_gpus(const Answers& a, const std::string& usual_nccl, std::vector<Problem>& out);

}  // namespace hvd::launcher
