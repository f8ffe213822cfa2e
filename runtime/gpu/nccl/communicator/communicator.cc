#include "gpu/nccl/communicator/communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace hvd::nccl {

namespace {

constexpr std::size_t most_factors = 8;  ///< operators that forget_factors() keeps

NcclConfig config_of(int blocks, bool blocking) {
  NcclConfig config;
  config.blocking = blocking ? 1 : 0;
  if (blocks > 0) config.max_ctas = blocks;
  return config;
}

}  // namespace

Communicator::Communicator(const Library& library, cuda::Gpu& gpu, const UniqueId& id, int rank, int size, int blocks,
                           bool blocking)
    : library_(library), gpu_(gpu), rank_(rank), size_(size) {
  NcclConfig config = config_of(blocks, blocking);
  const int code = library_.init(&joined_, size, id, rank, &config);
  comm_ = joined_;
  if (code != success && code != in_progress) abort();  // a failed call may still have made a communicator
  library_.check(code, "ncclCommInitRankConfig", nullptr);
}

void Communicator::group(const std::function<void()>& calls) {
  check(library_.group_start(), "ncclGroupStart");
  try {
    calls();
  } catch (...) {
    library_.group_end();
    throw;
  }
  check(library_.group_end(), "ncclGroupEnd");
}

std::unique_ptr<Communicator> Communicator::split(int color, const Subset& part) {
  NcclConfig config = config_of(part.blocks, part.blocking);
  part_ = std::make_shared<CommunicatorSplit>();
  part_->parent = comm();
  const int code = library_.split(comm(), color, part.rank, &part_->made, &config);
  if (code != success && code != in_progress) part_.reset();
  library_.check(code, "ncclCommSplit", comm());
  if (color == no_color) return nullptr;
  part_->wanted = true;
  return std::unique_ptr<Communicator>(new Communicator(library_, gpu_, part, part_));
}

/// Returns true if the split that makes this communicator is over, and takes its result.
bool Communicator::made() {
  std::lock_guard lock(from_->mutex);
  if (!from_->over) {
    if (!from_->parent) throw Error(Code::peer_lost, "NCCL", "the communicator was ended");
    int state = success;
    library_.check(library_.async_error(from_->parent, &state), "ncclCommGetAsyncError", from_->parent);
    library_.check(state, "ncclCommSplit", from_->parent);
    from_->over = state == success;
    if (!from_->over) return false;
  }
  comm_ = from_->made;
  return true;
}

bool Communicator::ready() {
  if (from_) {
    if (!made()) return false;
    from_.reset();
  }
  const Comm comm = this->comm();
  if (!comm) throw Error(Code::peer_lost, "NCCL", "the communicator was ended");
  const int state = look(comm);
  if (state == success) settle();
  return state == success;
}

/// While this communicator is being split, the thread of the new communicator queries this one too.  A query makes NCCL
/// continue the split.  So a mutex allows only one query at a time.
int Communicator::look(Comm comm) const {
  const auto lock = part_ ? std::unique_lock(part_->mutex) : std::unique_lock<std::mutex>();
  int state = success;
  library_.check(library_.async_error(comm, &state), "ncclCommGetAsyncError", comm);
  library_.check(state, "NCCL", comm);
  return state;
}

void Communicator::check_health() const {
  const Comm comm = this->comm();
  if (comm) look(comm);
}

/// Forgets the split of this communicator after its end.  Ends the new communicator if no object wants it.
void Communicator::settle() noexcept {
  if (!part_) return;
  if (const Comm unwanted = part_->end()) CommunicatorAbort(library_, unwanted, nullptr);
  part_.reset();
}

RedOp Communicator::premultiplied(DType dtype, double factor) {
  const int type = type_of(dtype);
  for (Factor& f : factors_)
    if (f.type == type && f.factor == factor) {
      f.used = batch_;
      return f.op;
    }
  unsigned char scalar[16] = {};
  with_type(dtype, [&](auto x) {
    narrow(static_cast<Wide<decltype(x)>>(factor), x);
    std::memcpy(scalar, &x, sizeof x);
  });
  constexpr int read_now = 1;  // ncclScalarHostImmediate
  RedOp op = sum;
  check(library_.make_premul(&op, scalar, type, read_now, comm()), "ncclRedOpCreatePreMulSum");
  factors_.push_back({type, factor, op, batch_});
  return op;
}

/// "May be destroyed as soon as the last NCCL function which is given that operator returns" (ncclRedOpDestroy).
void Communicator::forget_factors() {
  ++batch_;
  while (factors_.size() > most_factors) {
    const auto oldest = std::min_element(factors_.begin(), factors_.end(),
                                         [](const Factor& a, const Factor& b) { return a.used < b.used; });
    check(library_.destroy_op(oldest->op, comm()), "ncclRedOpDestroy");
    factors_.erase(oldest);
  }
}

void Communicator::make_window(const RegisteredMemory::Block& memory) {
  constexpr int symmetric = 1;  // NCCL_WIN_COLL_SYMMETRIC
  check(library_.register_window(comm(), memory.data, memory.bytes, &window_, symmetric), "ncclCommWindowRegister");
}

void Communicator::register_once(const RegisteredMemory::Block& memory) {
  if (std::find(registered_.begin(), registered_.end(), memory.data) != registered_.end()) return;
  void* handle = nullptr;  // never needed: the memory exists as long as the process
  check(library_.register_local(comm(), memory.data, memory.bytes, &handle), "ncclCommRegister");
  registered_.push_back(memory.data);
}

void Communicator::abort() noexcept {
  if (from_) {
    std::lock_guard lock(from_->mutex);
    if (from_->over)
      comm_ = from_->made;
    else
      from_->wanted = false;  // NCCL still splits: the parent ends the result
  }
  from_.reset();
  if (part_) {
    std::lock_guard lock(part_->mutex);
    part_->parent = nullptr;
  }
  if (const Comm comm = comm_.exchange(nullptr))
    ending_ = std::make_unique<CommunicatorAbort>(library_, comm, std::move(part_));
  part_.reset();
}

}  // namespace hvd::nccl
