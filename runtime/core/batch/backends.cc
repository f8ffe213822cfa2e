#include "core/batch/backends.h"

#include <array>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "core/batch/batch.h"

namespace hvd::core {
namespace {

using Op = const OperationFacts&;
using Set = const SetFacts&;

constexpr std::uint32_t allreduce = bit_of(Kind::allreduce), reducescatter = bit_of(Kind::reducescatter);
constexpr std::uint32_t moves = moving_kinds, data = tensor_kinds;

bool is_adasum(Op o) { return o.signature.reduction() == Reduce::adasum; }
bool on_host(Op o) { return !o.on_gpu && !o.in_slots; }

bool gpus_can(Op o, Set s) {
  if (!o.on_gpu || !s.device.among_gpus || s.device.through_host & bit_of(o.signature.operation())) return false;
  gpu::DeviceTensor t;
  t.kind = o.signature.operation();
  t.dtype = o.signature.type();
  t.reduce = o.signature.reduction();
  t.before = o.signature.before;
  t.after = o.signature.after;
  return gpu::possible(t, s.ranks, s.device.capabilities);
}

/// A line of cost: so much at any size, and so much a byte.
template <int fixed_ns, int ns_per_kib>
double line(std::size_t bytes, Set) {
  return fixed_ns + static_cast<double>(bytes) * ns_per_kib / 1024;
}

// clang-format off
/// The figures of cost are orders of magnitude: slots need no flag, a tensor in
/// place is read and written once, the rings copy it twice more, and messages come on top of the rings.
const std::array table{
    //       name             kinds          possible                                                              cost                make
    Backend{"nccl",           data,          gpus_can,                                                             line<20000, 20>,    Batch::make_on_device},
    Backend{"pinned",         data,          [](Op o, Set) { return o.on_gpu; },                          line<50000, 200>,   Batch::make_pinned},
    Backend{"shm_eager",      data,          [](Op o, Set) { return o.in_slots; },                        line<500, 400>,     Batch::make_eager},
    Backend{"shm_direct",     allreduce,     [](Op o, Set s) { return on_host(o) && !is_adasum(o) && o.registered && s.nodes == 1; },
                                                                                                                   line<2000, 150>,    Batch::make_allreduce, true},
    Backend{"shm_rings",      allreduce,     [](Op o, Set s) { return !o.on_gpu && !is_adasum(o) && s.nodes == 1; },
                                                                                                                   line<6000, 300>,    Batch::make_allreduce},
    Backend{"between_nodes",  allreduce,     [](Op o, Set s) { return !o.on_gpu && !is_adasum(o) && s.nodes > 1; },
                                                                                                                   line<30000, 1000>,  Batch::make_allreduce},
    Backend{"adasum",         allreduce,     [](Op o, Set) { return on_host(o) && is_adasum(o); },        line<20000, 900>,   Batch::make_adasum},
    Backend{"reduce_scatter", reducescatter, [](Op o, Set) { return !o.on_gpu; },                         line<10000, 300>,   Batch::make_reduce_scatter},
    Backend{"movement",       moves,         [](Op o, Set) { return !o.on_gpu; },                         line<10000, 300>,   Batch::make_movement},
    Backend{"set_change",     bit_of(Kind::set_change), [](Op, Set) { return true; },                     line<0, 0>,         Batch::make_set_change},
};
// clang-format on

/// "64K"; throws where it is no size.
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

static_assert(table.size() == Batch::num_backends);

std::span<const Backend> backends() { return table; }

std::size_t part_of(const Backend& backend) {
  std::size_t i = 0;
  while (table[i].make != backend.make) ++i;
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
    for (const Backend& b : table) {
      if (b.name == std::string_view(word).substr(0, colon)) one.backend = &b;
      names += (names.empty() ? "" : ", ") + std::string(b.name);
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
  for (const Backend& b : table)
    if (b.kinds & kind && b.possible(o, s) && (!best || b.cost(o.bytes, s) < best->cost(o.bytes, s))) best = &b;
  return best;
}

}  // namespace hvd::core
