/// Fuzzes the C interface in a world of one: interface_fuzz [SEED [SECONDS [THREADS]]].
///
/// A failure names the seed of its round.  Under clang the same bytes can be libFuzzer's to choose: compile with
/// -DHVD_LIBFUZZER -fsanitize=fuzzer.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "interface.h"

namespace {

using namespace hvd::fuzz;

Pool& pool = *new Pool;  // never destroyed: the runtime may still write when the process ends

void tidy() {
  if (pool.kept() < (8u << 20)) return;
  if (hvd_shutdown() != HVD_OK) {
    std::fprintf(stderr, "hvd_shutdown: %s\n", hvd_last_error());
    std::abort();
  }
  pool.clear();
}

std::vector<std::uint8_t> random_bytes(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint8_t> bytes(1 + random() % 2000);
  for (auto& b : bytes) b = static_cast<std::uint8_t>(random());
  return bytes;
}

}  // namespace

#ifdef HVD_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  play({data, size}, pool, true);
  tidy();
  return 0;
}
#else
int main(int argc, char** argv) {
  std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  if (seed == 0) seed = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) >> 8;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 3;
  const int threads = argc > 3 ? std::atoi(argv[3]) : 1;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int rounds = 0;
  do {
    std::fprintf(stderr, "\rround %d, seed %llu ", rounds, static_cast<unsigned long long>(seed));
    std::vector<std::thread> players;
    for (int t = 0; t < threads; ++t)
      players.emplace_back([=] {
        const auto bytes = random_bytes(seed * 64 + static_cast<std::uint64_t>(t));
        play({bytes.data(), bytes.size()}, pool, t == 0);
      });
    for (auto& p : players) p.join();
    tidy();
    ++seed, ++rounds;
  } while (std::chrono::steady_clock::now() < end);
  std::fprintf(stderr, "\n%d rounds hold\n", rounds);
  return hvd_shutdown();
}
#endif
