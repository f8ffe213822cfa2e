#include "api/between_hosts.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/text.h"
#include "common/log.h"
#include "transport/tcp/fabric.h"
#include "transport/tcp/tcp_transport.h"

namespace hvd::api {
namespace {

std::string value_of(const char* variable) {
  const char* const value = environment_value(variable);
  return value ? value : "";
}

/// Why auto does not take TCP on this rank; empty: nothing speaks against it.
std::string reason_for_mpi() {
  const std::string operations = value_of("HOROVOD_CPU_OPERATIONS");
  if (operations == "MPI" || operations == "mpi") return "HOROVOD_CPU_OPERATIONS=" + operations;
  const std::string by = value_of("OMPI_MCA_btl");
  const bool tcp_only = value_of("OMPI_MCA_pml") == "ob1" && by.find("tcp") != std::string::npos && by[0] != '^';
  if (const std::string device = tcp_only ? "" : transport::tcp::fabric_device("/sys/class"); !device.empty())
    return "MPI may use " + device;
  return transport::tcp::reason_against();
}

transport::tcp::TcpOptions options_of(const core::Config& config) {
  transport::tcp::TcpOptions o;
  o.key = transport::tcp::job_key(static_cast<int>(config.integer("HVD_KEY_FD")));
  o.interfaces = value_of("OMPI_MCA_btl_tcp_if_include");  // hvdrun --network-interfaces too
  o.filter = config.flag("HVD_FILTER_PEERS");
  o.limit_seconds = std::min(config.number("HVD_INIT_TIMEOUT"), 60.0);
  return o;
}

}  // namespace

std::unique_ptr<transport::Transport> between_hosts(std::unique_ptr<transport::Transport> mpi,
                                                    const core::Config& config) {
  const std::vector<int>& hosts = mpi->host_of();
  const bool one_host = std::equal(hosts.begin() + 1, hosts.end(), hosts.begin());
  const std::string& chosen = config.text("HVD_TRANSPORT");
  if (one_host && (config.integer("HVD_RANKS_PER_NODE") == 0 || chosen == "auto")) return mpi;
  const std::string mine = chosen + "\n" + (chosen == "auto" ? reason_for_mpi() : "");
  std::string reason;
  int rank = 0;
  for (const std::string& text : exchange(*mpi, mine, config.number("HVD_INIT_TIMEOUT"))) {
    const std::size_t end = text.find('\n');
    if (text.substr(0, end) != chosen)
      throw Error(Code::usage, "HVD_TRANSPORT",
                  "rank " + std::to_string(rank) + " has '" + text.substr(0, end) + "', rank " +
                      std::to_string(mpi->rank()) + " has '" + chosen + "'",
                  "set it alike on all ranks");
    if (reason.empty() && end + 1 < text.size()) reason = text.substr(end + 1) + " on rank " + std::to_string(rank);
    ++rank;
  }
  const bool tells = mpi->rank() == 0;
  const std::string asked = " (--transport " + chosen + ")";
  if (chosen == "mpi" || !reason.empty()) {
    if (tells) log_info("between hosts tensors travel by MPI" + asked + (reason.empty() ? "" : ": " + reason));
    return mpi;
  }
  transport::tcp::TcpOptions options = options_of(config);
  options.needs_trial = chosen == "auto";
  transport::tcp::OpenResult opened = transport::tcp::open(std::move(mpi), options);
  if (tells && !opened.refused.empty())
    log_warning("between hosts tensors travel by MPI, which is slower: " + opened.refused +
                " (let the job's hosts connect to all of each other's ports, or say --transport mpi)");
  if (tells && opened.refused.empty())
    log_info(std::string("between hosts tensors travel by TCP") + asked + ", " +
             (options.key ? "connections prove the job's key"
                          : "connections prove a key that MPI has carried in clear text"));
  return std::move(opened.transport);
}

}  // namespace hvd::api
