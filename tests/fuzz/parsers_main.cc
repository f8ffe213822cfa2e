/// Fuzzes the parsers.
///
///     parsers_fuzz SEEDS [RUNS [SEED]]     every parser: its seeds from SEEDS/NAME, then RUNS changed ones of them
///     parsers_fuzz --samples FOLDER        writes the seeds that are code into FOLDER/NAME, for libFuzzer
///     HVD_FUZZ=NAME parsers_libfuzzer …    under libFuzzer (clang, -Dfuzzer=true), which sees what code is reached
///
/// An input that breaks a parser is written to parsers_fuzz.NAME before the process ends; add it to the seeds.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/file.h"
#include "parsers.h"

namespace {

using namespace hvd::fuzz;

#ifdef HVD_LIBFUZZER

const Parser& chosen() {
  static const Parser* const parser = [] {
    const char* name = std::getenv("HVD_FUZZ");
    const Parser* found = name ? find_parser(name) : nullptr;
    if (!found) {
      std::fprintf(stderr, "HVD_FUZZ must be one of:");
      for (const Parser& p : parsers()) std::fprintf(stderr, " %s", p.name);
      std::fprintf(stderr, "\n");
      std::exit(2);
    }
    return found;
  }();
  return *parser;
}

#else

constexpr std::size_t most_bytes = 1u << 16, most_seed_bytes = 1u << 20;

/// Changes a text in one to four places. A change inserts bytes, numbers, copies of the text's own parts, or parts of
/// another seed.
std::string changed(std::string text, const std::vector<std::string>& seeds, std::mt19937_64& random) {
  static const std::string tokens[] = {"[",      "]",
                                       "{",      "}",
                                       ":",      "-",
                                       "0",      "99999999999999999999",
                                       "\n",     "\"",
                                       "\\",     ",",
                                       "\xff",   std::string(1, '\0'),
                                       "slots=", "[1-999999999]",
                                       "(x9)",   "- ",
                                       "  ",     "1e999",
                                       "&a",     "*a",
                                       "#"};
  for (std::size_t n = 1 + random() % 4; n > 0; --n) {
    const std::size_t at = text.empty() ? 0 : random() % text.size(), length = 1 + random() % 16;
    switch (random() % 6) {
      case 0:
        if (!text.empty()) text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, tokens[random() % std::size(tokens)]);
        break;
      case 3:
        text.insert(at, text.substr(random() % (text.size() + 1), length * 4));
        break;
      case 4: {
        const std::string& other = seeds[random() % seeds.size()];
        text = text.substr(0, at) + other.substr(random() % (other.size() + 1));
        break;
      }
      default:
        if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
    }
  }
  return text.substr(0, most_bytes);
}

std::string tried, left_as;  // the input that is being parsed, and the file for it

/// Handles a crash. Runs in a signal handler, so makes system calls only.
extern "C" void leave(int number) {
  const int fd = ::open(left_as.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd >= 0 && ::write(fd, tried.data(), tried.size()) >= 0) ::close(fd);
  std::signal(number, SIG_DFL);
  std::raise(number);
}

int fuzz(const std::filesystem::path& folder, const Parser& parser, int runs, std::uint64_t seed) {
  std::vector<std::string> seeds = parser.samples ? parser.samples() : std::vector<std::string>{};
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder / parser.name, none))
    seeds.push_back(hvd::read_file(entry.path(), most_seed_bytes));
  if (seeds.empty()) {
    std::fprintf(stderr, "%s has no seeds\n", parser.name);
    return 1;
  }
  std::mt19937_64 random(seed);
  left_as = std::string("parsers_fuzz.") + parser.name;
  for (const std::string& s : seeds) feed(parser, tried = s);
  for (int i = 0; i < runs; ++i) {
    tried = changed(seeds[random() % seeds.size()], seeds, random);
    feed(parser, tried);
  }
  std::printf("%-10s %zu seeds, %d runs\n", parser.name, seeds.size(), runs);
  return 0;
}

int write_samples(const std::filesystem::path& folder) {
  for (const Parser& p : parsers()) {
    std::filesystem::create_directories(folder / p.name);
    int number = 0;
    for (const std::string& s : p.samples ? p.samples() : std::vector<std::string>{})
      std::ofstream(folder / p.name / ("sample" + std::to_string(number++)), std::ios::binary) << s;
    std::printf("%s\n", p.name);
  }
  return 0;
}

#endif

}  // namespace

#ifdef HVD_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  feed(chosen(), {reinterpret_cast<const char*>(data), size});
  return 0;
}
#else
int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "parsers_fuzz SEEDS [RUNS [SEED]]\n");
    return 2;
  }
  if (argc > 2 && std::string_view(argv[1]) == "--samples") return write_samples(argv[2]);
  const int runs = argc > 2 ? std::atoi(argv[2]) : 1000;
  const std::uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(number, leave);
  int wrong = 0;
  for (const Parser& p : parsers()) wrong += fuzz(argv[1], p, runs, seed);
  return wrong != 0;
}
#endif
