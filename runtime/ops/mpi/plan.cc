#include "ops/mpi/plan.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"

namespace hvd::mpi {

using nccl::Fused;
using nccl::Means;
using nccl::Scaling;
using nccl::Tensor;

namespace {

constexpr std::size_t align = 128;                ///< of all that begins in the buffer
constexpr std::size_t little = 32 << 10;          ///< up to here all send all of a tensor
constexpr std::size_t little_of_all = 256 << 10;  ///< and up to here a rank receives that from all together

std::size_t aligned(std::size_t bytes) { return (bytes + align - 1) / align * align; }

struct Stretch {
  std::size_t at = 0, bytes = 0;
  std::size_t end() const { return at + bytes; }
};

int element_of(DType d) {
  switch (d) {
    case DType::f32:
      return static_cast<int>(cuda::Element::f32);
    case DType::f64:
      return static_cast<int>(cuda::Element::f64);
    case DType::f16:
      return static_cast<int>(cuda::Element::f16);
    case DType::bf16:
      return static_cast<int>(cuda::Element::bf16);
    case DType::i8:
      return static_cast<int>(cuda::Element::i8);
    case DType::u8:
      return static_cast<int>(cuda::Element::u8);
    case DType::i32:
      return static_cast<int>(cuda::Element::i32);
    case DType::i64:
      return static_cast<int>(cuda::Element::i64);
    default:
      return -1;
  }
}

cuda::Combine how_of(Reduce r) {
  switch (r) {
    case Reduce::product:
      return cuda::Combine::product;
    case Reduce::min:
      return cuda::Combine::min;
    case Reduce::max:
      return cuda::Combine::max;
    default:
      return cuda::Combine::sum;
  }
}

/// A reducescatter is scaled as an allreduce is: by our kernels, on the way into and out of the buffer.
Scaling scaling_of(Tensor t, int size, const Means& means) {
  t.kind = Kind::allreduce;
  return nccl::scaling_of(t, size, means, true);
}

class Planner {
 public:
  Planner(int rank, int size, const Means& means, std::size_t begin) : rank_(rank), size_(size), means_(means) {
    plan_.bytes = aligned(begin);
  }
  void allreduce(const Tensor& t, const Fused& f);
  void reducescatter(const Tensor& t, std::size_t i);
  void broadcast(const Tensor& t, std::size_t i);
  void allgather(const Tensor& t, std::size_t i);
  void alltoall(const Tensor& t, std::size_t i);
  Plan take();

 private:
  Stretch place(std::size_t bytes) {
    const Stretch s{plan_.bytes, bytes};
    plan_.bytes += aligned(bytes);
    return s;
  }
  std::vector<Stretch> cut(const Stretch& whole) const;
  bool is_little(std::size_t bytes) const {
    return bytes <= little && bytes * static_cast<std::size_t>(size_ - 1) <= little_of_all;
  }
  void letter(int round, int peer, bool out, const Stretch& s) {
    if (s.bytes > 0) plan_.rounds[static_cast<std::size_t>(round)].push_back({peer, out, s.at, s.bytes});
  }
  /// f(peer): the others, each rank beginning with another one, so that not all send to the same at first.
  template <class F>
  void others(F&& f) const {
    for (int k = 1; k < size_; ++k) f((rank_ + k) % size_);
  }
  const Stretch& of(const std::vector<Stretch>& all, int r) const { return all[static_cast<std::size_t>(r)]; }
  void reduce(const std::vector<Stretch>& chunks, DType dtype, Reduce reduce);
  void spread(int round, const std::vector<Stretch>& chunks, int except = -1);

  const int rank_, size_;
  const Means means_;
  Plan plan_;
};

/// Into one chunk for each rank; all but the last that has any begin and end at whole lines.
std::vector<Stretch> Planner::cut(const Stretch& whole) const {
  const std::size_t each =
      aligned((whole.bytes + static_cast<std::size_t>(size_) - 1) / static_cast<std::size_t>(size_));
  std::vector<Stretch> chunks;
  for (std::size_t r = 0; r < static_cast<std::size_t>(size_); ++r) {
    const std::size_t from = std::min(r * each, whole.bytes), to = std::min((r + 1) * each, whole.bytes);
    chunks.push_back({whole.at + from, to - from});
  }
  return chunks;
}

/// Everybody's chunk r to rank r, and what is made of this rank's.
void Planner::reduce(const std::vector<Stretch>& chunks, DType dtype, Reduce reduce) {
  const Stretch& mine = of(chunks, rank_);
  const std::size_t stride = aligned(mine.bytes);
  const Stretch parts = place(stride * static_cast<std::size_t>(size_ - 1));
  others([&](int peer) {
    letter(0, peer, true, of(chunks, peer));
    letter(0, peer, false, {parts.at + static_cast<std::size_t>(peer < rank_ ? peer : peer - 1) * stride, mine.bytes});
  });
  if (mine.bytes > 0)
    plan_.reductions.push_back({static_cast<cuda::Element>(element_of(dtype)), how_of(reduce), mine.at, parts.at,
                                stride, mine.bytes / element_bytes(dtype)});
}

/// This rank's chunk to all, and theirs here; but not to @p except, who has them.
void Planner::spread(int round, const std::vector<Stretch>& chunks, int except) {
  others([&](int peer) {
    if (peer != except) letter(round, peer, true, of(chunks, rank_));
    if (rank_ != except) letter(round, peer, false, of(chunks, peer));
  });
}

void Planner::allreduce(const Tensor& t, const Fused& f) {
  const DType dtype = f.wide ? DType::f32 : t.dtype;
  const Stretch whole{f.begin, f.bytes};
  if (is_little(f.bytes)) {
    reduce(std::vector<Stretch>(static_cast<std::size_t>(size_), whole), dtype, t.reduce);
    return;
  }
  const std::vector<Stretch> chunks = cut(whole);
  reduce(chunks, dtype, t.reduce);
  spread(1, chunks);
}

/// The first (rows mod size) ranks get one row more.
void Planner::reducescatter(const Tensor& t, std::size_t i) {
  const bool wide = nccl::widened(t, means_);
  const DType dtype = wide ? DType::f32 : t.dtype;
  const Scaling scaling = scaling_of(t, size_, means_);
  const std::int64_t each = t.rows / size_, more = t.rows % size_;
  std::vector<Stretch> chunks;
  std::size_t offset = 0;
  for (int r = 0; r < size_; ++r) {
    const std::size_t bytes = static_cast<std::size_t>(each + (r < more ? 1 : 0)) * t.row_bytes;
    chunks.push_back(place(bytes / element_bytes(t.dtype) * element_bytes(dtype)));
    if (bytes > 0) plan_.gather.push_back({i, offset, chunks.back().at, bytes, scaling.gather, wide});
    if (bytes > 0 && r == rank_) plan_.scatter.push_back({i, 0, chunks.back().at, bytes, scaling.scatter, wide});
    offset += bytes;
  }
  reduce(chunks, dtype, t.reduce);
}

void Planner::broadcast(const Tensor& t, std::size_t i) {
  const Stretch whole = place(t.bytes());
  if (whole.bytes == 0) return;
  if (rank_ == t.root) plan_.gather.push_back({i, 0, whole.at, whole.bytes});
  plan_.scatter.push_back({i, 0, whole.at, whole.bytes});
  const bool at_once = is_little(whole.bytes);
  const std::vector<Stretch> chunks =
      at_once ? std::vector<Stretch>(static_cast<std::size_t>(size_), whole) : cut(whole);
  if (rank_ == t.root)
    others([&](int peer) { letter(0, peer, true, of(chunks, peer)); });
  else
    letter(0, t.root, false, of(chunks, rank_));
  if (!at_once) spread(1, chunks, t.root);
}

void Planner::allgather(const Tensor& t, std::size_t i) {
  std::vector<Stretch> chunks;
  std::size_t offset = 0;
  for (int r = 0; r < size_; ++r) {
    const std::size_t bytes = static_cast<std::size_t>(t.received[static_cast<std::size_t>(r)]) * t.row_bytes;
    chunks.push_back(place(bytes));
    if (bytes > 0 && r == rank_) plan_.gather.push_back({i, 0, chunks.back().at, bytes});
    if (bytes > 0) plan_.scatter.push_back({i, offset, chunks.back().at, bytes});
    offset += bytes;
  }
  spread(0, chunks);
}

void Planner::alltoall(const Tensor& t, std::size_t i) {
  std::vector<Stretch> out, in;
  std::size_t sent = 0, received = 0;
  for (int r = 0; r < size_; ++r) {
    const auto at = static_cast<std::size_t>(r);
    const std::size_t to = static_cast<std::size_t>(t.sent[at]) * t.row_bytes;
    const std::size_t from = static_cast<std::size_t>(t.received[at]) * t.row_bytes;
    out.push_back(place(to));
    in.push_back(r == rank_ ? out.back() : place(from));
    if (to > 0) plan_.gather.push_back({i, sent, out.back().at, to});
    if (from > 0) plan_.scatter.push_back({i, received, in.back().at, from});
    sent += to, received += from;
  }
  others([&](int peer) {
    letter(0, peer, true, of(out, peer));
    letter(0, peer, false, of(in, peer));
  });
}

Plan Planner::take() {
  auto by_change = [](const Move& a, const Move& b) {
    return std::tuple(a.factor, a.wide) < std::tuple(b.factor, b.wide);
  };
  std::stable_sort(plan_.gather.begin(), plan_.gather.end(), by_change);
  std::stable_sort(plan_.scatter.begin(), plan_.scatter.end(), by_change);
  return std::move(plan_);
}

}  // namespace

bool possible(const Tensor& t, int size, const Means& means) {
  if (t.kind == Kind::broadcast || t.kind == Kind::allgather || t.kind == Kind::alltoall) return true;
  if (t.reduce == Reduce::adasum || element_of(nccl::widened(t, means) ? DType::f32 : t.dtype) < 0) return false;
  return is_floating(t.dtype) || scaling_of(t, size, means).none();
}

Plan plan(const std::vector<Tensor>& tensors, const std::vector<Fused>& fused, std::size_t fused_bytes, int rank,
          int size, const Means& means) {
  Planner planner(rank, size, means, fused_bytes);
  for (const Fused& f : fused) planner.allreduce(tensors[f.tensors.front()], f);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    if (t.kind == Kind::reducescatter) planner.reducescatter(t, i);
    if (t.kind == Kind::broadcast) planner.broadcast(t, i);
    if (t.kind == Kind::allgather) planner.allgather(t, i);
    if (t.kind == Kind::alltoall) planner.alltoall(t, i);
  }
  return planner.take();
}

}  // namespace hvd::mpi
