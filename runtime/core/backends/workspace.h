/// @file workspace.h — the common parts of a process set's backends: memory of the node, messages, the GPU, the
/// timeline.
///
/// The caller holds the engine's drive lock.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/world.h"
#include "core/backends/backend.h"
#include "core/backends/batch_rows.h"
#include "core/backends/reduction.h"
#include "core/backends/widened.h"
#include "core/operation/operation.h"
#include "core/operation/slice_turns.h"
#include "ops/shm/distance.h"
#include "ops/shm/eager.h"
#include "ops/shm/rings.h"
#include "transport/transport.h"

namespace hvd::core {

/// The operations of a batch that one stage runs together.
struct BatchPart {
  std::vector<Operation*> ops;
  std::vector<const Backend*> chosen;  ///< [ops]
  std::uint32_t row = 0;               ///< of the timeline; 0: none yet
};

struct Workspace {
  /// Makes the stage that runs set_change operations, which move no tensors.
  using Special =
      std::function<std::unique_ptr<ops::Stage>(std::span<Operation* const>, ops::Rings&, const ops::Nodes&)>;

  Workspace(const World& w, const memory::Node& n, transport::Transport& t, trace::Tracer& recorder,
            std::uint32_t& traced)
      : world(w),
        node(n),
        transport(t),
        tracer(recorder),
        rows(recorder, traced),
        slots(n),
        nodes{w.nodes, w.node_of, w.local_of, w.node(), w.local_rank(), w.in_rank_order},
        rings(n),
        reduction(rings, distance, nodes, t) {}

  /// The phase in which data moves between ranks.
  trace::Phase transfer() const { return nodes.count() > 1 ? trace::Phase::mpi : trace::Phase::shm; }
  /// Records that the data of @p part moves from now on.
  void begin_transfer(const BatchPart& part) {
    phase = transfer();
    rows.next(part.row, trace::Phase::queue, phase);
  }
  /// Lets batches from 16 KiB bypass the caches if the node's cores are far apart.
  void set_bytes(std::size_t bytes) { rings.streaming = distance.streaming(node, bytes); }
  /// Keeps @p stage until the part has ended.
  ops::Stage* own(std::unique_ptr<ops::Stage> stage) { return (owned = std::move(stage)).get(); }

  const World& world;
  const memory::Node& node;
  transport::Transport& transport;
  trace::Tracer& tracer;
  BatchRows rows;
  ops::EagerSlots slots;
  const ops::Nodes nodes;
  ops::Rings rings;
  ops::Distance distance;
  Reduction reduction;
  Special special;
  ops::FiniteCheck* check = nullptr;               ///< looks at sums; nullptr: no check
  std::deque<WideCopy> widened;                    ///< of the reducescatters
  std::unique_ptr<gpu::SetDevice> device;          ///< null until the first tensor on a GPU
  SliceTurns* turns = nullptr;                     ///< results on GPUs are hashed; nullptr: they are not
  std::shared_ptr<const gpu::SliceHashes> hashes;  ///< of the part that the GPUs have run last
  std::unique_ptr<ops::Stage> owned;               ///< null while the stage is one that is used again, like `reduction`
  trace::Phase phase = trace::Phase::queue;
};

}  // namespace hvd::core
