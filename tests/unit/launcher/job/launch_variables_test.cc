#include "launcher/job/launch_variables.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <set>

using namespace hvd;
using namespace hvd::launcher;

namespace {

JobMap two_hosts() {
  Allocation allocation;
  allocation.hosts = {{"a", 2}, {"b", 1}};
  return map_ranks(allocation, {true, false}, 3);
}

/// Listens as servers do: SO_REUSEADDR, bind, listen.
bool can_listen(int port, int family) {
  const Fd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in four{};
  four.sin_family = AF_INET, four.sin_port = htons(static_cast<std::uint16_t>(port));
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6, six.sin6_port = four.sin_port;
  const bool bound = family == AF_INET ? ::bind(socket.get(), reinterpret_cast<sockaddr*>(&four), sizeof four) == 0
                                       : ::bind(socket.get(), reinterpret_cast<sockaddr*>(&six), sizeof six) == 0;
  return bound && ::listen(socket.get(), 8) == 0;
}

}  // namespace

TEST_CASE("launch variables: torchrun's, with a host for a node") {
  const JobMap map = two_hosts();
  const auto of_2 = torchrun_variables(map, map.ranks[2], {"10.0.0.1", 29500}, "job");
  CHECK(of_2.at("RANK") == "2");
  CHECK(of_2.at("WORLD_SIZE") == "3");
  CHECK(of_2.at("LOCAL_RANK") == "0");
  CHECK(of_2.at("LOCAL_WORLD_SIZE") == "1");
  CHECK(of_2.at("GROUP_RANK") == "1");
  CHECK(of_2.at("GROUP_WORLD_SIZE") == "2");
  CHECK(of_2.at("MASTER_ADDR") == "10.0.0.1");
  CHECK(of_2.at("MASTER_PORT") == "29500");
  CHECK(of_2.at("TORCHELASTIC_USE_AGENT_STORE") == "False");
  CHECK(torchrun_variables(map, map.ranks[1], {}, "job").at("LOCAL_WORLD_SIZE") == "2");
}

TEST_CASE("launch variables: Horovod's") {
  const JobMap map = two_hosts();
  const auto of_1 = horovodrun_variables(map, map.ranks[1]);
  CHECK(of_1.at("HOROVOD_RANK") == "1");
  CHECK(of_1.at("HOROVOD_LOCAL_SIZE") == "2");
  CHECK(of_1.at("HOROVOD_CROSS_SIZE") == "1");
  CHECK(of_1.at("HOROVOD_HOSTNAME") == "a");
}

TEST_CASE("launch variables: the kernel gives a held port to no program, and a server may take it") {
  const HeldPort held, other;
  CHECK(held.number() != other.number());
  CHECK(can_listen(held.number(), AF_INET));
  CHECK(can_listen(held.number(), AF_INET));  // and again after the first socket has been closed
  CHECK(can_listen(held.number(), AF_INET6));
}

TEST_CASE("launch variables: jobs on another host have different ports, which the kernel does not give away") {
  std::set<int> ports;
  for (const char* job : {"abcdefgh", "abcdefgi", "bbcdefgh", "7q2xkzvd"}) {
    const int port = port_on_another_host(job, "torch");
    CHECK(port >= 20000);
    CHECK(port < 32768);
    ports.insert(port);
  }
  CHECK(ports.size() == 4);
  CHECK(port_on_another_host("abcdefgh", "torch") != port_on_another_host("abcdefgh", "jax"));
}

TEST_CASE("launch variables: the ports that rank 0's guard holds replace those that nobody holds") {
  ScriptServers servers{.torch = {"10.0.0.1", 20001}, .jax = {"10.0.0.1", 20002}};
  use_ports_of_rank_0(servers, {});
  CHECK(servers.torch.port == 20001);
  use_ports_of_rank_0(servers, {40001, 40002});
  CHECK(servers.torch.port == 40001);
  CHECK(text_of(servers.jax) == "10.0.0.1:40002");
}

TEST_CASE("launch variables: JAX's, which an argument of its call replaces") {
  CHECK(jax_variables({"10.0.0.1", 5000}, true) ==
        std::map<std::string, std::string>{{"JAX_COORDINATOR_ADDRESS", "10.0.0.1:5000"},
                                           {"OMPI_MCA_orte_hnp_uri", "4096.0;tcp://10.0.0.1:5000"}});
  CHECK(jax_variables({"fe80::1", 5000}, true).at("JAX_COORDINATOR_ADDRESS") == "[fe80::1]:5000");
  CHECK(jax_variables({"127.0.0.1", 5000}, false) ==
        std::map<std::string, std::string>{{"JAX_COORDINATOR_ADDRESS", "127.0.0.1:5000"}});
}

TEST_CASE("launch variables: TensorFlow's") {
  CHECK(tensorflow_config(two_hosts().ranks[1], {{"a", 1}, {"a", 2}, {"b", 3}}) ==
        R"({"cluster":{"worker":["a:1","a:2","b:3"]},"task":{"index":1,"type":"worker"}})");
}

TEST_CASE("launch variables: Slurm's, as if srun had started the ranks") {
  const JobMap map = two_hosts();
  const auto of_2 = slurm_variables(map, map.ranks[2]);
  CHECK(of_2.at("SLURM_PROCID") == "2");
  CHECK(of_2.at("SLURM_LOCALID") == "0");
  CHECK(of_2.at("SLURM_NODEID") == "1");
  CHECK(of_2.at("SLURM_NTASKS") == "3");
  CHECK(of_2.at("SLURM_STEP_NODELIST") == "a,b");
}
