// CheckedRequest: the memory that a request of the C interface refers to, and the signature on which ranks must agree.
#include "core/operation/checked_request.h"

#include <doctest/doctest.h>

#include "core/operation/operation_table.h"
#include "world_of_threads.h"

namespace hvd::testing {

using core::CheckedRequest;

namespace {

hvd_request request_of(int kind, const std::vector<std::int64_t>& shape) {
  static char memory[64];
  hvd_request q{};
  q.struct_size = sizeof q;
  q.kind = kind;
  q.dtype = HVD_F32;
  q.reduce = HVD_SUM;
  q.name = "t";
  q.shape = shape.data();
  q.ndim = static_cast<int>(shape.size());
  q.device = HVD_HOST_DEVICE;
  q.in = q.out = memory;
  return q;
}

CheckedRequest checked(const hvd_request& q) {
  World two;
  two.size = 2;
  return core::check_request(&q, two, gpu::platform());
}

}  // namespace

TEST_CASE("checked request: a known signature is compared with the caller's shape") {
  const std::vector<std::int64_t> shape{3, 4}, longer{3, 5}, flat{12};
  const CheckedRequest p = checked(request_of(HVD_ALLREDUCE, shape));
  const Signature known = p.whole_signature();
  CHECK(known.bytes() == 40 + 2 * sizeof(std::int64_t));
  CHECK(known.elements() == 12);
  CHECK(known.is(p.signature, p.shape));
  for (const auto& other : {longer, flat}) {
    const CheckedRequest q = checked(request_of(HVD_ALLREDUCE, other));
    CHECK_FALSE(known.is(q.signature, q.shape));
    CHECK_FALSE(known == q.whole_signature());
  }
  CHECK_FALSE(known.is(checked(request_of(HVD_BROADCAST, shape)).signature, shape.data()));
}

TEST_CASE("checked request: ranks may have their own first dimension") {
  const std::vector<std::int64_t> shape{4, 2}, more{6, 2}, wider{4, 3};
  for (const int kind : {HVD_ALLGATHER, HVD_ALLTOALL}) {
    const CheckedRequest p = checked(request_of(kind, shape)), q = checked(request_of(kind, more));
    const Signature known = p.whole_signature();
    CHECK(known.dims[0] == -1);
    CHECK(known == q.whole_signature());
    CHECK(known.is(q.signature, q.shape));
    CHECK(q.dim0 == 6);
    CHECK_FALSE(known.is(p.signature, wider.data()));
  }
}

TEST_CASE("checked request: splits are the caller's, or equal parts") {
  const std::vector<std::int64_t> shape{4, 2}, splits{1, 3};
  hvd_request q = request_of(HVD_ALLTOALL, shape);
  CHECK(checked(q).rows_for(2) == std::vector<std::int64_t>{2, 2});
  q.splits = splits.data();
  q.num_splits = 2;
  CHECK(checked(q).rows_for(2) == splits);
}

TEST_CASE("checked request: no elements") {
  const std::vector<std::int64_t> shape{4, 0, 2};
  hvd_request q = request_of(HVD_ALLREDUCE, shape);
  q.in = q.out = nullptr;
  CHECK(checked(q).whole_signature().payload_bytes() == 0);
  const std::vector<std::int64_t> full{4, 2};
  q.shape = full.data(), q.ndim = 2;
  CHECK_THROWS_WITH_AS(checked(q), doctest::Contains("in is NULL"), Error);
}

TEST_CASE("operation: it is reused without the size and the listener of its last user") {
  core::RankStatus status;
  core::OperationTable table{status};
  core::Operation* op = nullptr;
  table.take(1, &op);
  op->more = true;
  op->dim0 = 3, op->out_bytes = 12;
  int told = 0;
  CHECK(table.listen(
      *op, [](void* n) { ++*static_cast<int*>(n); }, &told));
  CHECK_FALSE(table.listen(
      *op, [](void*) {}, nullptr));
  table.end(std::vector<core::Operation*>{op});
  CHECK(told == 1);
  table.release(*op);
  core::Operation* again = nullptr;
  table.take(1, &again);
  REQUIRE(again == op);
  CHECK(again->dim0 == 0);
  CHECK(again->out_bytes == 0);
  CHECK_FALSE(again->listened);
  table.end(std::vector<core::Operation*>{again});
  CHECK(told == 1);
}

}  // namespace hvd::testing
