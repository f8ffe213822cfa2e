#include "core/set/result_agreement.h"

#include <unistd.h>

#include <algorithm>

#include "core/operation/name_entry.h"
#include "ops/kernels/slice_hash.h"

namespace hvd::core {
namespace {

constexpr std::size_t least_slice = 1 << 10;

/// True if all ranks get the same result, in host memory.
bool compared(const Signature& s) {
  return s.device < 0 && (s.operation() == Kind::allreduce || s.operation() == Kind::broadcast);
}

std::string own_host() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

TensorSlice slice_of(std::size_t bytes, std::uint64_t look, std::uint64_t steps) {
  const std::size_t even = (bytes + steps - 1) / steps;
  const std::size_t each = std::max(least_slice, (even + 63) / 64 * 64);
  const std::size_t slices = (bytes + each - 1) / each;
  if (slices == 0) return {};
  const std::size_t begin = look % slices * each;
  return {begin, std::min(bytes, begin + each)};
}

std::vector<int> outvoted(std::span<const std::uint64_t> values) {
  if (std::all_of(values.begin(), values.end(), [&](std::uint64_t v) { return v == values[0]; })) return {};
  std::vector<std::uint64_t> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::uint64_t middle = sorted[sorted.size() / 2];  // a majority's value is in the middle
  const bool majority = 2 * static_cast<std::size_t>(std::count(sorted.begin(), sorted.end(), middle)) > sorted.size();
  std::vector<int> members;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!majority || values[i] != middle) members.push_back(static_cast<int>(i));
  return members;
}

std::unique_ptr<ResultAgreement> ResultAgreement::make(const World& world, const Config& config,
                                                       const memory::Node& node) {
  const std::string mode = config.text("HVD_AGREEMENT");
  if (mode == "off" || world.size == 1) return nullptr;
  const auto steps = static_cast<std::uint64_t>(config.integer("HVD_AGREEMENT_STEPS"));
  return std::unique_ptr<ResultAgreement>(new ResultAgreement(world, node, steps, mode == "stop"));
}

ResultAgreement::ResultAgreement(const World& world, const memory::Node& node, std::uint64_t steps, bool stops)
    : world_(world),
      node_(node),
      steps_(steps),
      stops_(stops),
      finite_check_(world.locals()),
      results_(world.leader() ? memory::agreement_words : 0),
      values_(static_cast<std::size_t>(node.ranks)) {}

void ResultAgreement::note(std::span<Operation* const> ops, std::int64_t step) {
  memory::AgreementWords& words = node_.agreement(node_.me);
  for (const Operation* op : ops) {
    const NameEntry& e = *op->entry;
    const Signature& s = e.signature;
    if (!compared(s)) continue;
    if (e.id >= looks_.size()) looks_.resize(e.id + 1);
    const TensorSlice slice = slice_of(e.bytes, looks_[e.id]++, steps_);
    const std::uint64_t hash =
        ops::slice_hash(static_cast<const unsigned char*>(op->out) + slice.begin, slice.end - slice.begin);
    // Release: whoever reads this hash also sees the count of before, which tells that an older hash is overwritten.
    words.hash[noted_ % memory::agreement_words].store(hash, std::memory_order_release);
    if (!results_.empty()) {
      NotedResult& result = results_[noted_ % memory::agreement_words];
      result.name.assign(e.name);  // keeps its memory
      result.step = step;
      result.bytes = e.bytes;
      result.slice = slice;
    }
    ++noted_;
    words.count.store(noted_, std::memory_order_release);
  }
}

std::optional<Disagreement> ResultAgreement::compare() {
  std::uint64_t end = noted_, most = noted_;
  for (int r = 0; r < node_.ranks; ++r) {
    const std::uint64_t count = node_.agreement(r).count.load(std::memory_order_acquire);
    end = std::min(end, count);
    most = std::max(most, count);
  }
  // A rank writes word n before its count becomes n + 1, so the word of `count` may be changing.
  if (most + 1 > memory::agreement_words) compared_ = std::max(compared_, most + 1 - memory::agreement_words);
  for (; compared_ < end; ++compared_) {
    const std::size_t at = compared_ % memory::agreement_words;
    for (int r = 0; r < node_.ranks; ++r)
      values_[static_cast<std::size_t>(r)] = node_.agreement(r).hash[at].load(std::memory_order_acquire);
    const std::vector<int> locals = outvoted(values_);
    if (locals.empty()) continue;
    bool overwritten = false;
    for (int r = 0; r < node_.ranks; ++r)
      overwritten |= node_.agreement(r).count.load(std::memory_order_relaxed) >= compared_ + memory::agreement_words;
    if (overwritten) continue;
    ++compared_;
    std::vector<negotiate::RankSet> parties;
    for (const int l : locals) parties.emplace_back(world_.locals()[static_cast<std::size_t>(l)]);
    return describe(results_[at], parties, locals.size() < values_.size());
  }
  return std::nullopt;
}

/// nullptr: the hash has been overwritten.
const ResultAgreement::NotedResult* ResultAgreement::noted(std::uint64_t number) const {
  return noted_ - number <= memory::agreement_words ? &results_[number % memory::agreement_words] : nullptr;
}

/// 0: the hash has been overwritten.
std::uint32_t ResultAgreement::short_hash(std::uint64_t number) const {
  if (!noted(number)) return 0;
  const std::uint64_t hash = node_.agreement(node_.me).hash[number % memory::agreement_words].load();
  return std::max<std::uint32_t>(1, static_cast<std::uint32_t>(hash >> 32));
}

std::optional<Disagreement> ResultAgreement::compare_nodes(negotiate::TreeNode& tree) {
  if (world_.rank != 0)
    for (; passed_ < compared_; ++passed_) tree.result_word(short_hash(passed_));
  below_.resize(static_cast<std::size_t>(tree.end_child() - tree.first_child()));
  for (const negotiate::ResultWords& w : tree.take_words())
    below_[w.child].insert(below_[w.child].end(), w.words.begin(), w.words.end());
  if (below_.empty()) return std::nullopt;
  auto arrived = [this] {
    return std::none_of(below_.begin(), below_.end(), [](const auto& words) { return words.empty(); });
  };
  while (nodes_compared_ < compared_ && arrived()) {
    std::vector<std::uint64_t> values{short_hash(nodes_compared_)};
    for (auto& words : below_) values.push_back(words.front()), words.pop_front();
    const NotedResult* result = noted(nodes_compared_++);
    if (std::find(values.begin(), values.end(), 0) != values.end()) continue;
    const std::vector<int> bad = outvoted(values);
    if (bad.empty()) continue;
    std::vector<negotiate::RankSet> parties;
    for (const int b : bad) {
      const int node = b == 0 ? world_.node() : tree.first_child() + b - 1;
      parties.push_back(negotiate::RankSet::of(world_.nodes[static_cast<std::size_t>(node)]));
    }
    return describe(*result, parties, bad.size() < values.size());
  }
  return std::nullopt;
}

std::string ResultAgreement::describe(const ops::NotFinite& found, std::int64_t step) const {
  std::string from = ", from a rank that is not known";
  if (!found.ranks.empty())
    from = ", from " + negotiate::RankSet::of(found.ranks).mapped(world_.world_ranks).text(16);
  else if (found.overflow)
    from = ", which overflowed";
  else if (found.perhaps >= 0)
    from = ", from rank " + std::to_string(world_.world_rank(found.perhaps)) + " or by an overflow";
  return std::string(found.nan ? "NaN" : "infinity") + " in the sum '" + found.name + "' in step " +
         std::to_string(step) + ", element " + std::to_string(found.element) + from + " (seen on host " + own_host() +
         ")";
}

bool ResultAgreement::first_not_finite(std::int64_t now_ns, std::int64_t quiet_ns) {
  return now_ns - node_.agreement(0).not_finite_ns.exchange(now_ns, std::memory_order_relaxed) >= quiet_ns;
}

Disagreement ResultAgreement::describe(const NotedResult& result, const std::vector<negotiate::RankSet>& parties,
                                       bool majority) const {
  std::string names;
  for (const negotiate::RankSet& p : parties)
    names += (names.empty() ? "" : " and ") + p.mapped(world_.world_ranks).text(16);
  const std::string what = "the result of '" + result.name + "' in step " + std::to_string(result.step) + ", bytes " +
                           std::to_string(result.slice.begin) + "-" + std::to_string(result.slice.end) + " of " +
                           std::to_string(result.bytes) + ", ";
  return {parties.front().first(), majority,
          what +
              (majority ? "is not on " + names + " what it is on the others"
                        : "differs between " + names + ", none of which has a majority") +
              " (seen on host " + own_host() + ")"};
}

}  // namespace hvd::core
