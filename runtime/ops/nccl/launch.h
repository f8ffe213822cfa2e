/// @file launch.h — a batch of operations put on the GPU's stream: packed, handed to NCCL, unpacked.
///
/// The host waits for nothing: done() means that all is queued.  What becomes of
/// it, the mark says that is recorded behind it.  Small tensors of one type and
/// reduction share one NCCL call through the fusion buffer, packed by one launch;
/// larger ones go as they are.
///
///   stream: wait for each tensor's mark → gather → NCCL's groups → scatter → mark
///
/// A group is what one communicator does.  First comes what goes over all ranks at
/// once.  Node by node it takes three more: a sum is scattered inside the node,
/// made across by those that hold the same part, and gathered inside; an allgather
/// goes across, then inside, and its blocks are put in order behind that.  The next
/// group begins when NCCL has put the one before on the stream.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/nccl/clique.h"
#include "ops/nccl/tensor.h"
#include "ops/stage.h"

namespace hvd::nccl {

/// Tensors that share one NCCL call.
struct Fused {
  std::vector<std::size_t> tensors;  ///< of the launch
  std::vector<std::size_t> at;       ///< where each begins in the fusion buffer, in bytes
  std::size_t begin = 0, bytes = 0;  ///< of all, in the fusion buffer
  Scaling scaling;
  bool wide = false;
};

/// Which tensors share calls.  Pure, and the same on all ranks.  Others are called for one by one.
/// *buffer_bytes: how large the fusion buffer must be.
/// parts: the bytes of each are so many times a multiple of every element's, for a sum by nodes.
std::vector<Fused> fuse(const std::vector<Tensor>& tensors, int size, const Means& means, std::size_t* buffer_bytes,
                        int parts = 1);

/// The fusion buffer of a process set; grows as needed.
class Buffer {
 public:
  explicit Buffer(cuda::Gpu& gpu) : gpu_(gpu) {}
  ~Buffer() { gpu_.free(address_, last); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  /// With the context current.  What was there before is gone.
  cuda::Pointer of(std::size_t bytes);
  std::shared_ptr<cuda::Mark> last;  ///< behind its last use

 private:
  cuda::Gpu& gpu_;
  cuda::Pointer address_ = 0;
  std::size_t bytes_ = 0;
};

class Launch final : public ops::Stage {
 public:
  struct Where {
    cuda::Gpu& gpu;
    cuda::Stream stream;
    Clique& clique;
    std::size_t lane;
    Buffer& buffer;  ///< of the lane
    const Nodes& nodes;
    bool sums_by_nodes, gathers_by_nodes;
    Means means;
    bool timed;  ///< marks between the parts, for the timeline
  };
  Launch(const Where& where, int size, std::vector<Tensor> tensors);
  ~Launch() override;

  /// Memory of a launch that will not be queued.
  struct Rest {
    std::vector<cuda::Pointer> device;
    std::vector<void*> pinned;
    bool empty() const { return device.empty() && pinned.empty(); }
  };
  /// The caller gives it back, once nothing of what was queued can use it anymore.
  Rest take_rest();
  /// Something has been queued, or begun to be, but not all.
  bool midway() const { return state_ == State::calling; }

  bool step() override;
  bool done() const override { return state_ == State::queued; }
  /// Once done: the tensors, with their results; and what is recorded behind it all.
  std::vector<Tensor>& tensors() { return tensors_; }
  const std::shared_ptr<cuda::Mark>& mark() const { return marks_.back(); }
  /// timed: five, before the wait for the tensors, before the packing, before NCCL, before the unpacking, at the end.
  const std::vector<std::shared_ptr<cuda::Mark>>& marks() const { return marks_; }
  /// When the first was recorded, on the host's monotonic clock.
  std::int64_t began_ns() const { return began_ns_; }
  bool packs() const { return !fused_.empty(); }

 private:
  enum class State { joining, calling, queued };
  enum class Group { all, inside, across, gather };
  /// What has a form by nodes.
  struct ByNodes {
    const void* in;
    void* out;
    std::size_t elements;  ///< allgather: bytes of a rank
    std::size_t element;   ///< bytes of one
    int type;
    RedOp first, then;       ///< of the sums
    Tensor* gathered;        ///< an allgather; nullptr: a sum
    cuda::Pointer row, box;  ///< allgather: what came from across, and from inside
  };
  void enqueue();
  void prepare();
  void prepare(Tensor& t);
  void call();
  void advance();
  void finish();
  void note();
  void pack(const Fused& f);
  void move(const Fused& f, bool gather);
  void call_all();
  void call(const Fused& f);
  void call(Tensor& t);
  void call_gather(Tensor& t);
  void call_alltoall(Tensor& t);
  void call_reducescatter(Tensor& t);
  bool by_nodes(const Tensor& t) const;
  void prepare_by_nodes();
  void call(const ByNodes& n, Group group);
  void put_in_order(const ByNodes& n);
  RedOp operation(const Tensor& t, int type, double inside, Communicator& c);
  cuda::Pointer scratch(std::size_t bytes);
  Clique::Lane lane() const { return where_.clique.lane(where_.lane); }
  Communicator& communicator() const;
  int size() const { return size_; }

  const Where where_;
  const int size_;  ///< of the set
  std::vector<Tensor> tensors_;
  std::vector<Fused> fused_;
  std::vector<ByNodes> by_nodes_;
  std::vector<Group> groups_;
  std::size_t at_ = 0;       ///< the group that NCCL is at
  std::vector<bool> alone_;  ///< [tensors]
  cuda::Pointer buffer_ = 0;
  State state_ = State::joining;
  std::int64_t began_ns_ = 0;
  std::vector<cuda::Pointer> scratch_;  ///< until the end of the batch
  std::vector<void*> pinned_;
  std::vector<std::shared_ptr<cuda::Mark>> marks_;
};

}  // namespace hvd::nccl
