/// A framework's call over a fake libhvd, which consists of a few functions here.
#include "ext/bridge/call.h"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <future>
#include <string>
#include <vector>

using hvd::bridge::Call;
using hvd::bridge::CallOperation;
using hvd::bridge::CallTensor;
using hvd::bridge::find_type;
using hvd::bridge::runtime;
using hvd::bridge::same;
using hvd::bridge::TakenResult;
using hvd::bridge::WireType;

namespace {

constexpr int float_type = 1, complex_type = 2;
const std::array types{same(float_type, HVD_F32), same(complex_type, HVD_C64)};

/// The calls of the library, and its answers.
struct Library {
  std::vector<hvd_request> requests;
  std::vector<std::string> names;
  std::uint32_t flags = 0;
  int submission = HVD_OK, outcome = HVD_OK;
  int released = 0, parts_open = 0;
} library;

void open_library() {
  library = {};
  runtime.submit_many = [](const hvd_request* requests, std::size_t count, std::uint32_t flags, hvd_handle* handles) {
    library.requests.assign(requests, requests + count);
    for (std::size_t i = 0; i < count; ++i) {
      library.names.emplace_back(requests[i].name ? requests[i].name : "-");
      handles[i] = static_cast<hvd_handle>(i) + 1;
    }
    library.flags = flags;
    return library.submission;
  };
  runtime.notify = [](hvd_handle, void (*ended)(void*), void* context) { return ended(context), int{HVD_OK}; };
  runtime.poll = [](hvd_handle, int* done) { return *done = 1, int{HVD_OK}; };
  runtime.wait = [](hvd_handle, double) { return library.outcome; };
  runtime.take = [](hvd_handle, void** data, std::int64_t* shape, std::int32_t* ndim) {
    *data = std::malloc(24);
    shape[0] = 3, *ndim = 1;
    return int{HVD_OK};
  };
  runtime.free = [](void* data) { std::free(data); };
  runtime.release = [](hvd_handle) { return ++library.released, int{HVD_OK}; };
  runtime.part_begin = [](int) { ++library.parts_open; };
  runtime.part_end = [](int) { --library.parts_open; };
  runtime.last_error = []() -> const char* { return "the library's words"; };
}

class Program final : public Call {
 public:
  explicit Program(CallOperation operation) : Call(std::move(operation)) {}
  bool add(const std::vector<WireType>& wires, const std::vector<std::int64_t>& dims) {
    tensors_.resize(wires.size());
    bool well = true;
    for (std::size_t i = 0; well && i < wires.size(); ++i)
      well = describe(i, wires[i], dims.data(), static_cast<std::int64_t>(dims.size()));
    return well;
  }
  void finish() override {
    wait_for_all();
    release_all();
    ended.set_value();
  }
  using Call::failed, Call::finish_later, Call::status_, Call::submit, Call::take, Call::tensors_, Call::why_;
  std::promise<void> ended;
};

}  // namespace

TEST_CASE("call: tensors become requests, with the operation's words in each") {
  open_library();
  Program call({HVD_ALLREDUCE, HVD_MIN, 0, 4, 0.5, 2, true, "allreduce.x"});
  REQUIRE(call.add({find_type(types, float_type), find_type(types, float_type)}, {2, 3}));
  REQUIRE(call.submit());
  REQUIRE(library.requests.size() == 2);
  CHECK(library.names == std::vector<std::string>{"allreduce.x.0", "allreduce.x.1"});
  CHECK(library.flags == HVD_GROUP);
  const hvd_request& r = library.requests[1];
  CHECK(r.kind == HVD_ALLREDUCE);
  CHECK(r.dtype == HVD_F32);
  CHECK(r.reduce == HVD_MIN);
  CHECK(r.set == 4);
  CHECK(r.prescale == 0.5);
  CHECK(r.postscale == 2);
  CHECK(r.ndim == 2);
  CHECK(call.tensors_[1].handle == 2);
}

TEST_CASE("call: a gathered scalar is a row, and an unknown type is refused") {
  open_library();
  CallOperation gather;
  gather.kind = HVD_ALLGATHER;
  Program call(gather);
  REQUIRE(call.add({find_type(types, complex_type)}, {}));
  CHECK(call.tensors_[0].shape == std::vector<std::int64_t>{1});
  REQUIRE(call.submit());
  CHECK(library.names.front() == "-");
  TakenResult result;
  REQUIRE(call.take(call.tensors_[0], result));
  CHECK(result.ndim == 1);
  CHECK(result.shape[0] == 3);
  CHECK(result.bytes == 24);
  Program unknown(gather);
  CHECK_FALSE(unknown.add({find_type(types, 99)}, {2}));
  CHECK(unknown.status_ == HVD_USAGE);
}

TEST_CASE("call: it finishes once, on another thread, and the first failure stays") {
  for (const bool on_gpu : {false, true}) {
    open_library();
    library.outcome = HVD_PEER_LOST;
    Program call({HVD_ALLREDUCE, HVD_SUM, 0, 0, 1, 1, false, "late"});
    REQUIRE(call.add(std::vector<WireType>(5, find_type(types, float_type)), {1}));
    REQUIRE(call.submit());
    auto ended = call.ended.get_future();
    call.finish_later(on_gpu);
    REQUIRE(ended.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    CHECK(library.released == 5);
    CHECK(library.parts_open == 0);  // the call has reported its wait, and the end of the wait
    CHECK(call.status_ == HVD_PEER_LOST);
    CHECK(call.why_ == "the library's words");
  }
  open_library();
  library.submission = HVD_USAGE;
  Program refused({HVD_BROADCAST, HVD_SUM, 0, 0, 1, 1, false, "refused"});
  REQUIRE(refused.add({find_type(types, float_type)}, {1}));
  CHECK_FALSE(refused.submit());
  CHECK(refused.status_ == HVD_USAGE);
}
