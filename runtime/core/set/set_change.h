/// @file set_change.h — adds and removes process sets, by an operation of the global set.
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

/// The request of a set_change operation, and the answer.  Operation::in points to this struct.
struct SetChange {
  bool add = true;
  std::vector<int> ranks;  ///< to add
  int id = 0;              ///< of the set to remove; the answer when a set is added
  int status = 0;          ///< hvd_status, once the operation has ended
  std::string error;
  std::string name() const;  ///< of the operation; equal requests have equal names
};

/// Carries out SetChanges, in the batches of the global set.  Members of a new set make its memory.  All ranks of the
/// world then exchange whether that worked.  If the world uses NCCL, its communicator is split for the members once the
/// GPU has no work.
class SetChangeStage final : public ops::Stage {
 public:
  /// The parts of the engine that the stage uses.
  struct Context {
    const World& world;
    const Config& config;
    transport::Transport& transport;
    const memory::Node& node;                                   ///< of the global set
    const std::vector<std::shared_ptr<unsigned char>>& arenas;  ///< of this node's ranks
    EngineContext& shared;
    Batch& batch;  ///< of the global set
    SetTable& sets;
    std::function<void(std::shared_ptr<ProcessSet>)> opened;  ///< called when the engine must begin to step a set
    std::function<void(std::shared_ptr<ProcessSet>)> closed;  ///< called when the engine must no longer step a set
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
  SetChange* change_ = nullptr;  ///< the change under way
  ops::Rings& rings_;
  const ops::Nodes& nodes_;
  SetInfo fresh_;
  World world_;  ///< of the new set
  std::shared_ptr<transport::Transport> transport_;
  std::unique_ptr<memory::Node> node_;
  std::unique_ptr<transport::Sharing> sharing_;
  struct Answer {
    std::int32_t status;  ///< hvd_status of this rank's part
    std::int32_t blocks;  ///< the blocks that its GPU has left for the set: gpu::DeviceShare
  };
  Answer mine_{};
  std::unique_ptr<gpu::DeviceShare> share_;
  std::unique_ptr<ops::Movement> answers_;
};

/// The sizes of the parts of a node's shared memory, for a set with @p local_size members on the node.
memory::Geometry geometry_of(int local_size, bool global, const Config& config);

}  // namespace hvd::core
