/// @file gpus.h — what hvdrun doctor asks about GPUs: how they reach each other, which NCCL there is, and what MPI can
/// do with their memory.  Pure.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "launcher/doctor/checkup.h"

namespace hvd::launcher {

/// Shell text: "driver 580.65.06", and "links NV18:28": the ways between pairs of GPUs (placement/gpu_paths.h), and how
/// many pairs have each.  hvdrank is asked.
std::string gpu_question(const std::string& rank_program);
/// Shell text: "aware yes" where this Open MPI takes pointers to the memory of GPUs, "aware no" where it does not;
/// nothing where it does not say.  For programs that use MPI themselves: the runtime gives MPI no GPU memory.
std::string aware_question(const std::string& mpirun);

/// How many pairs of the host's GPUs have each way.
std::vector<std::pair<std::string, long long>> pairs_by_way(const Answers& a);
/// For each host with GPUs: driver, NCCL, MPI and ways, in words; hosts that are alike share a line.
std::string gpu_lines(const std::vector<Answers>& all);

/// Adds what is to be said of this host's NCCL.  usual_nccl: what most hosts have
void check_gpus(const Answers& a, const std::string& usual_nccl, std::vector<Problem>& out);

}  // namespace hvd::launcher
