/// @file stall.cc — the stall check of the conductor: who waits for whom.
///
/// Costs nothing until somebody waits: a rank that has waited for a while rings
/// the conductor, which then looks again and again until nothing is incomplete.
/// Known gap: of another node it is known only that not all its ranks are ready.
#include <algorithm>
#include <cstdio>

#include "core/leader.h"

namespace hvd::core {
namespace {

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < 16; ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  if (ranks.size() > 16) text += ", and " + std::to_string(ranks.size() - 16) + " more";
  return text;
}

}  // namespace

void Leader::collect_stalls(std::int64_t now_ns) {
  for (auto& [name, stall] : stalls_) stall.seen = false;
  auto note = [&](const std::string& name, std::vector<int> missing) {
    Stall& s = stalls_[name];
    if (s.since_ns == 0) s.since_ns = now_ns;
    s.seen = true;
    s.missing = std::move(missing);
  };
  for (negotiate::Straggler& s : conductor_->incomplete()) {
    for (int n : s.nodes)
      for (int r : world_.nodes[static_cast<std::size_t>(n)]) s.missing.push_back(r);
    note(s.name, std::move(s.missing));
  }
  gather_.partial([&](std::uint32_t id, const std::vector<bool>& here) {
    std::vector<int> missing;
    for (std::size_t l = 0; l < here.size(); ++l)
      if (!here[l]) missing.push_back(world_.locals()[l]);
    if (!missing.empty() && conductor_->live(id)) note(conductor_->name(id), std::move(missing));
  });
  std::erase_if(stalls_, [](const auto& s) { return !s.second.seen; });
}

bool Leader::check_stalls(std::int64_t now_ns) {
  if (!conductor_ || config_.stall_warn_ns <= 0) return false;
  collect_stalls(now_ns);
  std::string warning;
  int names = 0;
  for (auto& [name, s] : stalls_) {
    const std::int64_t waited = now_ns - s.since_ns;
    if (config_.stall_shutdown_ns > 0 && waited >= config_.stall_shutdown_ns) {
      conductor_->gone(s.missing.empty() ? 0 : s.missing.front(), HVD_TIMEOUT,
                       "'" + name + "' has waited " + std::to_string(waited / 1000000000) + " s for rank(s) " +
                           ranks_text(s.missing) + " (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)");
      stalls_.clear();
      return true;
    }
    if (waited < config_.stall_warn_ns || (s.warned_ns && now_ns - s.warned_ns < config_.stall_warn_ns)) continue;
    s.warned_ns = now_ns;
    if (++names <= 8)
      warning += "\n  '" + name + "' for " + std::to_string(waited / 1000000000) + " s, not submitted by rank(s) " +
                 ranks_text(s.missing);
  }
  if (names > 8) warning += "\n  and " + std::to_string(names - 8) + " more";
  if (!warning.empty())
    std::fprintf(stderr, "hvd: some ranks wait for others that have not submitted the same operation:%s\n",
                 warning.c_str());
  return !stalls_.empty();
}

}  // namespace hvd::core
