#include "check_results.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "common/types.h"
#include "hvd/hvd.h"

namespace hvd::bench {
namespace {

struct TestedType {
  const char* name;
  hvd_dtype dtype;
  std::size_t bytes;
};
#define HVD_TYPE(enumerator, number, word, name, bytes) {name, enumerator, bytes},
constexpr TestedType types[] = {HVD_DTYPES(HVD_TYPE)};
#undef HVD_TYPE

// Only small whole numbers are used, which every type but bool and the 8-bit floats holds exactly.
void put(const TestedType& t, void* base, std::size_t i, int v) {
  with_type(static_cast<DType>(t.dtype), [&](auto x) {
    narrow(static_cast<Wide<decltype(x)>>(v), x);
    std::memcpy(static_cast<char*>(base) + i * sizeof x, &x, sizeof x);
  });
}

int get(const TestedType& t, const void* base, std::size_t i) {
  return with_type(static_cast<DType>(t.dtype), [&](auto x) {
    std::memcpy(&x, static_cast<const char*>(base) + i * sizeof x, sizeof x);
    if constexpr (is_complex_type<decltype(x)>)
      return x.im == 0 ? static_cast<int>(x.re) : -1;
    else
      return static_cast<int>(wide(x));
  });
}

/// The value of rank r at place i: 1 or 2, and sometimes 0 for bool.
int value(const TestedType& t, int r, std::size_t i) {
  const int v = (r + static_cast<int>(i % 7)) % 2;
  return t.dtype == HVD_BOOL ? v : v + 1;
}

int exactly_reduced(const TestedType& t, hvd_reduce op, int size, std::size_t i) {
  long sum = 0, product = 1;
  int least = 1000, most = 0;
  for (int r = 0; r < size; ++r) {
    const int v = value(t, r, i);
    sum += v;
    product *= v;
    least = std::min(least, v);
    most = std::max(most, v);
  }
  const bool truth = t.dtype == HVD_BOOL;
  switch (op) {
    case HVD_SUM:
      return truth ? sum != 0 : static_cast<int>(sum);
    case HVD_AVERAGE:
      return static_cast<int>(sum / size);  // truncation; floats are read back as int
    case HVD_MIN:
      return least;
    case HVD_MAX:
      return most;
    default:
      return static_cast<int>(product);
  }
}

int reduced(const TestedType& t, hvd_reduce op, int size, std::size_t i) {
  char stored[16];
  put(t, stored, 0, exactly_reduced(t, op, size, i));
  return get(t, stored, 0);
}

class Checker {
 public:
  Checker(int rank, int size) : rank_(rank), size_(size) {}
  int failures() const { return failures_; }

  void fail(const std::string& what) {
    if (++failures_ <= 20)
      std::fprintf(stderr, "hvd-bench: rank %d: %s: wrong  [%s]\n", rank_, what.c_str(), hvd_last_error());
  }

  hvd_request request(const TestedType& t, hvd_kind kind, const std::string& name, const std::int64_t* shape) {
    hvd_request q{};
    q.struct_size = sizeof q;
    q.kind = kind;
    q.dtype = t.dtype;
    q.name = name.c_str();
    q.shape = shape;
    q.ndim = 1;
    q.device = HVD_HOST_DEVICE;
    return q;
  }

  std::vector<char> mine(const TestedType& t, std::size_t n) {
    std::vector<char> data(n * t.bytes + 1);
    for (std::size_t i = 0; i < n; ++i) put(t, data.data(), i, value(t, rank_, i));
    return data;
  }

  void allreduce(const TestedType& t, hvd_reduce op, std::size_t n) {
    const std::string name = std::string("check.") + t.name + "." + std::to_string(op) + "." + std::to_string(n);
    const auto shape = static_cast<std::int64_t>(n);
    for (int round = 0; round < 2; ++round) {  // by record, then by bit
      std::vector<char> in = mine(t, n), out(n * t.bytes + 1);
      hvd_request q = request(t, HVD_ALLREDUCE, name, &shape);
      q.reduce = op;
      q.in = in.data();
      q.out = round ? in.data() : out.data();
      if (hvd_run(&q) != HVD_OK) return fail(name);
      for (std::size_t i = 0; i < n; ++i)
        if (get(t, q.out, i) != reduced(t, op, size_, i)) return fail(name);
    }
  }

  void broadcast(const TestedType& t, std::size_t n, int root) {
    const std::string name = std::string("check.broadcast.") + t.name + "." + std::to_string(n);
    const auto shape = static_cast<std::int64_t>(n);
    std::vector<char> data = mine(t, n);
    hvd_request q = request(t, HVD_BROADCAST, name, &shape);
    q.root = root;
    q.in = q.out = data.data();
    if (hvd_run(&q) != HVD_OK) return fail(name);
    for (std::size_t i = 0; i < n; ++i)
      if (get(t, data.data(), i) != value(t, root, i)) return fail(name);
  }

  void allgather(const TestedType& t, std::size_t n) {
    const std::string name = std::string("check.allgather.") + t.name + "." + std::to_string(n);
    const auto shape = static_cast<std::int64_t>(n * static_cast<std::size_t>(rank_));
    std::vector<char> in = mine(t, static_cast<std::size_t>(shape));
    hvd_request q = request(t, HVD_ALLGATHER, name, &shape);
    q.in = in.data();
    hvd_handle h = 0;
    void* data = nullptr;
    std::int64_t got[64];
    std::int32_t ndim = 0;
    if (hvd_submit(&q, &h) != HVD_OK || hvd_wait(h, 100) != HVD_OK || hvd_take(h, &data, got, &ndim) != HVD_OK)
      return fail(name);
    std::size_t at = 0;
    bool right = true;
    for (int r = 0; r < size_; ++r)
      for (std::size_t i = 0; i < n * static_cast<std::size_t>(r); ++i) right &= get(t, data, at++) == value(t, r, i);
    right &= got[0] == static_cast<std::int64_t>(at);
    hvd_free(data);
    hvd_release(h);
    if (!right) fail(name);
  }

 private:
  int rank_, size_, failures_ = 0;
};

}  // namespace

int check(int rank, int size) {
  Checker c(rank, size);
  for (const TestedType& t : types)
    for (std::size_t n : {std::size_t{1}, std::size_t{1000}, std::size_t{70001}}) {
      for (hvd_reduce op : {HVD_AVERAGE, HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT})
        if (reducible(static_cast<DType>(t.dtype), static_cast<Reduce>(op))) c.allreduce(t, op, n);
      c.broadcast(t, n, size - 1);
      c.allgather(t, n);
    }
  return c.failures();
}

}  // namespace hvd::bench
