#include "launcher/hosts/resource_manager.h"

#include <doctest/doctest.h>

#include <map>

#include "../errors.h"
#include "base/error.h"
#include "base/text.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

using Map = std::map<std::string, std::string>;

/// "source: host=slots … | agent", or "nothing".
std::string found(const Map& variables, const Map& files = {}) {
  const auto a = find_allocation(
      [&](const char* name) {
        const auto it = variables.find(name);
        return it == variables.end() ? nullptr : it->second.c_str();
      },
      [&](const std::string& path) {
        const auto it = files.find(path);
        if (it == files.end()) throw Error(Code::usage, path, "is not there");
        return it->second;
      });
  if (!a) return "nothing";
  std::string out = a->source + ":";
  for (const HostSlots& h : a->hosts) out += " " + h.host + "=" + std::to_string(h.slots);
  return a->launch_agent.empty() ? out : out + " | " + join(a->launch_agent, " ");
}

std::string slurm(const std::string& nodes, const std::string& tasks) {
  std::string out;
  for (const HostSlots& h : parse_slurm(nodes, tasks).hosts) out += h.host + "=" + std::to_string(h.slots) + " ";
  return out;
}

}  // namespace

TEST_CASE("batch: nothing is found outside of an allocation") {
  CHECK(found({}) == "nothing");
  CHECK(found({{"OMPI_MCA_orte_default_hostfile", "/x"}}) == "nothing");  // a user's own setting
}

TEST_CASE("batch: Slurm's node lists and tasks") {
  CHECK(slurm("n[01-03,07],gpu1", "2(x3),1,4") == "n01=2 n02=2 n03=2 n07=1 gpu1=4 ");
  CHECK(slurm("a", "") == "a=1 ");
  CHECK(slurm("r[1-2]n[1-2]", "3(x4)") == "r1n1=3 r1n2=3 r2n1=3 r2n2=3 ");
  CHECK(found({{"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_TASKS_PER_NODE", "2(x2)"}, {"SLURM_JOB_ID", "17"}})
            .starts_with("Slurm job 17: n1=2 n2=2 | srun --nodes=1 --ntasks=1 --nodelist={host} "));
  CHECK(found({{"SLURM_NODELIST", "n1"}, {"SLURM_JOB_CPUS_PER_NODE", "8"}})
            .starts_with("Slurm job (SLURM_JOB_NODELIST): n1=8"));
}

TEST_CASE("batch: mistakes in Slurm's variables") {
  const std::string hint = " (is this a real allocation? -H or --hostfile overrides it)";
  CHECK(error_of([] { slurm("n[1-3]", "2(x2)"); }) ==
        "SLURM_TASKS_PER_NODE: counts 2 nodes, but there are 3 in SLURM_JOB_NODELIST" + hint);
  CHECK(error_of([] { slurm("n1", "2(y2)"); }) == "SLURM_TASKS_PER_NODE: '2(y2)' is not n(xm)" + hint);
  CHECK(error_of([] { slurm("n1", "0"); }) == "SLURM_TASKS_PER_NODE: '0' is not a number of slots" + hint);
  CHECK(error_of([] { slurm("n1", "9(x99999999)"); }).starts_with("SLURM_TASKS_PER_NODE: '99999999' is not"));
  CHECK(error_of([] { slurm("n1 n2", ""); }) == "SLURM_JOB_NODELIST:3: ' ' is not expected here" + hint);
  CHECK(error_of([] { slurm("", ""); }).starts_with("SLURM_JOB_NODELIST:1: a host name is missing"));
}

TEST_CASE("batch: LSF") {
  CHECK(found({{"LSB_JOBID", "5"}, {"LSB_MCPU_HOSTS", "h1 4 h2 2 "}}) == "LSF job 5: h1=4 h2=2");
  CHECK(found({{"LSB_JOBID", "5"}, {"LSB_HOSTS", "h1 h1 h2"}}) == "LSF job 5: h1=2 h2=1");
  CHECK(found({{"LSB_JOBID", "5"}, {"LSB_DJOB_HOSTFILE", "/f"}}, {{"/f", "h1\nh1\nh3\n"}}) == "LSF job 5: h1=2 h3=1");
  CHECK(error_of([] { parse_lsf("h1 4 h2"); }).starts_with("LSB_MCPU_HOSTS: must hold pairs"));
  CHECK(error_of([] { parse_lsf("h1 four"); }).starts_with("LSB_MCPU_HOSTS: 'four' is not a number of slots"));
}

TEST_CASE("batch: PBS, Torque, Grid Engine") {
  CHECK(found({{"PBS_NODEFILE", "/f"}, {"PBS_JOBID", "9.server"}}, {{"/f", "a\na\nb\n"}}) ==
        "PBS job 9.server: a=2 b=1");
  CHECK(error_of([] {
          found({{"PBS_NODEFILE", "/f"}}, {{"/f", "a;b\n"}});
        }).starts_with("/f:1: 'a;b' is not a host name"));
  CHECK(error_of([] { found({{"PBS_NODEFILE", "/f"}}, {{"/f", "\n"}}); }).starts_with("/f: names no host"));
  CHECK(error_of([] { found({{"PBS_NODEFILE", "/none"}}); }) == "/none: is not there");
  CHECK(found({{"PE_HOSTFILE", "/f"}, {"JOB_ID", "3"}},
              {{"/f", "n1 4 all.q@n1 UNDEFINED\nn2 2 all.q@n2 UNDEFINED\n"}}) == "Grid Engine job 3: n1=4 n2=2");
  CHECK(error_of([] { parse_grid_engine("n1\n", "/f"); }).starts_with("/f:1: must hold host and slots"));
}

TEST_CASE("batch: Kubernetes' MPI operator") {
  const Map files{{"/etc/mpi/hostfile", "job-worker-0.job slots=2\njob-worker-1.job slots=2\n"}};
  const std::string hosts = "Kubernetes' MPI operator (/etc/mpi/hostfile): job-worker-0.job=2 job-worker-1.job=2";
  Map variables{{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"}};
  CHECK(found(variables, files) == hosts);
  variables["OMPI_MCA_plm_rsh_agent"] = "/etc/mpi/kubexec.sh";
  CHECK(found(variables, files) == hosts + " | /opt/kube/kubectl exec -i {host} --");
}

TEST_CASE("batch: what mpirun must not see") {
  for (const char* name : {"SLURM_JOB_ID", "PBS_NODEFILE", "PE_HOSTFILE", "LSB_HOSTS", "OMPI_MCA_plm_rsh_agent"})
    CHECK(belongs_to_manager(name));
  for (const char* name : {"SLURM_CONF", "PATH", "OMPI_MCA_btl", "PBSX"}) CHECK_FALSE(belongs_to_manager(name));
}
