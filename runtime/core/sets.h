/// @file sets.h — the living process sets of a world, and how they come and go.
///
/// All ranks know all sets, members or not.  The table changes at the same
/// place of the global set's sequence of batches everywhere (SetChangeStage), so ids,
/// streams and what counts as a duplicate are the same without a message.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/set.h"
#include "ops/movement/movement.h"
#include "transport/share.h"

namespace hvd::core {

/// One living set.  Fixed once it is in the table.
struct SetInfo {
  int id = 0, stream = 0;
  std::vector<int> ranks;           ///< [size] world ranks; rank i of the set is ranks[i]
  int rank = -1;                    ///< this rank's place, -1: not a member
  std::shared_ptr<ProcessSet> set;  ///< null where this rank is not a member
};

/// What a set_change operation asks for, and its answer; Operation::in points to it.
struct SetChange {
  bool add = true;
  std::vector<int> ranks;  ///< to add
  int id = 0;              ///< to remove; the answer when one is added
  int status = 0;          ///< hvd_status, once the operation has ended
  std::string error;
  std::string name() const;  ///< of the operation: equal where the same is asked for
};

/// The table.  Any thread.
class SetTable {
 public:
  /// nullptr: no living set has this id.
  std::shared_ptr<const SetInfo> find(int id) const;
  /// The id of a living set with these ranks, in any order; -1: there is none.
  int duplicate(const std::vector<int>& ranks) const;
  std::vector<std::shared_ptr<const SetInfo>> all() const;

  // Drive side.
  /// A number for a new set and its stream, the same on all ranks.  Throws Error{unavailable} when all are taken.
  SetInfo next(std::vector<int> ranks, int my_rank, int streams);
  void insert(SetInfo set);
  std::shared_ptr<const SetInfo> erase(int id);

 private:
  mutable std::mutex mutex_;
  std::map<int, std::shared_ptr<const SetInfo>> living_;
  int last_id_ = 0, last_stream_ = 0;
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
  Device* splitting() const;
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
    std::int32_t blocks;  ///< what its GPU has left for the set's NCCL, see nccl::MultiprocessorShare
  };
  Answer mine_{};
  std::unique_ptr<nccl::MultiprocessorShare> share_;
  std::unique_ptr<ops::Movement> answers_;
};

/// How large the parts of a node's memory are for a set of @p local_size members there.
memory::Geometry geometry_of(int local_size, bool global, const Config& config);

}  // namespace hvd::core
