/// @file result_agreement.h — finds results of allreduces and broadcasts that are not the same on all ranks.
///
/// Each rank hashes a slice of each result when the operation ends, while small results are in the cache.  The hash
/// goes to the rank's words in shared memory (memory/node.h).  The node's leader compares the ranks' words when the
/// next batch begins, so no message is added.  A tensor's slices rotate: every byte is covered within
/// HVD_AGREEMENT_STEPS operations on the tensor.
///
/// All ranks run the same operations in the same order.  So the number of an operation, its id, and the slice are the
/// same on all ranks.
///
/// GPUs hash what NCCL has reduced or broadcast (gpu::SliceHashes).  Such a result gets its number when its work is
/// queued, since GPUs end in an order of their own.  The hash of such a result arrives later.  Hashes go to shared
/// memory in the order of the numbers, so those of later operations wait.
///
/// A report names the stage at which ranks became different, if the algorithm and the bytes in shared memory tell
/// (core/batch/shared_results.h).  These bytes are read only after a difference.
///
/// Between nodes, 32 bits of the leader's hashes travel up the tree with the next announcement.  A leader compares its
/// own hashes with those of its children.  So an edge of the tree finds a difference between its two ends.
///
/// The caller holds the engine's drive lock.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/world.h"
#include "core/batch/shared_results.h"
#include "core/operation/operation.h"
#include "core/operation/slice_turns.h"
#include "core/settings/config.h"
#include "memory/node.h"
#include "negotiate/rankset.h"
#include "negotiate/tree.h"
#include "ops/finite_check.h"

namespace hvd::core {

/// The indices of @p values that differ from the majority's value.  All indices if no value has a majority.  Empty: all
/// values are equal.
std::vector<int> outvoted(std::span<const std::uint64_t> values);

/// A result that differs between ranks.
struct Disagreement {
  int rank = 0;           ///< of the set: the first that differs
  bool outvoted = false;  ///< there is a majority from which it differs
  std::string text;       ///< one line
  std::string tensor;     ///< name of the operation
  std::int64_t step = 0;
  std::vector<int> ranks;  ///< of the world: those that differ, at most wire::most_finding_ranks of each party
};

class ResultAgreement {
 public:
  /// nullptr if HVD_AGREEMENT is off.  @p world, @p node: of the process set; they must outlive the result.
  static std::unique_ptr<ResultAgreement> make(const World& world, const Config& config, const memory::Node& node);

  /// Hashes the results of @p ops, which have ended well.  All ranks of the set must call this with the same operations
  /// in the same order, while `entry` is valid.  @p backends: [ops] that have run them; empty: all were in the slots.
  /// @p shared: operations on GPUs are those whose hashes it has.  @p step: the number of the present step, for
  /// reports.
  void note(std::span<Operation* const> ops, std::span<const Backend* const> backends, const SharedResults& shared,
            std::int64_t step);
  /// Shows the node's leader the hashes that have arrived from the GPU.
  void take_arrived();
  /// On the node's leader: compares the results that all local ranks have noted since the last call.  Returns the first
  /// that differs.  To be called until it returns nothing.  A rank that is more than memory::agreement_words operations
  /// ahead of another skips comparisons.  @p shared: of the set's batch, before it begins.
  std::optional<Disagreement> compare(const SharedResults& shared);
  /// On a leader, after compare() has returned nothing: compares the results of this node with those of its children.
  std::optional<Disagreement> compare_nodes(negotiate::TreeNode& tree);
  /// The turns of slices.  For results on GPUs, the slice is chosen when the work is queued.
  SliceTurns& turns() { return turns_; }
  /// Looks at the sums of the set.
  ops::FiniteCheck& finite_check() { return finite_check_; }
  /// One line about @p found.
  std::string describe(const ops::NotFinite& found, std::int64_t step) const;
  /// True unless a rank of this node has called it less than @p quiet_ns ago.  @p now_ns: the present time.
  bool first_not_finite(std::int64_t now_ns, std::int64_t quiet_ns);
  bool stops() const { return stops_; }
  /// Returns true if difference number @p found in a row (from 1) is reported: the first, second, fourth, eighth …
  static bool worth_telling(std::uint64_t found) { return (found & (found - 1)) == 0; }

 private:
  ResultAgreement(const World& world, const memory::Node& node, std::uint64_t steps, bool stops);
  struct NotedResult {
    std::string name;
    std::int64_t step = 0;
    std::size_t bytes = 0;
    TensorSlice slice;
    ResultOrigin origin = ResultOrigin::unknown;
    bool one_sum = false;
  };
  /// The hash of a result that cannot be shown yet.
  struct WaitingHash {
    std::uint64_t hash = 0;                          ///< of a result in host memory
    std::shared_ptr<const gpu::SliceHashes> on_gpu;  ///< has the hash of tensor `tensor`; nullptr: it is in `hash`
    std::size_t tensor = 0;
  };
  struct Votes {
    std::vector<std::uint64_t> values;  ///< the hashes
    std::vector<int> ranks;             ///< [values] of the set
  };
  static constexpr std::size_t most_places = 256;  ///< their memory stays in the cache
  static constexpr std::size_t most_waiting = memory::agreement_words / 2;
  void remember(const Operation& op, const Backend* backend, const TensorSlice& slice, const SharedResults& shared,
                std::int64_t step);
  void show(std::uint64_t hash);
  void read_words(std::size_t at);
  const NotedResult* noted(std::uint64_t number) const;
  std::uint32_t short_hash(std::uint64_t number) const;
  std::string local_stage(std::uint64_t number, const SharedResults& shared, bool majority) const;
  Disagreement describe(const NotedResult& result, const std::vector<negotiate::RankSet>& parties, bool majority,
                        const std::string& stage) const;

  const World& world_;
  const memory::Node& node_;
  const bool stops_;
  ops::FiniteCheck finite_check_;
  std::uint64_t noted_ = 0, compared_ = 0;
  std::uint64_t shown_ = 0;  ///< results whose hash is in shared memory; the others up to noted_ are in waiting_
  std::deque<WaitingHash> waiting_;
  std::uint64_t passed_ = 0, nodes_compared_ = 0;  ///< results whose hash went to the parent; … compared with children
  std::vector<std::deque<std::uint32_t>> below_;   ///< [children] their hashes from nodes_compared_ on
  SliceTurns turns_;
  std::vector<NotedResult> results_;  ///< [agreement_words] the last results, on the leader
  std::vector<ResultPlace> places_;   ///< [most_places] of the last results, on the leader
  Votes votes_;                       ///< on one result, of the ranks of the node
};

}  // namespace hvd::core
