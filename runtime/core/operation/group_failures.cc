#include "core/operation/group_failures.h"

#include "base/error.h"

namespace hvd::core {

void GroupFailures::refuse(std::span<const CheckedRequest> requests, int rank) const {
  for (const CheckedRequest& p : requests) {
    const auto found = outdated_.find(p.name);
    if (found == outdated_.end() || p.signature.group_size) continue;
    for (const UnseenFailure& u : unseen_)
      if (u.group == found->second.group)
        throw Error(Code::mismatch, name_of(p.signature.operation()),
                    "'" + std::string(p.name) + "' is in no group on rank " + std::to_string(rank) +
                        ", but in a group on other ranks, and that group has failed: " + u.text);
  }
}

std::uint64_t GroupFailures::submitted_at(const NameEntry& e, std::uint64_t executed) const {
  if (e.group_size || !any()) return executed;
  std::uint64_t seen = unseen_.empty() ? executed : unseen_.front().command - 1;
  if (handle_ != 0) seen = std::min(seen, command_ - 1);
  const auto found = outdated_.find(e.name);
  return std::max(seen, found == outdated_.end() ? 0 : found->second.command);
}

}  // namespace hvd::core
