#include "core/operation/stand_in.h"

#include "base/error.h"

namespace hvd::core {

std::unique_ptr<StandIn> StandIn::make(const Signature& signature, std::uint32_t id, int rank, int size) {
  auto s = std::make_unique<StandIn>();
  s->entry.describe(signature, rank, size);
  const bool own_rows = is_among(signature.operation(), own_rows_kinds);
  const std::size_t bytes = own_rows ? 0 : static_cast<std::size_t>(signature.payload_bytes());
  s->zeros.reset(std::calloc(bytes + 1, 1));
  if (!s->zeros) throw Error(Code::unavailable, "join", "no memory for " + std::to_string(bytes) + " zeros");
  s->entry.id = id;
  s->entry.bytes = bytes;
  return s;
}

}  // namespace hvd::core
