/// @file gpus.h — what hvdrun doctor asks about GPUs: how they reach each other, and which NCCL there is.  Pure.
#pragma once
#include <string>
#include <vector>

#include "launcher/doctor/checkup.h"

namespace hvd::launcher {

/// Shell text: "driver 580.65.06", and "links NV18:28": the ways between pairs of GPUs (place/ways.h), and how many
/// pairs have each.  hvdrank is asked.
std::string gpu_question(const std::string& rank_program);
/// Python text: "nccl 2.30.7", the wheel that torch brings.
std::string nccl_question();

/// For each host with GPUs: driver, NCCL and ways, in words; hosts that are alike share a line.
std::string gpu_lines(const std::vector<Answers>& all);

/// Adds what is to be said of this host's NCCL.  usual_nccl: what most hosts have
void check_gpus(const Answers& a, const std::string& usual_nccl, std::vector<Problem>& out);

}  // namespace hvd::launcher
