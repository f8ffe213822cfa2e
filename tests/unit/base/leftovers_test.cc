#include "base/files/leftovers.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "../temp_folder.h"
#include "base/process/maker.h"

using namespace hvd;
namespace fs = std::filesystem;

namespace {

struct SharedMemoryFolder : test::TempFolder {
  SharedMemoryFolder() : TempFolder("/dev/shm/hvd-leftovers-") {}
  std::vector<std::string> sweep(double since_seconds) const {
    std::vector<std::string> removed = remove_shared_memory_leftovers(since_seconds, path);
    std::sort(removed.begin(), removed.end());
    return removed;
  }
};

std::string owner() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return std::string(host).substr(0, std::string(host).find('.')) + "." + std::to_string(geteuid());
}

}  // namespace

TEST_CASE("leftovers: files that a process uses, or that other programs made, stay") {
  const SharedMemoryFolder folder;
  const std::string left = "vader_segment." + owner() + ".abc0001.0", mapped = "sm_segment." + owner() + ".abc0001.1";
  for (const std::string& name :
       {left, mapped, std::string("vader_segment.elsewhere.1.2"), std::string("hvd.something"), std::string("mine")})
    std::ofstream(folder.root / name) << "0123456789";
  fs::create_symlink(folder.root / "mine", folder.root / ("vader_segment." + owner() + ".abc0001.2"));
  int fd = open((folder.root / mapped).c_str(), O_RDWR);

  CHECK(folder.sweep(wall_seconds() + 60).empty());  // all folders are older
  CHECK(folder.sweep(wall_seconds() - 60) == std::vector<std::string>{left});
  void* memory = mmap(nullptr, 10, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  REQUIRE(memory != MAP_FAILED);
  CHECK(folder.sweep(wall_seconds() - 60).empty());
  munmap(memory, 10);
  CHECK(folder.sweep(wall_seconds() - 60) == std::vector<std::string>{mapped});
  CHECK(fs::exists(folder.root / "mine"));
}

TEST_CASE("leftovers: a rank's file stays while the rank lives, mapped or not") {
  const SharedMemoryFolder folder;
  const Maker self = *maker_of(getpid());
  Maker gone = self, elsewhere = self;
  ++gone.start_ticks;
  ++elsewhere.start_ticks, ++elsewhere.pid_namespace;
  const std::string dead = "hvd." + to_text(gone) + ".0123456789abcdef";
  for (const std::string& name :
       {"hvd." + to_text(self) + ".0123456789abcdef", "hvd." + to_text(elsewhere) + ".0123456789abcdef", dead,
        "hvd." + to_text(gone) + ".short", std::string("hvd.12.0123456789abcdef")})
    std::ofstream(folder.root / name) << "0123456789";
  const std::string doorway = "hvd." + to_text(gone) + ".1123456789abcdef";  // killed before it was removed
  REQUIRE(::mknod((folder.root / doorway).c_str(), S_IFSOCK | 0600, 0) == 0);
  CHECK(folder.sweep(wall_seconds() - 60) == std::vector<std::string>{dead, doorway});
}

TEST_CASE("leftovers: of gone ranks alone, however old; what MPI has left is another job's") {
  const SharedMemoryFolder folder;
  Maker gone = *maker_of(getpid());
  ++gone.start_ticks;
  const std::string dead = "hvd." + to_text(gone) + ".0123456789abcdef";
  const std::string of_mpi = "vader_segment." + owner() + ".abc0001.0";
  for (const std::string& name : {dead, of_mpi}) std::ofstream(folder.root / name) << "0123456789";
  CHECK(remove_files_of_gone_ranks(folder.path) == std::vector<std::string>{dead});
  CHECK(fs::exists(folder.root / of_mpi));
}
