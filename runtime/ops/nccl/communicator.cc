#include "ops/nccl/communicator.h"

#include <utility>

#include "base/error.h"

namespace hvd::nccl {

namespace {

Config config_of(int blocks) {
  Config config;
  if (blocks > 0) config.max_ctas = blocks;
  return config;
}

}  // namespace

Communicator::Communicator(const Library& library, cuda::Gpu& gpu, const UniqueId& id, int rank, int size, int blocks)
    : library_(library), gpu_(gpu), rank_(rank), size_(size) {
  Config config = config_of(blocks);
  library_.check(library_.init(&comm_, size, id, rank, &config), "ncclCommInitRankConfig", nullptr);
}

std::unique_ptr<Communicator> Communicator::split(int color, int rank, int size, int blocks) {
  Config config = config_of(blocks);
  part_ = std::make_shared<Splitting>();
  part_->parent = comm_;
  const int code = library_.split(comm_, color, rank, &part_->made, &config);
  if (code != success && code != in_progress) part_.reset();
  library_.check(code, "ncclCommSplit", comm_);
  if (color == no_color) return nullptr;
  part_->wanted = true;
  return std::unique_ptr<Communicator>(new Communicator(library_, gpu_, rank, size, part_));
}

/// The split that this one comes from is over.
bool Communicator::made() {
  if (!from_->over) {
    int state = success;
    library_.check(library_.async_error(from_->parent, &state), "ncclCommGetAsyncError", from_->parent);
    library_.check(state, "ncclCommSplit", from_->parent);
    from_->over = state == success;
    if (!from_->over) return false;
  }
  comm_ = std::exchange(from_, nullptr)->made;
  return true;
}

bool Communicator::ready() {
  if (from_ && !made()) return false;
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
  part_->over = true;
  if (!part_->wanted && part_->made) library_.abort(part_->made);
  part_.reset();
}

RedOp Communicator::premultiplied(int type, double factor) {
  const auto known = factors_.find({type, factor});
  if (known != factors_.end()) return known->second;
  unsigned char scalar[8] = {};
  const auto narrow = static_cast<float>(factor);
  if (type == type_of(DType::f64)) {
    std::memcpy(scalar, &factor, sizeof factor);
  } else if (type == type_of(DType::f16)) {
    cuda::f16 x;
    cuda::narrow(narrow, x);
    std::memcpy(scalar, &x, sizeof x);
  } else if (type == type_of(DType::bf16)) {
    cuda::bf16 x;
    cuda::narrow(narrow, x);
    std::memcpy(scalar, &x, sizeof x);
  } else {
    std::memcpy(scalar, &narrow, sizeof narrow);
  }
  constexpr int read_now = 1;  // ncclScalarHostImmediate
  RedOp op = sum;
  check(library_.make_premul(&op, scalar, type, read_now, comm_), "ncclRedOpCreatePreMulSum");
  factors_[{type, factor}] = op;
  return op;
}

void Communicator::abort() noexcept {
  if (!comm_ && !from_) return;
  try {
    const cuda::Current current(gpu_.driver(), gpu_.context());
    if (from_ && from_->over) comm_ = from_->made;
    if (from_ && !from_->over) from_->wanted = false;  // NCCL is at it: the parent ends it
    from_.reset();
    if (comm_) library_.abort(std::exchange(comm_, nullptr));
    settle();
  } catch (const Error&) {  // the driver is gone: so is what ran there
  }
  comm_ = nullptr;
  factors_.clear();
}

}  // namespace hvd::nccl
