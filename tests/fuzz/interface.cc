#include "interface.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

namespace hvd::fuzz {
namespace {

__extension__ typedef __int128 Wide;
constexpr std::int64_t largest_tensor = 64 << 10;
constexpr int element_bytes[] = {1, 1, 2, 2, 4, 8, 2, 4, 8, 1, 2, 1, 1};

/// Every call goes through this function.
int checked(const char* call, int status) {
  const int known[] = {HVD_OK,        HVD_USAGE,   HVD_MISMATCH, HVD_UNAVAILABLE,
                       HVD_PEER_LOST, HVD_TIMEOUT, HVD_DIVERGED, HVD_INTERNAL};
  bool fine = false;
  for (int k : known) fine |= status == k;
  const char* text = hvd_last_error();
  if (fine && status == HVD_OK) return status;
  // No call of a caller is a bug of the runtime.
  fine &= status != HVD_INTERNAL && text && *text && !std::strchr(text, '\n');
  if (fine) return status;
  std::fprintf(stderr, "%s returned %d: %s\n", call, status, text ? text : "(null)");
  std::abort();
}
#define CALL(function, ...) checked(#function, function(__VA_ARGS__))

/// Returns a number that is mostly in [low, high], and may be any other.
std::int32_t around(Bytes& b, int low, int high) {
  if (b.rarely()) return static_cast<std::int32_t>(b.number(4));
  return low - 1 + static_cast<int>(b.below(static_cast<std::uint64_t>(high - low + 3)));
}

double factor(Bytes& b) {
  const double values[] = {0, 1, 0, 1, 1, 2, -0.5, 1e300, NAN, INFINITY};
  return values[b.below(std::size(values))];
}

/// A request, and the memory to which it points.
struct Draw {
  hvd_request q{};
  std::vector<std::int64_t> shape, splits;
  std::string name;
};

void draw_shape(Bytes& b, Draw& d) {
  hvd_request& q = d.q;
  q.ndim = b.rarely() ? around(b, 0, 64) : static_cast<int>(b.below(4));
  const std::int64_t odd[] = {0, -1, INT64_MIN, INT64_MAX, 1ll << 31, 1ll << 62};
  for (int i = 0; i < q.ndim && i < 70; ++i)
    d.shape.push_back(b.rarely() ? odd[b.below(std::size(odd))] : static_cast<std::int64_t>(b.below(40)));
  if (q.ndim > 70) d.shape.resize(70);
  q.shape = b.rarely() ? nullptr : d.shape.data();
  if (q.ndim > 70 && q.shape) q.ndim = 65 + q.ndim % 5;  // the shape must be as long as ndim says
}

void draw_name(Bytes& b, Draw& d) {
  switch (b.below(8)) {
    case 0:
      d.q.name = nullptr;
      return;
    case 1:
      d.name.assign(b.below(6000), 'n');
      break;
    case 2:
      d.name = "\xff\xfe\n%s";
      break;
    default:
      d.name = "t" + std::to_string(b.below(6));
  }
  d.q.name = d.name.c_str();
}

/// Pointers that are NULL, or point to enough memory.
void draw_memory(Bytes& b, Draw& d, Pool& pool) {
  hvd_request& q = d.q;
  Wide bytes = q.dtype >= 0 && q.dtype < 13 ? element_bytes[q.dtype] : 8;
  for (std::int64_t n : d.shape) bytes = n <= 0 ? 0 : bytes * n > INT64_MAX ? Wide{INT64_MAX} : bytes * n;
  if (bytes > largest_tensor && bytes < INT64_MAX / 2) return;  // a plausible size, but without such memory: NULL
  const auto n = static_cast<std::size_t>(bytes > largest_tensor ? 64 : bytes);
  const bool in_place = b.below(2);
  q.in = b.rarely() ? nullptr : pool.memory(n + 1);
  q.out = b.rarely() ? nullptr : in_place ? const_cast<void*>(q.in) : pool.memory(n + 1);
}

void draw(Bytes& b, Draw& d, Pool& pool) {
  hvd_request& q = d.q;
  q.struct_size = b.rarely() ? static_cast<std::uint32_t>(b.number(1)) : sizeof q;
  q.kind = around(b, 0, 6);
  q.dtype = around(b, 0, 12);
  q.reduce = around(b, 0, 5);
  q.root = b.rarely() ? around(b, 0, 2) : 0;
  q.set = b.rarely() ? around(b, 0, 2) : 0;
  q.device = b.rarely() ? around(b, -1, 2) : -1;
  q.prescale = factor(b);
  q.postscale = factor(b);
  if (b.rarely()) {  // alltoall: [num_splits] numbers of any kind
    for (std::uint64_t n = b.below(4); n-- > 0;)
      d.splits.push_back(static_cast<std::int64_t>(b.number(8)) >> b.below(64));
    q.splits = d.splits.data();
    q.num_splits = static_cast<std::int32_t>(d.splits.size());
    if (b.rarely()) q.num_splits = -q.num_splits;
  }
  draw_shape(b, d);
  draw_name(b, d);
  draw_memory(b, d, pool);
}

void submit(Bytes& b, Pool& pool) {
  Draw d;
  draw(b, d, pool);
  hvd_handle handle = 0;
  if (CALL(hvd_submit, b.rarely() ? nullptr : &d.q, b.rarely() ? nullptr : &handle) == HVD_OK) pool.add(handle);
}

void submit_many(Bytes& b, Pool& pool) {
  std::deque<Draw> draws(b.below(6));
  std::vector<hvd_request> requests;
  for (Draw& d : draws) {
    draw(b, d, pool);
    requests.push_back(d.q);
  }
  std::vector<hvd_handle> handles(draws.size() + 1);
  const std::uint32_t flags = b.rarely() ? static_cast<std::uint32_t>(b.number(4)) : b.below(2) ? HVD_GROUP : 0;
  std::size_t count = draws.size();
  if (b.rarely()) count = std::numeric_limits<std::size_t>::max() >> b.below(40);  // refused before it is read
  hvd_request* const from = requests.empty() || b.rarely() ? nullptr : requests.data();
  if (CALL(hvd_submit_many, from, count, flags, b.rarely() ? nullptr : handles.data()) != HVD_OK) return;
  for (std::size_t i = 0; i < count; ++i) pool.add(handles[i]);
}

void run(Bytes& b, Pool& pool) {
  Draw d;
  draw(b, d, pool);
  if (d.q.kind == HVD_JOIN) return;
  if (b.rarely()) {
    hvd_handle handle = 0;
    CALL(hvd_submit_and_wait, &d.q, -1, b.rarely() ? nullptr : &handle);
    if (handle) CALL(hvd_release, handle);
    return;
  }
  CALL(hvd_run, b.rarely() ? nullptr : &d.q);
}

void wait(Bytes& b, Pool& pool) {
  const double limits[] = {0, 0, 0.001, -1, -1, NAN, 1e-300};
  const double limit = limits[b.below(std::size(limits))];
  if (!b.rarely()) {
    CALL(hvd_wait, pool.pick(b), limit);
    return;
  }
  const hvd_handle handles[] = {pool.pick(b), pool.pick(b), pool.pick(b)};
  CALL(hvd_wait_many, b.rarely() ? nullptr : handles, b.below(std::size(handles) + 1), limit);
}

void release(Bytes& b, Pool& pool) {
  if (!b.rarely()) {
    CALL(hvd_release, pool.pick(b));
    return;
  }
  const hvd_handle handles[] = {pool.pick(b), pool.pick(b), pool.pick(b)};
  CALL(hvd_release_many, b.rarely() ? nullptr : handles, b.below(std::size(handles) + 1));
}

void take(Bytes& b, Pool& pool) {
  void* data = nullptr;
  std::int64_t shape[64];
  std::int32_t ndim = -1;
  const hvd_handle handle = pool.pick(b);
  if (CALL(hvd_take, handle, b.rarely() ? nullptr : &data, b.rarely() ? nullptr : shape,
           b.rarely() ? nullptr : &ndim) == HVD_OK) {
    if (ndim < 1 || ndim > 64) {
      std::fprintf(stderr, "hvd_take says ndim is %d\n", ndim);
      std::abort();
    }
    hvd_free(data);
  }
}

void take_splits(Bytes& b, Pool& pool) {
  std::int64_t splits[4];
  CALL(hvd_take_splits, pool.pick(b), b.rarely() ? nullptr : splits);
}

/// Process sets of a world of one rank.
void sets(Bytes& b) {
  const std::int32_t ranks[] = {static_cast<std::int32_t>(b.below(3)) - 1, 0};
  std::int32_t set = 0, rank = 0, size = 0, members[8];
  const int count = b.rarely() ? -static_cast<int>(b.below(5)) : 1 + static_cast<int>(b.below(2));
  switch (b.below(3)) {
    case 0:
      CALL(hvd_set_add, b.rarely() ? nullptr : ranks, count, b.rarely() ? nullptr : &set);
      break;
    case 1:
      CALL(hvd_set_remove, around(b, 0, 3));
      break;
    default:
      CALL(hvd_set_get, around(b, 0, 3), b.rarely() ? nullptr : &rank, b.rarely() ? nullptr : &size,
           b.below(2) ? nullptr : members);
  }
}

void memory(Bytes& b) {
  const std::size_t sizes[] = {0, 1, 4096, 100000, SIZE_MAX, SIZE_MAX / 2};
  void* data = nullptr;
  if (CALL(hvd_alloc, sizes[b.below(std::size(sizes))], b.rarely() ? nullptr : &data) != HVD_OK) return;
  static_cast<char*>(data)[0] = 1;
  hvd_free(data);
}

void start_and_stop(Bytes& b) {
  const std::int32_t ranks[] = {static_cast<std::int32_t>(b.below(3)) - 1, 0};
  hvd_init_options options{b.rarely() ? 0u : static_cast<std::uint32_t>(sizeof(hvd_init_options)),
                           b.below(2) ? ranks : nullptr, around(b, 0, 2)};
  if (options.num_ranks > 2) options.num_ranks = 2;
  if (b.rarely()) CALL(hvd_shutdown);
  CALL(hvd_init, b.below(2) ? nullptr : &options);
}

void ask(Bytes& b) {
  hvd_world world;
  CALL(hvd_get_world, b.rarely() ? nullptr : &world);
  CALL(hvd_expect, b.rarely() ? nullptr : &world);
  const char* what[] = {nullptr, "", "mpi", "shm", "cuda", "nccl", "?"};
  hvd_built(what[b.below(std::size(what))]);
  (void)hvd_departed();
  hvd_part_begin(static_cast<int>(b.below(9)));
  hvd_part_end(static_cast<int>(b.below(9)));
  if (b.below(2)) hvd_step_end();
  if (b.below(2)) hvd_batches_made(static_cast<std::int64_t>(b.below(1000)) - 500);
  char report[64];
  std::size_t length;
  CALL(hvd_report, b.below(2) ? report : nullptr, b.below(2) * sizeof report, b.below(4) ? &length : nullptr);
  CALL(hvd_not_finite, b.below(2) ? report : nullptr, b.below(2) * sizeof report, b.below(4) ? &length : nullptr);
  if (hvd_hash(report, 0) != hvd_hash(nullptr, 0)) std::abort();
  hvd_link links[2];
  CALL(hvd_links, b.below(2) ? links : nullptr, b.below(3), b.below(4) ? &length : nullptr);
  CALL(hvd_use_memory, b.below(2) ? nullptr : "torch");
  hvd_free(nullptr);
  if (!hvd_version()) std::abort();
}

}  // namespace

std::uint64_t Bytes::number(int bytes) {
  std::uint64_t n = 0;
  for (; bytes > 0 && left_ > 0; --bytes, --left_) n = n << 8 | *data_++;
  return n;
}

void Pool::add(hvd_handle handle) {
  std::lock_guard lock(mutex_);
  handles_.push_back(handle);
  if (handles_.size() > 64) handles_.pop_front();  // forgotten here: the runtime keeps it until the next shutdown
}

hvd_handle Pool::pick(Bytes& from) {
  std::lock_guard lock(mutex_);
  if (handles_.empty() || from.rarely()) return static_cast<hvd_handle>(from.number(8));
  return handles_[from.below(handles_.size())];
}

unsigned char* Pool::memory(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  kept_ += bytes;
  tensors_.push_back(std::make_unique<unsigned char[]>(bytes));
  return tensors_.back().get();
}

void Pool::clear() {
  handles_.clear();
  tensors_.clear();
  kept_ = 0;
}

void play(Bytes b, Pool& pool, bool first) {
  while (!b.empty()) {
    int done = 0;
    switch (b.below(13)) {
      case 0:
        if (first) start_and_stop(b);
        break;
      case 1:
      case 2:
        submit(b, pool);
        break;
      case 3:
        submit_many(b, pool);
        break;
      case 4:
        run(b, pool);
        break;
      case 5:
        CALL(hvd_poll, pool.pick(b), b.rarely() ? nullptr : &done);
        break;
      case 6:
        wait(b, pool);
        break;
      case 7:
        take(b, pool);
        break;
      case 8:
        release(b, pool);
        break;
      case 9:
        ask(b);
        break;
      case 10:
        take_splits(b, pool);
        break;
      case 11:
        if (first) sets(b);
        break;
      case 12:
        memory(b);
        break;
    }
  }
}

}  // namespace hvd::fuzz
