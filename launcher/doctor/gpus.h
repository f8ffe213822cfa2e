/// @file gpus.h — what hvdrun doctor asks about GPUs: how they reach each other, and which NCCL there is.  Pure.
#pragma once
#include <string>
#include <vector>

#include "launcher/doctor/checkup.h"

namespace hvd::launcher {

/// Shell text: "links NV18:28" as nvidia-smi calls the ways between pairs of GPUs, and how many pairs have each.
std::string gpu_question();
/// Python text: "nccl 2.30.7", the wheel that torch brings.
std::string nccl_question();

/// A line for each host with GPUs that differ from those before, in words; empty where there are none.
std::string gpu_lines(const std::vector<Answers>& all);

/// Adds what is to be said of this host's NCCL.  usual_nccl: what most hosts have
void check_gpus(const Answers& a, const std::string& usual_nccl, std::vector<Problem>& out);

}  // namespace hvd::launcher
