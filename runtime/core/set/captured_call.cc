#include "core/set/captured_call.h"

#include <optional>

#include "base/error.h"
#include "negotiate/command.h"

namespace hvd::core {
namespace {

using negotiate::ByteReader;
using negotiate::ByteWriter;

/// One request of requests_text().
struct Described {
  std::string_view bytes, name;
  Signature signature;
  std::int64_t rows;
};

std::optional<Described> next(ByteReader& r) {
  if (r.empty()) return std::nullopt;
  const std::string_view before = r.rest();
  Described d;
  d.name = r.text();
  d.signature = negotiate::read_signature(r.text());
  d.rows = r.get<std::int64_t>();
  d.bytes = before.substr(0, before.size() - r.rest().size());
  return d;
}

/// "allreduce 'x' of float32 [10, 3]", and the other properties if @p all.
std::string text_of(const std::optional<Described>& d, bool all) {
  if (!d) return "nothing more";
  const Signature& s = d->signature;
  std::string text = name_of(s.operation());
  if (!d->name.empty()) text += " '" + std::string(d->name) + "'";
  text += std::string(" of ") + name_of(s.type()) + " [";
  for (int i = 0; i < s.ndim; ++i) text += (i ? ", " : "") + std::to_string(s.dims[i] < 0 ? d->rows : s.dims[i]);
  text += "]";
  if (!all) return text;
  if (s.operation() == Kind::broadcast) return text + " from root " + std::to_string(s.root);
  text += std::string(", ") + name_of(s.reduction()) + ", factors " + std::to_string(s.before) + " and " +
          std::to_string(s.after);
  return s.group_size ? text + ", in a group of " + std::to_string(s.group_size) : text;
}

/// The first request that differs, on both ranks.
std::string difference(const CapturedCall& here, int rank, const CapturedCall& there, int other) {
  ByteReader a(here.requests), b(there.requests);
  std::optional<Described> x = next(a), y = next(b);
  while (x && y && x->bytes == y->bytes) x = next(a), y = next(b);
  const bool all = text_of(x, false) == text_of(y, false);
  return "rank " + std::to_string(rank) + " records " + text_of(x, all) + ", but rank " + std::to_string(other) +
         " records " + text_of(y, all);
}

}  // namespace

std::string CapturedCall::message() const { return ByteWriter().text(refusal).text(offer).raw(requests).bytes(); }

CapturedCall CapturedCall::of(std::string_view message) {
  if (message.empty()) return {"it has joined (hvd.join), and only all ranks together can record a call", {}, {}};
  ByteReader r(message);
  CapturedCall call;
  call.refusal = r.text();
  call.offer = r.text();
  call.requests = r.rest();
  return call;
}

std::string requests_text(std::span<const CheckedRequest> requests) {
  ByteWriter w;
  for (const CheckedRequest& p : requests) w.text(p.name).text(p.whole_signature().blob()).put(p.dim0);
  return std::move(w.bytes());
}

void check_alike(std::span<const CapturedCall> all, std::span<const int> world_ranks, std::uint64_t number) {
  const std::string where = "captured call " + std::to_string(number);
  for (std::size_t r = 0; r < all.size(); ++r)
    if (!all[r].refusal.empty())
      throw Error(Code::usage, where, "rank " + std::to_string(world_ranks[r]) + " cannot record it: " + all[r].refusal,
                  "call it outside of the capture");
  for (std::size_t r = 1; r < all.size(); ++r)
    if (all[r].requests != all[0].requests)
      throw Error(Code::mismatch, where, difference(all[0], world_ranks[0], all[r], world_ranks[r]),
                  "all ranks must record the same calls in the same order");
}

}  // namespace hvd::core
