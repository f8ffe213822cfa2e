/// @file batch.h — the operations that run together, as a state object.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/operation.h"
#include "core/widened.h"
#include "core/world.h"
#include "ops/hierarchical/exchange.h"
#include "ops/shm/allreduce.h"
#include "ops/shm/direct.h"
#include "ops/shm/distance.h"
#include "ops/shm/rings.h"
#include "trace/trace.h"
#include "transport/transport.h"

namespace hvd::core {

class Batch {
 public:
  using End = std::function<void(Operation&, int status, const std::string& error)>;
  Batch(const World& world, const memory::Node& node, transport::Transport& transport, trace::Tracer& tracer, End end);

  /// @p ops in the order of the conductor; entry set.  eager: all inputs are in their slots.
  void begin(std::span<Operation* const> ops, bool eager);
  /// True when anything moved.  Ends operations as their part is done.
  bool step();
  bool running() const { return running_; }
  /// After a lost peer: forgets everything under way, without ending operations.
  void drop();

 private:
  trace::Phase transfer() const;
  std::uint32_t trace_begin(std::span<Operation* const> ops, trace::Phase phase);
  void trace_next(std::uint32_t number, trace::Phase from, trace::Phase to);
  void trace_end(std::uint32_t number, trace::Phase phase);
  void trace_stream();
  void run_eager();
  void begin_stream();
  bool lies_registered(const Operation& op);
  bool next_stage();
  ops::Item item_of(const Operation& op) const;
  std::unique_ptr<ops::Stage> stage_of(Operation& op);

  const World& world_;
  const memory::Node& node_;
  transport::Transport& transport_;
  trace::Tracer& tracer_;
  std::uint32_t traced_ = 0;                      ///< parts numbered for the timeline so far
  std::uint32_t stream_number_ = 0, queued_ = 0;  ///< of the stream; of the part before the first single one
  trace::Phase stream_phase_ = trace::Phase::memcpy_in_fusion_buffer;
  End end_;
  const ops::Nodes nodes_;
  ops::Rings rings_;
  ops::Distance distance_;
  std::vector<Operation*> ops_, streamed_, single_;
  ops::Stream stream_;
  std::deque<Widened> widened_;  ///< those of streamed_ that travel in 64 bits
  ops::Exchange exchange_;
  ops::ShmAllreduce allreduce_;
  ops::Places places_;
  ops::DirectAllreduce direct_;
  std::unique_ptr<ops::Stage> stage_;  ///< of single_[at_]
  std::size_t at_ = 0;
  bool running_ = false, streaming_ = false, begun_ = false;
};

}  // namespace hvd::core
