#include "gpu/nccl/communicator.h"

#include <utility>

#include "base/error.h"

namespace hvd::nccl {

namespace {

NcclConfig config_of(int blocks) {
  NcclConfig config;
  if (blocks > 0) config.max_ctas = blocks;
  return config;
}

}  // namespace

Communicator::Communicator(const Library& library, cuda::Gpu& gpu, const UniqueId& id, int rank, int size, int blocks)
    : library_(library), gpu_(gpu), rank_(rank), size_(size), caller_(caller_for(library)) {
  NcclConfig config = config_of(blocks);
  int code = success;
  call([&] { code = library_.init(&comm_, size, id, rank, &config); });
  if (code != success && code != in_progress) abort();  // it may have made something
  library_.check(code, "ncclCommInitRankConfig", nullptr);
}

std::shared_ptr<CallThread> Communicator::caller_for(const Library& library) {
  return library.version < groups_of_their_own ? std::make_shared<CallThread>() : nullptr;
}

/// What NCCL may go on with in the background.
void Communicator::call(const std::function<void()>& call) {
  if (!caller_) return call();
  caller_->run([&] {
    const cuda::CurrentContext current(gpu_.driver(), gpu_.context());
    call();
  });
}

void Communicator::group(const std::function<void()>& calls) {
  call([&] {
    check(library_.group_start(), "ncclGroupStart");
    try {
      calls();
    } catch (...) {
      library_.group_end();
      throw;
    }
    check(library_.group_end(), "ncclGroupEnd");
  });
}

std::unique_ptr<Communicator> Communicator::split(int color, int rank, int size, int blocks) {
  NcclConfig config = config_of(blocks);
  part_ = std::make_shared<CommunicatorSplit>();
  part_->parent = comm_;
  int code = success;
  call([&] { code = library_.split(comm_, color, rank, &part_->made, &config); });
  if (code != success && code != in_progress) part_.reset();
  library_.check(code, "ncclCommSplit", comm_);
  if (color == no_color) return nullptr;
  part_->wanted = true;
  return std::unique_ptr<Communicator>(new Communicator(library_, gpu_, rank, size, part_));
}

/// The split that this one comes from is over.
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
  if (!comm_) throw Error(Code::peer_lost, "NCCL", "the communicator was ended");
  int state = success;
  library_.check(library_.async_error(comm_, &state), "ncclCommGetAsyncError", comm_);
  library_.check(state, "NCCL", comm_);
  if (state == success) settle();
  return state == success;
}

/// The split of this one is over.
void Communicator::settle() noexcept {
  if (!part_) return;
  if (const Comm unwanted = part_->end()) CommunicatorAbort(library_, unwanted, nullptr, nullptr);
  part_.reset();
}

RedOp Communicator::premultiplied(DType dtype, double factor) {
  const int type = type_of(dtype);
  const auto known = factors_.find({type, factor});
  if (known != factors_.end()) return known->second;
  unsigned char scalar[8] = {};
  with_type(dtype, [&](auto x) {
    narrow(static_cast<Wide<decltype(x)>>(factor), x);
    std::memcpy(scalar, &x, sizeof x);
  });
  constexpr int read_now = 1;  // ncclScalarHostImmediate
  RedOp op = sum;
  check(library_.make_premul(&op, scalar, type, read_now, comm_), "ncclRedOpCreatePreMulSum");
  factors_[{type, factor}] = op;
  return op;
}

void Communicator::abort() noexcept {
  if (from_) {
    std::lock_guard lock(from_->mutex);
    if (from_->over)
      comm_ = from_->made;
    else
      from_->wanted = false;  // NCCL is at it: the parent ends it
  }
  from_.reset();
  if (part_) {
    std::lock_guard lock(part_->mutex);
    part_->parent = nullptr;
  }
  if (comm_)
    ending_ = std::make_unique<CommunicatorAbort>(library_, std::exchange(comm_, nullptr), std::move(part_),
                                                  std::move(caller_));
  part_.reset();
  factors_.clear();
}

}  // namespace hvd::nccl
