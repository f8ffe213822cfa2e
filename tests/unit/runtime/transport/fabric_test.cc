/// The hosts with a fabric that MPI uses better than TCP.
#include "transport/tcp/fabric.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace fs = std::filesystem;

TEST_CASE("a fabric is a device with a port that is up") {
  const fs::path sys = fs::temp_directory_path() / ("hvd-fabric-" + std::to_string(getpid()));
  CHECK(hvd::transport::tcp::fabric_device(sys) == "");
  const fs::path port = sys / "infiniband" / "mlx5_1" / "ports" / "1";
  fs::create_directories(port);
  CHECK(hvd::transport::tcp::fabric_device(sys) == "");
  std::ofstream(port / "state") << "1: DOWN\n";
  CHECK(hvd::transport::tcp::fabric_device(sys) == "");
  std::ofstream(port / "state") << "4: ACTIVE\n";
  CHECK(hvd::transport::tcp::fabric_device(sys) == "mlx5_1");
  fs::remove_all(sys);
  fs::create_directories(sys / "cxi" / "cxi0");
  CHECK(hvd::transport::tcp::fabric_device(sys) == "cxi0");
  fs::remove_all(sys);
}
