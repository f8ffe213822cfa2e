/// Which backend runs an operation: facts in, a row of the table out.  No ranks.
#include "core/backends/backends.h"

#include <doctest/doctest.h>

#include <string>

#include "base/error.h"

using namespace hvd;
using namespace hvd::core;

namespace {

Signature signature_of(Kind kind, DType dtype = DType::f32, Reduce reduce = Reduce::sum) {
  Signature s;
  s.kind = static_cast<std::uint8_t>(kind);
  s.dtype = static_cast<std::uint8_t>(dtype);
  s.reduce = static_cast<std::uint8_t>(reduce);
  return s;
}

constexpr SetFacts one_node{.ranks = 4, .nodes = 1}, two_nodes{.ranks = 4, .nodes = 2};

std::string name_of(const Backend* backend) { return backend ? std::string(backend->name) : "none"; }

std::string chosen(const OperationFacts& operation, const SetFacts& set, const char* overrides = "") {
  return name_of(choose(operation, set, parse_overrides(overrides, "HVD_BACKENDS")));
}

std::string refused(const char* overrides) {
  try {
    parse_overrides(overrides, "HVD_BACKENDS");
  } catch (const Error& e) {
    CHECK(e.code == Code::usage);
    return e.what();
  }
  return "it is taken";
}

}  // namespace

TEST_CASE("backends: allreduce on the host") {
  const Signature s = signature_of(Kind::allreduce);
  CHECK(chosen({s, 4096}, one_node) == "shm_rings");
  CHECK(chosen({.signature = s, .bytes = 4096, .in_slots = true}, one_node) == "shm_eager");
  CHECK(chosen({.signature = s, .bytes = 1 << 20, .registered = true}, one_node) == "shm_direct");
  CHECK(chosen({s, 4096}, two_nodes) == "between_nodes");
  CHECK(chosen({.signature = s, .bytes = 1 << 20, .registered = true}, two_nodes) == "between_nodes");
  const Signature adasum = signature_of(Kind::allreduce, DType::f32, Reduce::adasum);
  for (const SetFacts& set : {one_node, two_nodes}) CHECK(chosen({adasum, 4096}, set) == "adasum");
  CHECK(chosen({.signature = adasum, .bytes = 4096, .registered = true}, one_node) == "adasum");
}

TEST_CASE("backends: every other operation on the host") {
  for (const SetFacts& set : {one_node, two_nodes}) {
    for (const Kind kind : {Kind::allgather, Kind::broadcast, Kind::alltoall})
      CHECK(chosen({signature_of(kind), 64}, set) == "movement");
    CHECK(chosen({signature_of(Kind::reducescatter), 64}, set) == "reduce_scatter");
    CHECK(chosen({signature_of(Kind::set_change), 0}, set) == "set_change");
    CHECK(chosen({signature_of(Kind::barrier), 0}, set) == "none");
  }
}

TEST_CASE("backends: tensors on GPUs") {
  SetFacts set{
      .ranks = 3, .nodes = 1, .device = {.among_gpus = true, .through_host = 0, .capabilities = {true, false, false}}};
  const Signature sum = signature_of(Kind::allreduce), small = signature_of(Kind::allreduce, DType::i16);
  CHECK(chosen({.signature = sum, .bytes = 64, .on_gpu = true}, set) == "nccl");
  CHECK(chosen({.signature = small, .bytes = 64, .on_gpu = true}, set) == "pinned");  // NCCL has no such integers
  set.device.through_host = bit_of(Kind::allreduce);
  CHECK(chosen({.signature = sum, .bytes = 64, .on_gpu = true}, set) == "pinned");
  CHECK(chosen({.signature = signature_of(Kind::broadcast), .bytes = 64, .on_gpu = true}, set) == "nccl");
  set.device.among_gpus = false;
  CHECK(chosen({.signature = signature_of(Kind::broadcast), .bytes = 64, .on_gpu = true}, set) == "pinned");
}

TEST_CASE("backends: the user's ranges of sizes come first, where the backend can") {
  const Signature s = signature_of(Kind::allreduce);
  const OperationFacts large{.signature = s, .bytes = 1 << 20, .registered = true};
  CHECK(chosen(large, one_node, "shm_rings") == "shm_rings");
  CHECK(chosen(large, one_node, "shm_rings:1M-") == "shm_rings");
  CHECK(chosen(large, one_node, "shm_rings:0-1M") == "shm_rings");
  CHECK(chosen(large, one_node, "shm_rings:0-1023K") == "shm_direct");
  CHECK(chosen(large, one_node, "shm_rings:2M-1G") == "shm_direct");
  CHECK(chosen(large, one_node, "shm_rings:2M-4M, shm_rings:64K-1M") == "shm_rings");
  CHECK(chosen(large, two_nodes, "shm_direct") == "between_nodes");  // it does not support this
  CHECK(chosen({.signature = s, .bytes = 64, .in_slots = true}, one_node, "shm_rings:0-1K") == "shm_rings");
}

TEST_CASE("backends: overrides that are none") {
  CHECK(parse_overrides("", "HVD_BACKENDS").empty());
  CHECK(refused("tcp:0-1K").starts_with("HVD_BACKENDS: 'tcp' is no backend"));
  CHECK(refused("shm_rings:1K").starts_with("HVD_BACKENDS: 'shm_rings:1K' has no range"));
  CHECK(refused("shm_rings:x-1K").starts_with("HVD_BACKENDS: 'shm_rings:x-1K' has no size"));
}

TEST_CASE("backends: each has its own name, and parts are numbered by the first backend with their stage") {
  for (std::size_t i = 0; i < backends().size(); ++i) {
    CHECK(part_of(*backends()[i]) <= i);
    CHECK((backends()[part_of(*backends()[i])]->make == backends()[i]->make));
    for (std::size_t k = 0; k < i; ++k) CHECK(backends()[i]->name != backends()[k]->name);
  }
}
