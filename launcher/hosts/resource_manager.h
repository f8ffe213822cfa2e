/// @file resource_manager.h — the hosts that a resource manager gave this job, by its variables and files.  Pure.
///
/// Variables and formats follow the managers' manuals.  The managers are Slurm (sbatch(1), srun(1)), LSF (bsub), PBS
/// and Torque (qsub), Grid Engine (sge_pe(5)), and Kubernetes' MPI operator (its hostfile).
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

/// The environment's allocation, by the first manager that matches, in the order of this file.  Nothing: there is no
/// allocation.  Throws Error{usage} that names the variable or file whose text cannot be read.
std::optional<Allocation> find_allocation(const Environment& environment, const FileReader& read);

/// True for variables by which an mpirun finds the allocation by itself.  hvdrun names all hosts to its mpirun, and
/// keeps these variables from mpirun.  With them, mpirun would refuse hosts under other names, or start daemons in its
/// own way.
bool belongs_to_manager(std::string_view variable);

}  // namespace hvd::launcher
