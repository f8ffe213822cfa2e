#include "rank/diagnostics/death/last_words.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"

namespace hvd::rank {
namespace {

template <std::size_t n>
bool has_one_of(std::string_view words, const std::string_view (&signs)[n]) {
  return std::any_of(std::begin(signs), std::end(signs),
                     [words](std::string_view sign) { return words.find(sign) != words.npos; });
}

/// Errors from an empty standard input: of input(), and of pdb's prompt.
constexpr std::string_view no_input[] = {"EOFError: EOF when reading a line", "bdb.BdbQuit"};

/// Messages about missing host memory: of Python, C++, the kernel, torch and NumPy.
constexpr std::string_view no_memory[] = {"MemoryError", "std::bad_alloc", "Cannot allocate memory",
                                          "can't allocate memory", "Unable to allocate"};

constexpr std::string_view full_disk[] = {
    "No space left on device",    "Disk quota exceeded", "file write failed", "inline_container.cc",
    "PytorchStreamWriter failed", " requested and "};  // the last: NumPy's "9 requested and 4 written"

constexpr std::string_view dead_worker[] = {"DataLoader worker (pid", "BrokenProcessPool"};

}  // namespace

bool tells_full_disk(std::string_view words) { return has_one_of(words, full_disk); }

bool tells_dead_worker(std::string_view words) { return has_one_of(words, dead_worker); }

std::string hint_for(std::string_view words, std::int64_t address_limit_bytes) {
  if (has_one_of(words, no_input))
    return "its standard input is empty: hvdrun --stdin RANK gives yours to one; hvdrun attach RANK opens pdb in it";
  if (address_limit_bytes > 0 && has_one_of(words, no_memory))
    return "its address space is limited to " + human_bytes(address_limit_bytes) +
           " (ulimit -v): start hvdrun with a higher limit, or none";
  if (has_one_of(words, dead_worker))
    return "a worker that is killed mostly ran out of memory: use fewer workers or smaller batches; dmesg tells more";
  return "";
}

}  // namespace hvd::rank
