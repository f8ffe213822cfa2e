#include "base/leftovers.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace hvd;
namespace fs = std::filesystem;

TEST_CASE("leftovers: what nobody has mapped goes, what somebody has mapped or others made stays") {
  char pattern[] = "/dev/shm/hvd-leftovers-XXXXXX";
  if (!mkdtemp(pattern)) return;
  const fs::path folder = pattern;
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const std::string owner = std::string(host).substr(0, std::string(host).find('.')) + "." + std::to_string(geteuid());
  const std::string left = "vader_segment." + owner + ".abc0001.0", mapped = "sm_segment." + owner + ".abc0001.1";
  for (const std::string& name :
       {left, mapped, std::string("vader_segment.elsewhere.1.2"), std::string("hvd.12.0123456789abcdef"),
        std::string("hvd.something"), std::string("mine")})
    std::ofstream(folder / name) << "0123456789";
  const int fd = open((folder / mapped).c_str(), O_RDONLY);
  void* memory = mmap(nullptr, 10, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  REQUIRE(memory != MAP_FAILED);

  CHECK(remove_shared_memory_leftovers(wall_seconds() + 60, folder).empty());  // all are older
  std::vector<std::string> removed = remove_shared_memory_leftovers(wall_seconds() - 60, folder);
  std::sort(removed.begin(), removed.end());
  CHECK(removed == std::vector<std::string>{"hvd.12.0123456789abcdef", left});
  CHECK(fs::exists(folder / mapped));
  munmap(memory, 10);
  CHECK(remove_shared_memory_leftovers(wall_seconds() - 60, folder) == std::vector<std::string>{mapped});
  fs::remove_all(folder);
}
