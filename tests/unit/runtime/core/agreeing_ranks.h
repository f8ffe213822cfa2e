/// @file agreeing_ranks.h — the ranks of one node that compare their results, as objects of one thread.
#pragma once
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/operation/name_entry.h"
#include "core/set/result_agreement.h"
#include "world_of_threads.h"

namespace hvd::core::backend {
extern const Backend adasum, nccl;
}

namespace hvd::testing {

inline core::Config agreement_config(const char* mode, int steps) {
  core::Config config;
  config.set("HVD_AGREEMENT", mode);
  config.set("HVD_AGREEMENT_STEPS", steps);
  return config;
}

/// Ranks of one node, as objects of one thread.
struct AgreeingRanks {
  AgreeingRanks(int size, const core::Config& config) {
    memory::Geometry g;
    g.ranks = size;
    g.words = 2;
    g.chunk_bytes = g.eager_bytes = g.record_bytes = g.command_bytes = 4096;
    g.agreement = true;
    const std::vector<int> hosts(static_cast<std::size_t>(size), 0);
    for (int r = 0; r < size; ++r) {
      worlds.push_back(World::of(r, hosts, 0));
      nodes.push_back(std::make_unique<memory::Node>(g, r));
      if (r == 0) {
        memory.reset(std::aligned_alloc(4096, nodes[0]->total_bytes()), std::free);
        std::memset(memory.get(), 0, nodes[0]->total_bytes());
      }
      nodes.back()->attach(memory);
    }
    auto world = transport::LoopbackWorld::make(size);
    for (std::size_t r = 0; r < nodes.size(); ++r) {
      all.push_back(core::ResultAgreement::make(worlds[r], config, *nodes[r]));
      transports.push_back(world->open(static_cast<int>(r)));
      work.emplace_back(worlds[r], *nodes[r], *transports[r], tracer, traced);
    }
  }
  /// To be called on the leader.
  std::optional<core::Disagreement> compare() { return all[0]->compare(core::SharedResults(work[0])); }
  void describe(core::NameEntry& e, core::Operation& op, std::size_t r, std::uint32_t id, std::vector<float>& result,
                Kind kind = Kind::allreduce) const {
    Signature s;
    s.kind = static_cast<std::uint8_t>(kind);
    s.dtype = HVD_F32;
    s.ndim = 1;
    s.dims[0] = static_cast<std::int64_t>(result.size());
    e.describe(s, static_cast<int>(r), static_cast<int>(all.size()));
    e.id = id;
    e.slot = 0;
    e.name = "gradient." + std::to_string(id);
    op.entry = &e;
    op.in = op.out = result.data();
  }
  /// Rank @p r ends an allreduce with this result: [elements].
  void end(std::size_t r, std::uint32_t id, std::vector<float>& result, std::int64_t step = 0) {
    core::NameEntry e;
    core::Operation op;
    describe(e, op, r, id, result);
    core::Operation* one = &op;
    const core::Backend* const ran = &core::backend::adasum;  // the stage is not known
    all[r]->note({&one, 1}, {&ran, 1}, core::SharedResults(work[r]), step);
  }
  std::shared_ptr<void> memory;
  trace::Tracer tracer;
  std::uint32_t traced = 0;
  std::vector<std::unique_ptr<transport::Transport>> transports;
  std::deque<core::Workspace> work;
  std::deque<World> worlds;
  std::vector<std::unique_ptr<memory::Node>> nodes;
  std::vector<std::unique_ptr<core::ResultAgreement>> all;
};

}  // namespace hvd::testing
