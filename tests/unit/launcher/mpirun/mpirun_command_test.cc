#include "launcher/mpirun/mpirun_command.h"

#include <doctest/doctest.h>

#include "base/text.h"
#include "launcher/hosts/parse_hosts.h"
#include "launcher/mpirun/mpirun_environment.h"
#include "launcher/start/open_mpi.h"
#include "launcher/start/remote_shell.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

std::string command(Flavour flavour, const char* hosts, std::vector<bool> local, MpirunOptions options) {
  options.rank_program = "/opt/hvdrank";
  options.agent = {"/opt/hvdrun", "--remote-agent"};
  const Allocation allocation = parse_hosts(hosts);
  const JobMap map = map_ranks(allocation, local, static_cast<int>(allocation.total_slots()));
  return join(mpirun_command({"/opt/mpirun", flavour, ""}, map, options), " ");
}

}  // namespace

TEST_CASE("mpirun: this machine only") {
  CHECK(command(Flavour::openmpi4, "localhost:2", {true}, {}) ==
        "/opt/mpirun -np 2 -H localhost:2 --bind-to none --map-by slot --oversubscribe /opt/hvdrank");
  CHECK(command(Flavour::openmpi5, "localhost:2", {true}, {.as_root = true}) ==
        "/opt/mpirun --allow-run-as-root -np 2 -H localhost:2 --bind-to none --map-by slot:OVERSUBSCRIBE /opt/hvdrank");
}

TEST_CASE("mpirun: remote hosts go through our agent, one by one, and get the public variables") {
  CHECK(command(Flavour::openmpi4, "a:2,b:1", {true, false}, {}) ==
        "/opt/mpirun -np 3 -H a:2,b:1 --bind-to none --map-by slot --oversubscribe"
        " --mca plm rsh --mca plm_rsh_agent /opt/hvdrun --remote-agent --mca plm_rsh_no_tree_spawn 1"
        " --mca orte_leave_session_attached 1 -x HVD_CONTROL -x HVD_SERVER_KEY -x HVD_JOB /opt/hvdrank");
  CHECK(command(Flavour::openmpi5, "a:2,b:1", {true, false}, {}) ==
        "/opt/mpirun -np 3 -H a:2,b:1 --bind-to none --map-by slot:OVERSUBSCRIBE"
        " --prtemca plm ssh --prtemca plm_ssh_agent /opt/hvdrun --remote-agent --prtemca plm_ssh_no_tree_spawn 1"
        " --leave-session-attached -x HVD_CONTROL -x HVD_SERVER_KEY -x HVD_JOB /opt/hvdrank");
}

TEST_CASE("mpirun: the given order of hosts is kept when this machine is not the first") {
  CHECK(command(Flavour::openmpi4, "b:2,a:1", {false, true}, {})
            .starts_with("/opt/mpirun -np 3 -H b,b,a --bind-to none --map-by seq --oversubscribe --mca plm rsh"));
  CHECK(command(Flavour::openmpi5, "b:2,a:1", {false, true}, {})
            .starts_with("/opt/mpirun -np 3 -H b:2,a:1 --bind-to none --map-by slot:OVERSUBSCRIBE"));
}

TEST_CASE("mpirun: the user's own arguments") {
  CHECK(command(Flavour::openmpi4, "a:1", {true},
                {.tcp = true, .interfaces = "eth0", .extra = {"--mca", "x", "1"}, .binding = {"--bind-to", "core"}}) ==
        "/opt/mpirun -np 1 -H a:1 --bind-to core --mca pml ob1 --mca btl tcp,self,vader"
        " --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 --mca x 1 /opt/hvdrank");
}

TEST_CASE("mpirun: a quick start leaves out, and never names what must be there") {
  const auto four = quick_start(Flavour::openmpi4), five = quick_start(Flavour::openmpi5);
  CHECK(five.size() == 1);
  CHECK(four.at("HWLOC_COMPONENTS") == five.at("HWLOC_COMPONENTS"));
  CHECK(four.size() > 10);
  for (const auto& setting : four) {
    const std::string& name = setting.first;
    const std::string& value = setting.second;
    CAPTURE(name);
    CHECK((name == "HWLOC_COMPONENTS" ? value.starts_with("-") : name.starts_with("OMPI_MCA_") && value[0] == '^'));
  }
  CHECK(!four.contains("OMPI_MCA_btl"));  // the ranks' own
}

TEST_CASE("agent: the secret is in the remote shell's stdin only") {
  const std::string script = remote_script("[ -w /dev/shm ]\n", "b", "/home/u/my job", "'pub:se'\\''cret'",
                                           {" PATH=/x:$PATH ;", "orted -mca ess \"env\""});
  CHECK(script ==
        "[ -w /dev/shm ]\nHVD_JOB_KEYS='pub:se'\\''cret'\nHVD_HOST=b\nexport HVD_JOB_KEYS HVD_HOST\n"
        "cd '/home/u/my job' 2>/dev/null || cd\n{  PATH=/x:$PATH ; orted -mca ess \"env\"\n} </dev/null\n");
  CHECK(join(ssh_command("ssh -F conf", "22", "id", 10), " ") ==
        "ssh -F conf -x -T -o BatchMode=yes -o ServerAliveInterval=15 -o ConnectTimeout=10 -p 22 -i id");
}
