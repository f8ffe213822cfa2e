/// @file resource_manager.h — the hosts that a resource manager gave this job, read from its variables and files. Pure.
///
/// Variables and formats are those of the managers' manuals: sbatch(1) and srun(1), LSF's bsub, qsub of PBS and Torque,
/// sge_pe(5), and the hostfile of Kubernetes' MPI operator.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/hosts/allocation.h"
#include "launcher/options/settings.h"

namespace hvd::launcher {

/// Slurm's SLURM_JOB_NODELIST ("n[01-03,07],gpu1") and SLURM_TASKS_PER_NODE ("2(x3),1"); tasks empty: one a node.
Allocation parse_slurm(std::string_view nodes, std::string_view tasks);

/// LSF's LSB_MCPU_HOSTS: "h1 4 h2 2".
Allocation parse_lsf(std::string_view text);

/// A host for each slot: PBS_NODEFILE line by line, LSB_DJOB_HOSTFILE, LSB_HOSTS.
/// @param name  for messages
Allocation parse_slot_list(std::string_view text, const std::string& name);

/// Grid Engine's PE_HOSTFILE: "host slots queue processors" a line.
Allocation parse_grid_engine(std::string_view text, const std::string& name);

using FileReader = std::function<std::string(const std::string& path)>;

/// What the environment says, first match in the order of this file; nothing outside of an allocation.
/// Throws Error{usage} naming the variable or file when it is there and cannot be read.
std::optional<Allocation> find_allocation(const Environment& environment, const FileReader& read);

/// Variables by which an mpirun would find the allocation by itself.  Ours is told all hosts, so they are kept from it:
/// it would refuse hosts that it does not know by that name, or start its daemons in its own way.
bool belongs_to_manager(std::string_view variable);

}  // namespace hvd::launcher
