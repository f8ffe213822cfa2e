#include "pmix/library_paths.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "../temp_folder.h"

using namespace hvd;

TEST_CASE("library paths: Open MPI's own comes before the system's") {
  const test::TempFolder made;
  const std::filesystem::path& folder = made.root;
  std::filesystem::create_directory(folder / "openmpi");
  std::ofstream(folder / "openmpi/libpmix.so.2") << "no library";
  const std::vector<std::string> paths = pmix::library_paths(folder);
  CHECK(paths == std::vector<std::string>{folder / "openmpi/libpmix.so.2", "libpmix.so.2"});
  CHECK(pmix::library_paths("") == std::vector<std::string>{"libpmix.so.2"});
}
