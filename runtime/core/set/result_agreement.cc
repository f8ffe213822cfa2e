#include "core/set/result_agreement.h"

#include <unistd.h>

#include <algorithm>

#include "core/operation/name_entry.h"
#include "ops/kernels/slice_hash.h"
#include "wire/shared/agreement_finding.h"

namespace hvd::core {
namespace {

/// In the words of a rank: it has no hash of this result.  Also in a word of the leader, once the ranks of its node
/// were compared.
constexpr std::uint64_t no_hash = 0;

/// The value of more than half of @p values, if there is one.
std::uint64_t majority_of(std::span<const std::uint64_t> values) {
  std::vector<std::uint64_t> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 2];  // a majority's value is in the middle
}

/// @p backend: has run the operation; nullptr: it was in the slots.
bool ran_on_gpu(const Backend* backend) { return backend && backend->place == BackendPlace::gpu; }

std::string own_host() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

std::vector<int> outvoted(std::span<const std::uint64_t> values) {
  if (std::all_of(values.begin(), values.end(), [&](std::uint64_t v) { return v == values[0]; })) return {};
  const std::uint64_t middle = majority_of(values);
  const bool majority = 2 * static_cast<std::size_t>(std::count(values.begin(), values.end(), middle)) > values.size();
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
      stops_(stops),
      finite_check_(world.locals()),
      turns_(steps),
      results_(world.leader() ? memory::agreement_words : 0),
      places_(world.leader() ? most_places : 0) {}

void ResultAgreement::note(std::span<Operation* const> ops, std::span<const Backend* const> backends,
                           const SharedResults& shared, std::int64_t step) {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Operation& op = *ops[i];
    const NameEntry& e = *op.entry;
    const Backend* const backend = backends.empty() ? nullptr : backends[i];
    const bool on_gpu = e.signature.device >= 0;
    if (!same_on_all(e.signature) || (on_gpu && !(ran_on_gpu(backend) && shared.device_hashes()))) continue;
    const TensorSlice slice = on_gpu ? turns_.last(e.id, e.bytes) : turns_.next(e.id, e.bytes);
    if (!results_.empty()) remember(op, backend, slice, shared, step);
    ++noted_;
    if (on_gpu) {
      waiting_.push_back({no_hash, shared.device_hashes(), i});
      continue;
    }
    const auto hash = ops::slice_hash(static_cast<const unsigned char*>(op.out) + slice.begin, slice.bytes());
    if (waiting_.empty())
      show(hash);
    else
      waiting_.push_back({hash, nullptr, 0});
  }
}

/// On the leader: keeps the data for a report about result number noted_.
void ResultAgreement::remember(const Operation& op, const Backend* backend, const TensorSlice& slice,
                               const SharedResults& shared, std::int64_t step) {
  NotedResult& result = results_[noted_ % memory::agreement_words];
  result.name.assign(op.entry->name);  // keeps its memory
  result.step = step;
  result.bytes = op.entry->bytes;
  result.slice = slice;
  ResultPlace& place = places_[noted_ % most_places];
  place = shared.place_of(op, backend);
  result.origin = place.origin;
  result.one_sum = place.one_sum;
}

/// Writes the hash of result number shown_ to shared memory.
void ResultAgreement::show(std::uint64_t hash) {
  memory::AgreementWords& words = node_.agreement(node_.me);
  // Release: whoever reads this hash also sees the count of before, which tells that an older hash is overwritten.
  words.hash[shown_ % memory::agreement_words].store(hash, std::memory_order_release);
  words.count.store(++shown_, std::memory_order_release);
}

/// If too many hashes wait for one late hash (a GPU hangs, for example), the result with the late hash is not compared.
void ResultAgreement::take_arrived() {
  for (; !waiting_.empty(); waiting_.pop_front()) {
    const WaitingHash& first = waiting_.front();
    if (!first.on_gpu)
      show(first.hash);
    else if (first.on_gpu->arrived())
      show(first.on_gpu->of(first.tensor));
    else if (waiting_.size() > most_waiting)
      show(no_hash);
    else
      return;
  }
}

std::optional<Disagreement> ResultAgreement::compare(const SharedResults& shared) {
  std::uint64_t end = shown_, most = noted_;
  for (int r = 0; r < node_.ranks; ++r) {
    const std::uint64_t count = node_.agreement(r).count.load(std::memory_order_acquire);
    end = std::min(end, count);
    most = std::max(most, count);
  }
  // A rank writes word n before its count becomes n + 1, so the word of `count` may be changing.
  if (most + 1 > memory::agreement_words) compared_ = std::max(compared_, most + 1 - memory::agreement_words);
  for (; compared_ < end; ++compared_) {
    const std::size_t at = compared_ % memory::agreement_words;
    read_words(at);
    const std::vector<int> bad = outvoted(votes_.values);
    if (bad.empty()) continue;
    bool overwritten = false;
    for (int r = 0; r < node_.ranks; ++r)
      overwritten |= node_.agreement(r).count.load(std::memory_order_relaxed) >= compared_ + memory::agreement_words;
    if (overwritten) continue;
    ++compared_;
    std::vector<negotiate::RankSet> parties;
    for (const int b : bad) parties.emplace_back(votes_.ranks[static_cast<std::size_t>(b)]);
    const bool majority = bad.size() < votes_.values.size();
    // Other nodes get the majority's hash, or none, so that they do not blame the whole node.
    node_.agreement(node_.me).hash[at].store(majority ? majority_of(votes_.values) : no_hash,
                                             std::memory_order_release);
    return describe(results_[at], parties, majority, local_stage(compared_ - 1, shared, majority));
  }
  return std::nullopt;
}

/// Reads the hashes of word @p at.  A rank without a hash has no vote.
void ResultAgreement::read_words(std::size_t at) {
  votes_.values.clear(), votes_.ranks.clear();
  for (int r = 0; r < node_.ranks; ++r) {
    const std::uint64_t hash = node_.agreement(r).hash[at].load(std::memory_order_acquire);
    if (hash == no_hash) continue;
    votes_.values.push_back(hash);
    votes_.ranks.push_back(world_.locals()[static_cast<std::size_t>(r)]);
  }
}

/// nullptr: the hash has been overwritten.
const ResultAgreement::NotedResult* ResultAgreement::noted(std::uint64_t number) const {
  return noted_ - number <= memory::agreement_words ? &results_[number % memory::agreement_words] : nullptr;
}

/// 0: the hash has been overwritten or is not there yet, or the ranks of this node have no majority.
std::uint32_t ResultAgreement::short_hash(std::uint64_t number) const {
  if (!noted(number) || number >= shown_) return 0;
  const std::uint64_t hash = node_.agreement(node_.me).hash[number % memory::agreement_words].load();
  if (hash == no_hash) return 0;
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
    std::string stage;
    if (result->origin != ResultOrigin::unknown)
      stage = result->one_sum ? "bytes sent between hosts" : "bytes sent between hosts, or the sum";
    return describe(*result, parties, bad.size() < values.size(), stage);
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

/// The stage at which the ranks of votes_ became different.  Empty: it is not known.
std::string ResultAgreement::local_stage(std::uint64_t number, const SharedResults& shared, bool majority) const {
  const NotedResult& result = results_[number % memory::agreement_words];
  if (result.origin == ResultOrigin::unknown) return {};
  const std::string usual = result.origin == ResultOrigin::own_sum ? "read or sum" : "copy out";
  if (noted_ - number > most_places) return usual;
  const std::optional<std::uint64_t> now =
      shared.hash(places_[number % most_places], result.slice.begin, result.slice.end);
  if (!now) return usual;
  const std::string bytes =
      result.origin == ResultOrigin::own_sum ? "the inputs in shared memory give" : "shared memory has";
  if (majority && *now == majority_of(votes_.values)) return usual + " (" + bytes + " what the others have)";
  const auto same = std::find(votes_.values.begin(), votes_.values.end(), *now);
  if (same == votes_.values.end()) return usual;
  const int rank = votes_.ranks[static_cast<std::size_t>(same - votes_.values.begin())];
  return (majority ? "changed in shared memory" : usual) + " (" + bytes + " what rank " +
         std::to_string(world_.world_rank(rank)) + " has)";
}

Disagreement ResultAgreement::describe(const NotedResult& result, const std::vector<negotiate::RankSet>& parties,
                                       bool majority, const std::string& stage) const {
  std::string names;
  std::vector<int> ranks;
  for (const negotiate::RankSet& p : parties) {
    const negotiate::RankSet of_world = p.mapped(world_.world_ranks);
    names += (names.empty() ? "" : " and ") + of_world.text(16);
    const std::vector<int> some = of_world.listed(wire::most_finding_ranks);
    ranks.insert(ranks.end(), some.begin(), some.end());
  }
  const std::string what = "the result of '" + result.name + "' in step " + std::to_string(result.step) + ", bytes " +
                           std::to_string(result.slice.begin) + "-" + std::to_string(result.slice.end) + " of " +
                           std::to_string(result.bytes) + ", ";
  return {parties.front().first(),
          majority,
          what +
              (majority ? "is not on " + names + " what it is on the others"
                        : "differs between " + names + ", none of which has a majority") +
              " (seen on host " + own_host() + ")" + (stage.empty() ? "" : "; stage: " + stage),
          result.name,
          result.step,
          std::move(ranks)};
}

}  // namespace hvd::core
