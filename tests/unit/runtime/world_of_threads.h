/// @file world_of_threads.h — ranks as threads over the loopback transport.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "core/engine/engine.h"
#include "core/operation/checked_request.h"
#include "transport/loopback.h"

namespace hvd::testing {

/// Divides rounds: a sanitizer checks every access, so fewer rounds test as much.
#if defined(__SANITIZE_THREAD__)
inline constexpr int slower = 5;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int slower = 3;
#else
inline constexpr int slower = 1;
#endif

/// A world: the number of ranks, and the number of them on each node; 0: all on one node.
struct Split {
  int size, per_node;
};

/// The worlds in which a test runs. Under sanitizers, one world of each form: one node, one rank a node, equal nodes of
/// several ranks, unequal nodes.
inline std::vector<Split> worlds(std::vector<Split> all) {
  if (slower > 1) {
    std::set<int> seen;
    std::erase_if(all, [&](const Split& s) {
      const int unequal = s.per_node > 1 && s.size % s.per_node ? 1 : 0;
      return s.size < 3 || !seen.insert(std::min(s.per_node, 2) * 2 + unequal).second;
    });
  }
  return all;
}

/// One rank, a thread of the test: an engine and the calls that a user of the C interface makes.
class Rank {
 public:
  Rank(std::shared_ptr<transport::LoopbackWorld> world, int rank, const core::Config& config,
       gpu::Platform& gpus = gpu::platform())
      : Rank(world->open(rank), rank, config, gpus) {}
  Rank(std::unique_ptr<transport::Transport> transport, int rank, const core::Config& config,
       gpu::Platform& gpus = gpu::platform())
      : engine_(std::make_unique<core::Engine>(std::move(transport), config, gpus)), rank_(rank) {}

  int rank() const { return rank_; }
  int size() const { return engine_->world().size; }
  core::Engine& engine() { return *engine_; }
  void shutdown() { engine_.reset(); }

  static hvd_request request(hvd_kind kind, const char* name, const std::vector<std::int64_t>& shape, const void* in,
                             void* out, hvd_dtype dtype = HVD_F32, hvd_reduce reduce = HVD_SUM) {
    thread_local std::deque<std::vector<std::int64_t>> shapes;  // requests point into it: the last shapes stay alive
    shapes.push_back(shape);
    if (shapes.size() > 500) shapes.pop_front();
    hvd_request q{};
    q.struct_size = sizeof q;
    q.kind = kind;
    q.dtype = dtype;
    q.reduce = reduce;
    q.name = name;
    q.shape = shapes.back().data();
    q.ndim = static_cast<int>(shape.size());
    q.device = HVD_HOST_DEVICE;
    q.in = in;
    q.out = out;
    return q;
  }
  core::Operation& submit(const hvd_request& q) {
    const auto known = engine_->known(q.set);
    if (!known->set) throw Error(Code::usage, "set", "not a member");
    core::Operation* op = nullptr;
    const core::CheckedRequest p = core::check_request(&q, known->set->world(), engine_->gpus());
    engine_->submit(*known->set, {&p, 1}, &op);
    return *op;
  }
  std::vector<core::Operation*> submit_group(const std::vector<hvd_request>& qs) { return submit_many(qs, true); }
  std::vector<core::Operation*> submit_many(const std::vector<hvd_request>& qs, bool group = false) {
    std::vector<core::Operation*> ops(qs.size());
    std::vector<core::CheckedRequest> p;
    for (const hvd_request& q : qs) p.push_back(core::check_request(&q, engine_->world(), engine_->gpus()));
    if (group) core::make_group(p);
    engine_->submit(engine_->set(), p, ops.data());
    return ops;
  }
  /// Waits with a limit, forgets the operation, returns its status; *text gets its error.
  int finish(core::Operation& op, std::string* text = nullptr, double limit = 120) {
    if (!engine_->wait(op, limit)) return HVD_TIMEOUT;
    const int status = op.status;
    if (text) *text = op.error;
    engine_->operations().release(op);
    return status;
  }
  /// Status of an operation that may already be refused at submit.
  int try_run(const hvd_request& q, std::string* text, double limit) {
    try {
      return finish(submit(q), text, limit);
    } catch (const Error& e) {
      *text = e.what();
      return static_cast<int>(e.code);
    }
  }
  /// A sum of one number in a process set.
  int sum(int set, const std::string& name, float* x) {
    hvd_request q = request(HVD_ALLREDUCE, name.c_str(), {1}, x, x);
    q.set = set;
    return run(q);
  }
  int run(const hvd_request& q, std::string* text = nullptr) { return finish(submit(q), text); }

 private:
  std::unique_ptr<core::Engine> engine_;
  int rank_;
};

/// Runs f on every rank at once; messages between nodes take up to most_delay_ns.  f must not use doctest's macros that
/// throw; failures are counted by EXPECT.
inline void run_world(int size, int per_node, const std::function<void(Rank&)>& f, core::Config config = {},
                      std::int64_t most_delay_ns = 0, gpu::Platform& gpus = gpu::platform()) {
  config.set("HVD_RANKS_PER_NODE", per_node);
  config.set("HVD_INIT_TIMEOUT", 120);
  auto world = transport::LoopbackWorld::make(size);
  if (most_delay_ns > 0) world->delay(static_cast<unsigned>(size), most_delay_ns);
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::string failure;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        Rank rank(world, r, config, gpus);
        f(rank);
      } catch (const std::exception& e) {
        std::lock_guard lock(mutex);
        failure += "rank " + std::to_string(r) + ": " + e.what() + "\n";
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(failure == "");
}

/// Throws inside a rank's thread, where CHECK must not be used.
#define EXPECT(condition)                                                                               \
  do {                                                                                                  \
    if (!(condition))                                                                                   \
      throw std::runtime_error(std::string(__FILE__ ":") + std::to_string(__LINE__) + ": " #condition); \
  } while (0)

}  // namespace hvd::testing
