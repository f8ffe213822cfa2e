#include "recorder/steps/thread_delays.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"

namespace hvd::recorder {
namespace {

constexpr std::int64_t read_again_ns = 1'000'000'000;
constexpr int most_threads = 256;  // a reading takes 4 µs for each

}  // namespace

double ThreadDelays::share(std::int64_t now) {
  if (read_ns_ == 0 || now - read_ns_ >= read_again_ns) read(now);
  return share_;
}

void ThreadDelays::read(std::int64_t now) {
  std::map<std::string, std::int64_t> delay;
  std::int64_t longest = 0;
  std::error_code error;
  int threads = 0;
  for (std::filesystem::directory_iterator at(tasks_, error), end; !error && at != end; at.increment(error)) {
    if (++threads > most_threads) break;
    const std::vector<std::string> numbers = words(whole_text(at->path() / "schedstat"));  // ran, had no core, turns
    if (numbers.size() < 2) continue;                                                      // the thread has ended
    const std::string thread = at->path().filename();
    const std::int64_t so_far = delay[thread] = to_integer(numbers[1]).value_or(0);
    if (const auto before = delay_.find(thread); before != delay_.end())
      longest = std::max(longest, so_far - before->second);
  }
  if (read_ns_ != 0) share_ = std::min(1.0, static_cast<double>(longest) / static_cast<double>(now - read_ns_));
  read_ns_ = now;
  delay_ = std::move(delay);
}

}  // namespace hvd::recorder
