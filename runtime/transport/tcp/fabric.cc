#include "transport/tcp/fabric.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

namespace hvd::transport::tcp {

std::string fabric_device(const std::string& sys_class) {
  namespace fs = std::filesystem;
  const auto entries = [](const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code missing;
    for (const auto& entry : fs::directory_iterator(folder, missing)) found.push_back(entry.path());
    std::sort(found.begin(), found.end());
    return found;
  };
  for (const fs::path& device : entries(fs::path(sys_class) / "infiniband"))
    for (const fs::path& port : entries(device / "ports")) {
      std::string state;  // such as "4: ACTIVE"
      std::getline(std::ifstream(port / "state"), state);
      if (state.find("ACTIVE") != std::string::npos) return device.filename();
    }
  const std::vector<fs::path> slingshot = entries(fs::path(sys_class) / "cxi");
  return slingshot.empty() ? "" : slingshot.front().filename().string();
}

}  // namespace hvd::transport::tcp
