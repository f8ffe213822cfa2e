#include "core/backends/backends.h"

#include <limits>

#include "base/error.h"
#include "base/text.h"

/// The list of backends.  Each backend is a `const Backend` of namespace hvd::core::backend, defined in a file of this
/// folder.  A batch runs its parts in this order.
#define HVD_BACKENDS(X) \
  X(nccl)               \
  X(pinned)             \
  X(shm_eager) X(shm_direct) X(shm_rings) X(between_nodes) X(adasum) X(reduce_scatter) X(movement) X(set_change)

namespace hvd::core {
namespace backend {
#define HVD_DECLARED(name) extern const Backend name;
HVD_BACKENDS(HVD_DECLARED)
#undef HVD_DECLARED
}  // namespace backend

namespace {

constexpr const Backend* table[] = {
#define HVD_POINTER(name) &backend::name,
    HVD_BACKENDS(HVD_POINTER)
#undef HVD_POINTER
};

/// The number of bytes in a text such as "64K".  Throws Error{usage} if @p text is not a size.
std::size_t size_of(std::string_view text, const std::string& whole, const char* variable) {
  std::size_t unit = 1;
  if (!text.empty()) {
    const std::size_t which = std::string_view("KMG").find(text.back());
    if (which != std::string_view::npos) {
      unit <<= 10 * (which + 1);
      text.remove_suffix(1);
    }
  }
  const auto number = to_integer(std::string(text));
  if (!number || *number < 0)
    throw Error(Code::usage, variable, "'" + whole + "' has no size", "write for example shm_rings:64K-1M");
  return static_cast<std::size_t>(*number) * unit;
}

}  // namespace

std::span<const Backend* const> backends() { return table; }

std::size_t part_of(const Backend& backend) {
  std::size_t i = 0;
  while (table[i]->make != backend.make) ++i;
  return i;
}

std::vector<BackendOverride> parse_overrides(const std::string& text, const char* variable) {
  std::vector<BackendOverride> all;
  if (trim(text).empty()) return all;
  for (const std::string& part : split(text, ',')) {
    const std::string word(trim(part));
    const std::size_t colon = word.find(':'), dash = word.find('-', colon == std::string::npos ? word.size() : colon);
    BackendOverride one{nullptr, 0, std::numeric_limits<std::size_t>::max()};
    std::string names;
    for (const Backend* b : table) {
      if (b->name == std::string_view(word).substr(0, colon)) one.backend = b;
      names += (names.empty() ? "" : ", ") + std::string(b->name);
    }
    if (!one.backend)
      throw Error(Code::usage, variable, "'" + word.substr(0, colon) + "' is no backend", "there are " + names);
    if (colon != std::string::npos) {
      if (dash == std::string::npos)
        throw Error(Code::usage, variable, "'" + word + "' has no range", "write for example shm_rings:64K-1M");
      one.from_bytes = size_of(std::string_view(word).substr(colon + 1, dash - colon - 1), word, variable);
      if (dash + 1 < word.size()) one.to_bytes = size_of(std::string_view(word).substr(dash + 1), word, variable);
    }
    all.push_back(one);
  }
  return all;
}

const Backend* choose(const OperationFacts& o, const SetFacts& s, std::span<const BackendOverride> overrides) {
  const std::uint32_t kind = bit_of(o.signature.operation());
  for (const BackendOverride& wish : overrides)
    if (wish.backend->kinds & kind && o.bytes >= wish.from_bytes && o.bytes <= wish.to_bytes &&
        wish.backend->possible(o, s))
      return wish.backend;
  const Backend* best = nullptr;
  for (const Backend* b : table)
    if (b->kinds & kind && b->possible(o, s) && (!best || b->cost(o.bytes, s) < best->cost(o.bytes, s))) best = b;
  return best;
}

}  // namespace hvd::core
