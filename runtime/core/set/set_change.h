/// @file set_change.h — how process sets come and go: an operation of the global set.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/set/process_set.h"
#include "core/set/set_table.h"
#include "ops/movement/movement.h"
#include "transport/share.h"

namespace hvd::core {

/// What a set_change operation asks for, and its answer; Operation::in points to it.
struct SetChange {
  bool add = true;
  std::vector<int> ranks;  ///< to add
  int id = 0;              ///< to remove; the answer when one is added
  int status = 0;          ///< hvd_status, once the operation has ended
  std::string error;
  std::string name() const;  ///< of the operation: equal where the same is asked for
};

/// Carries out a SetChange, in the batches of the global set.  Members of a new set make its memory, then all ranks of
/// the world tell each other whether that worked.  Where the world uses NCCL, it is split for the members when it has
/// nothing to do.
class SetChangeStage final : public ops::Stage {
 public:
  /// What it needs of the engine.
  struct Context {
    const World& world;
    const Config& config;
    transport::Transport& transport;
    const memory::Node& node;                                   ///< of the global set
    const std::vector<std::shared_ptr<unsigned char>>& arenas;  ///< of this node's ranks
    EngineContext& shared;
    Batch& batch;  ///< of the global set
    SetTable& sets;
    std::function<void(std::shared_ptr<ProcessSet>)> opened;  ///< from now on the engine steps it
    std::function<void(std::shared_ptr<ProcessSet>)> closed;  ///< no more
  };
  /// @p changes: carried out one after the other.
  SetChangeStage(Context context, std::vector<SetChange*> changes, ops::Rings& rings, const ops::Nodes& nodes);
  bool step() override;
  bool done() const override { return !change_; }

 private:
  void next();
  void add();
  void form();
  void remove();
  void agree();
  bool finish();
  gpu::SetDevice* splitting() const;
  void refuse(int status, const std::string& error);

  Context context_;
  std::vector<SetChange*> changes_;
  std::size_t at_ = 0;
  SetChange* change_ = nullptr;  ///< the one under way
  ops::Rings& rings_;
  const ops::Nodes& nodes_;
  SetInfo fresh_;
  World world_;  ///< of the new set
  std::shared_ptr<transport::Transport> transport_;
  std::unique_ptr<memory::Node> node_;
  std::unique_ptr<transport::Sharing> sharing_;
  struct Answer {
    std::int32_t status;  ///< hvd_status of this rank's part
    std::int32_t blocks;  ///< what its GPU has left for the set: gpu::DeviceShare
  };
  Answer mine_{};
  std::unique_ptr<gpu::DeviceShare> share_;
  std::unique_ptr<ops::Movement> answers_;
};

/// How large the parts of a node's memory are for a set of @p local_size members there.
memory::Geometry geometry_of(int local_size, bool global, const Config& config);

}  // namespace hvd::core
