#include "ops/nccl/communicator.h"

#include "base/error.h"

namespace hvd::nccl {

Communicator::Communicator(const Library& library, const UniqueId& id, int rank, int size)
    : library_(library), rank_(rank), size_(size) {
  Config config;
  library_.check(library_.init(&comm_, size, id, rank, &config), "ncclCommInitRankConfig", nullptr);
}

bool Communicator::ready() {
  if (!comm_) throw Error(Code::peer_lost, "NCCL", "the communicator was ended");
  int state = success;
  library_.check(library_.async_error(comm_, &state), "ncclCommGetAsyncError", comm_);
  library_.check(state, "NCCL", comm_);
  return state == success;
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
  if (comm_) library_.abort(comm_);
  comm_ = nullptr;
  factors_.clear();
}

}  // namespace hvd::nccl
