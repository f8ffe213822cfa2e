#include "recorder/steps/throttled_time.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "../../temp_folder.h"

using hvd::recorder::throttled_ns_in;
using hvd::recorder::ThrottledTime;

namespace {

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("throttled time: in the files of both kinds of cgroups") {
  CHECK(throttled_ns_in("nr_periods 3\nnr_throttled 2\nthrottled_time 81000000\n") == 81'000'000);
  CHECK(throttled_ns_in("usage_usec 5\nthrottled_usec 81000\n") == 81'000'000);
  CHECK(throttled_ns_in("throttled_time many\n") == 0);
  CHECK(throttled_ns_in("") == 0);
}

TEST_CASE("throttled time: of the process's own group, by what is mounted") {
  const hvd::test::TempFolder folder;
  const std::filesystem::path root = folder.root;
  write(root / "groups", "3:memory:/other\n2:cpu,cpuacct:/job\n0::/\n");
  CHECK(ThrottledTime(root / "groups", root / "sys").ns() == 0);
  write(root / "sys/cpu,cpuacct/job/cpu.stat", "throttled_time 7\n");
  CHECK(ThrottledTime(root / "groups", root / "sys").ns() == 7);
  write(root / "sys/cpu,cpuacct/job/cpu.stat.local", "throttled_time 9\n");
  CHECK(ThrottledTime(root / "groups", root / "sys").ns() == 9);
  write(root / "unified", "0::/of/the/host\n");
  write(root / "sys2/cpu.stat", "throttled_usec 4\n");
  CHECK(ThrottledTime(root / "unified", root / "sys2").ns() == 4000);
  CHECK(ThrottledTime(root / "none", root / "sys").ns() == 0);
}
