#include "launcher/mpirun/mpirun_environment.h"

#include <initializer_list>
#include <vector>

#include "base/text.h"

namespace hvd::launcher {

namespace {

/// HWLOC_COMPONENTS for every mpirun.  Otherwise mpirun's hwloc would open displays, GPUs and their drivers.  The
/// drivers take up to seconds, and hvdrun does not use the result.
constexpr const char* without_drivers = "-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero";

}  // namespace

std::map<std::string, std::string> quick_start(Flavour flavour) {
  std::map<std::string, std::string> variables{// The configuration of every PCI device: 10 ms in a virtual machine.
                                               {"HWLOC_COMPONENTS", std::string(without_drivers) + ",-linuxio"}};
  if (flavour == Flavour::openmpi5) return variables;  // Open MPI 5 has its components linked in
  // Each component is a file to load; a hundred of them take 4 ms.  Only exclusions: a build may lack an excluded name.
  for (const auto& [framework, without] :
       std::initializer_list<std::pair<const char*, const char*>>{{"schizo", "slurm,jsm,flux"},
                                                                  {"ess", "env,pmi,singleton,slurm,tool"},
                                                                  {"plm", "slurm"},
                                                                  {"ras", "gridengine,simulator,slurm"},
                                                                  {"state", "novm,orted,tool"},
                                                                  {"errmgr", "default_orted,default_tool"},
                                                                  {"rmaps", "mindist,ppr,rank_file,resilient,seq"},
                                                                  {"odls", "pspawn"},
                                                                  {"iof", "orted,tool"},
                                                                  {"pmix", "flux"},
                                                                  {"reachable", "netlink"},
                                                                  {"regx", "naive,reverse"}})
    variables[std::string("OMPI_MCA_") + framework] = std::string("^") + without;
  return variables;
}

void add_mpirun_variables(const Mpirun& mpirun, const MpirunOptions& options, bool all_local, const std::string& folder,
                          std::map<std::string, std::string>* environment) {
  if (all_local) {
    environment->try_emplace("HWLOC_PLUGINS_PATH",
                             folder);  // no plugins: they only find devices, and loading them takes 5 ms
    if (!options.tcp) environment->try_emplace("OMPI_MCA_btl", "^tcp,ofi");  // these components would listen
    // The user's own arguments may need any part of mpirun.  A variable that the user has set goes to the ranks too.
    if (options.extra.empty() && options.binding.empty()) {
      std::vector<std::string> ours;
      for (const auto& [name, value] : quick_start(mpirun.flavour))
        if (environment->try_emplace(name, value).second) ours.push_back(name);
      (*environment)[own_variables] = join(ours, " ");
    }
  }
  environment->try_emplace("HWLOC_COMPONENTS", without_drivers);
}

}  // namespace hvd::launcher
