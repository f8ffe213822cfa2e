#include "recorder/steps/thread_delays.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "../../temp_folder.h"

namespace {

constexpr std::int64_t second = 1'000'000'000;

/// Writes the schedstat file of a thread that has waited for a core for @p ms ms in all.
void delay(const std::filesystem::path& tasks, int thread, long ms) {
  const std::filesystem::path folder = tasks / std::to_string(thread);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "schedstat") << "123456 " << ms * 1'000'000 << " 7\n";
}

}  // namespace

TEST_CASE("thread delays: the longest of a second, as a share") {
  const hvd::test::TempFolder folder;
  hvd::recorder::ThreadDelays delays(folder.root.string());
  delay(folder.root, 1, 1000);
  delay(folder.root, 2, 50);
  CHECK(delays.share(5 * second) == 0);
  delay(folder.root, 1, 1100);
  delay(folder.root, 2, 650);
  delay(folder.root, 3, 900);                         // new: when its delay came is not known
  CHECK(delays.share(5 * second + second / 2) == 0);  // not read yet
  CHECK(delays.share(6 * second) == doctest::Approx(0.6));
  CHECK(delays.share(6 * second + 1) == doctest::Approx(0.6));
  std::filesystem::remove_all(folder.root / "2");
  delay(folder.root, 1, 90'000);
  CHECK(delays.share(8 * second) == 1);
}

TEST_CASE("thread delays: none without the files") {
  hvd::recorder::ThreadDelays delays("/no/such/folder");
  CHECK(delays.share(second) == 0);
  CHECK(delays.share(3 * second) == 0);
}
