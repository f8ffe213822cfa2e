/// What a mpirun whose ranks are all on its own machine would look for and load in vain.
#include "launcher/mpirun/mpirun.h"

namespace hvd::launcher {

std::map<std::string, std::string> quick_start(Flavour flavour) {
  std::map<std::string, std::string> variables{// The configuration of every PCI device: 10 ms in a virtual machine.
                                               {"HWLOC_COMPONENTS", std::string(without_drivers) + ",-linuxio"}};
  if (flavour == Flavour::openmpi5) return variables;  // its components are linked into it
  // Each component is a file to load, a hundred of them 4 ms.  Exclusions only: a name that a build lacks does no harm.
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

}  // namespace hvd::launcher
