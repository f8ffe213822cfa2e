#include "core/operation/checked_request.h"

#include <cmath>
#include <cstddef>
#include <cstring>

#include "base/error.h"
#include "base/fnv1a.h"

namespace hvd::core {
namespace {

constexpr std::size_t longest_name = 4096;

[[noreturn]] void refuse(const hvd_request& q, const std::string& what, const std::string& hint = {}) {
  std::string where = q.kind >= 0 && q.kind < num_kinds ? name_of(static_cast<Kind>(q.kind)) : "request";
  if (q.name) where += " '" + std::string(q.name, strnlen(q.name, 200)) + "'";
  throw Error(Code::usage, where, what, hint);
}

void check_kind(const hvd_request& q) {
  if (q.kind < 0 || q.kind >= num_kinds) refuse(q, "unknown kind " + std::to_string(q.kind));
  if (q.device < HVD_HOST_DEVICE) refuse(q, "unknown device " + std::to_string(q.device));
  if (q.dtype < 0 || q.dtype >= num_dtypes) refuse(q, "unknown dtype " + std::to_string(q.dtype));
}

/// The request's name; empty if the caller gives none.
std::string_view name_in(const hvd_request& q) {
  if (!q.name) return {};
  const std::size_t length = strnlen(q.name, longest_name + 1);
  if (length > longest_name) refuse(q, "the name is longer than 4096 bytes");
  return {q.name, length};
}

/// Returns true if the tensor has no elements.
bool check_shape(const hvd_request& q, CheckedRequest& p) {
  SignatureHead& s = p.signature;
  if (q.ndim < 0 || q.ndim > max_dims) refuse(q, "ndim " + std::to_string(q.ndim) + " is not from 0 to 64");
  if (q.ndim > 0 && !q.shape) refuse(q, "shape is NULL");
  s.ndim = static_cast<std::uint8_t>(q.ndim);
  p.shape = q.shape;
  bool empty = false;
  const auto size = static_cast<std::int64_t>(element_bytes(s.type()));
  std::int64_t bytes = size;
  for (int i = 0; i < q.ndim; ++i) {
    if (q.shape[i] < 0) refuse(q, "dimension " + std::to_string(i) + " is negative");
    empty |= q.shape[i] == 0;
    // A dimension of 0 makes the tensor empty.  The product of the other dimensions must still be a valid size.
    const std::int64_t d = q.shape[i] > 0 ? q.shape[i] : 1;
    if (__builtin_mul_overflow(bytes, d, &bytes) || bytes > INT64_MAX / 2)
      refuse(q, "the shape has more bytes than an address can count");
  }
  return empty;
}

/// Returns the request in the current layout.  A caller that was compiled with an older header gives a shorter request,
/// which is copied to @p widened.
const hvd_request& widen(const hvd_request* request, hvd_request& widened) {
  if (!request) throw Error(Code::usage, "request", "is NULL");
  const std::uint32_t size = request->struct_size;
  if (size == sizeof(hvd_request)) return *request;
  if (size != offsetof(hvd_request, out_bytes) && size != offsetof(hvd_request, stream) &&
      size != offsetof(hvd_request, splits))
    throw Error(Code::usage, "request",
                "struct_size is " + std::to_string(size) + ", expected " + std::to_string(sizeof(hvd_request)),
                "set it to sizeof(hvd_request)");
  widened = {};
  std::memcpy(&widened, request, size);
  return widened;
}

/// Fills dim0.  Ranks compare signatures, which must be equal; the first dimension may differ between ranks.
void own_rows(const hvd_request& q, CheckedRequest& p, const char* verb) {
  if (p.signature.ndim == 0) refuse(q, std::string("a scalar has no first dimension to ") + verb, "reshape it to [1]");
  p.dim0 = p.shape[0];
}

void check_splits(const hvd_request& q, CheckedRequest& p, int size) {
  p.splits = q.splits;
  if (!q.splits) {
    if (p.dim0 % size != 0)
      refuse(q,
             "the first dimension, " + std::to_string(p.dim0) + ", is no multiple of the " + std::to_string(size) +
                 " ranks",
             "give splits");
    return;
  }
  if (q.num_splits != size)
    refuse(q, std::to_string(q.num_splits) + " splits were given for " + std::to_string(size) + " ranks");
  std::int64_t sum = 0;
  for (int r = 0; r < size; ++r) {
    const std::int64_t rows = q.splits[r];
    if (rows < 0) refuse(q, "splits[" + std::to_string(r) + "] is negative");
    if (rows > p.dim0 - sum) refuse(q, "the splits add up to more than the first dimension, " + std::to_string(p.dim0));
    sum += rows;
  }
  if (sum != p.dim0)
    refuse(q, "the splits add up to " + std::to_string(sum) + ", the first dimension is " + std::to_string(p.dim0));
}

void check_reduction(const hvd_request& q, SignatureHead& s) {
  if (q.reduce < 0 || q.reduce >= num_reduces) refuse(q, "unknown reduce op " + std::to_string(q.reduce));
  if (!reducible(s.type(), static_cast<Reduce>(q.reduce)))
    refuse(q, std::string(name_of(static_cast<Reduce>(q.reduce))) + " of " + name_of(s.type()) + " is not possible",
           is_complex(s.type())        ? "use Sum, Average or Product"
           : s.type() == DType::opaque ? "the runtime lacks their dtype, and only moves them: cast them"
                                       : "use floating point");
  if (s.operation() == Kind::reducescatter && q.reduce != HVD_SUM && q.reduce != HVD_AVERAGE)
    refuse(q, std::string(name_of(static_cast<Reduce>(q.reduce))) + " is not possible", "use Sum or Average");
  s.reduce = static_cast<std::uint8_t>(q.reduce);
  const bool unset = q.prescale == 0 && q.postscale == 0;
  s.before = unset ? 1 : q.prescale;
  s.after = unset ? 1 : q.postscale;
}

}  // namespace

CheckedRequest check_request(const hvd_request* request, const World& world, gpu::Platform& gpus) {
  hvd_request widened;
  const hvd_request& q = widen(request, widened);
  check_kind(q);
  CheckedRequest p;
  SignatureHead& s = p.signature;
  p.name = name_in(q);
  p.in = q.in;
  s.kind = static_cast<std::uint8_t>(q.kind);
  // The runtime allocates the results of these kinds, unless the caller gives memory for them.
  const bool may_have_out = s.operation() == Kind::reducescatter || s.operation() == Kind::alltoall ||
                            (s.operation() == Kind::allgather && q.device != HVD_HOST_DEVICE);
  if (!p.has_result() || (may_have_out && q.out_bytes > 0)) p.out = q.out;
  if (p.out && may_have_out) p.out_bytes = q.out_bytes;
  if (s.operation() != Kind::alltoall && q.splits) refuse(q, "splits are for alltoall only");
  if (s.operation() == Kind::barrier || s.operation() == Kind::join) return p;
  s.dtype = static_cast<std::uint8_t>(q.dtype);
  if (q.device != HVD_HOST_DEVICE) {
    p.gpu = &gpus.at(q.device);
    p.stream = q.stream;
    s.device = 0;  // signatures are equal on all ranks, so they do not contain the GPU's number
  }
  const bool empty = check_shape(q, p);
  if (s.operation() == Kind::broadcast) {
    if (q.root < 0 || q.root >= world.size)
      refuse(q, "root rank " + std::to_string(q.root) + " is not from 0 to " + std::to_string(world.size - 1));
    s.root = q.root;
  }
  if (!empty && !q.in && !(s.operation() == Kind::broadcast && world.rank != q.root)) refuse(q, "in is NULL");
  if (!empty && !q.out && !p.has_result()) refuse(q, "out is NULL");
  switch (s.operation()) {
    case Kind::allgather:
      own_rows(q, p, "gather along");
      break;
    case Kind::alltoall:
      own_rows(q, p, "split");
      check_splits(q, p, world.size);
      break;
    case Kind::reducescatter:
      if (s.ndim == 0) refuse(q, "a scalar has no first dimension to divide", "reshape it to [1]");
      check_reduction(q, s);
      break;
    case Kind::allreduce:
      check_reduction(q, s);
      break;
    default:
      break;
  }
  return p;
}

void make_group(std::vector<CheckedRequest>& requests) {
  const CheckedRequest& first = requests.front();
  for (const CheckedRequest& p : requests)
    if ((p.gpu == nullptr) != (first.gpu == nullptr))
      throw Error(Code::usage, "a group",
                  "'" + std::string(first.gpu ? p.name : first.name) + "' is in host memory and '" +
                      std::string(first.gpu ? first.name : p.name) + "' on a GPU",
                  "one call for each kind");
  std::uint64_t hash = fnv1a_start;
  for (const CheckedRequest& p : requests) hash = fnv1a_step(fnv1a(p.name, hash), 0);
  for (CheckedRequest& p : requests) {
    p.signature.group = hash;
    p.signature.group_size = static_cast<std::uint32_t>(requests.size());
  }
}

}  // namespace hvd::core
