/// @file growth.cc — hvd-growth: the cost of the agreement on known tensors as ranks are added, on this machine.
///
///   hvd-growth [--tensors 1000] [--steps 30] [--check]
///
/// Ranks are threads of this process, far more than cores, over a transport that counts. In a step every rank submits
/// all tensors (4 bytes each, known for a long time) and waits for all. Messages and bytes of the negotiation (not of
/// data) are counted for each rank. The table shows the busiest rank, for one step on the average. --check: few ranks
/// and small tensors; exit code 1 if the busiest rank has more messages than the tree allows.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/engine/engine.h"
#include "core/operation/checked_request.h"
#include "memory/futex.h"
#include "transport/loopback.h"

using namespace hvd;

namespace {

struct Count {
  std::atomic<long> messages{0}, bytes{0};
};

/// Counts the commands and announcements that its rank sends and receives.
class Counted final : public transport::Transport {
 public:
  Counted(std::unique_ptr<Transport> inner, Count& count) : inner_(std::move(inner)), count_(count) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::vector<int>& host_of() const override { return inner_->host_of(); }
  bool threads_multiple() const override { return inner_->threads_multiple(); }
  transport::Ticket isend(int to, transport::Tag tag, const void* data, std::size_t bytes) override {
    if (tag == transport::Tag::up || tag == transport::Tag::down) note(bytes);
    return inner_->isend(to, tag, data, bytes);
  }
  transport::Ticket irecv(int from, transport::Tag tag, void* data, std::size_t bytes) override {
    return inner_->irecv(from, tag, data, bytes);
  }
  bool test(transport::Ticket ticket) override { return inner_->test(ticket); }
  void abandon(transport::Ticket ticket) override { inner_->abandon(ticket); }
  std::optional<transport::Message> poll(transport::Tag tag) override {
    auto message = inner_->poll(tag);
    if (message && tag != transport::Tag::exchange && tag != transport::Tag::share) note(message->body.size());
    return message;
  }
  std::unique_ptr<Transport> split(const std::vector<int>& members, int stream) override {
    return inner_->split(members, stream);
  }
  int streams() const override { return inner_->streams(); }
  std::shared_ptr<void> share_in_process(const std::vector<int>& members, std::size_t bytes) override {
    return inner_->share_in_process(members, bytes);
  }

 private:
  void note(std::size_t bytes) {
    count_.messages.fetch_add(1, std::memory_order_relaxed);
    count_.bytes.fetch_add(static_cast<long>(bytes), std::memory_order_relaxed);
  }
  std::unique_ptr<Transport> inner_;
  Count& count_;
};

struct Result {
  double least_us = 0, median_us = 0, messages = 0, bytes = 0;
};

/// Runs the steps of one rank; rank 0 measures the times.
void steps(core::Engine& engine, int tensors, int count, std::vector<double>& times, Count& counted) {
  std::vector<float> data(static_cast<std::size_t>(tensors), 1);
  std::vector<std::string> names;
  for (int i = 0; i < tensors; ++i) names.push_back("t" + std::to_string(i));
  std::vector<core::Operation*> ops(data.size());
  std::vector<core::CheckedRequest> prepared;
  for (std::size_t i = 0; i < data.size(); ++i) {
    hvd_request q{};
    q.struct_size = sizeof q;
    q.kind = HVD_ALLREDUCE;
    q.dtype = HVD_F32;
    q.reduce = HVD_MAX;
    q.name = names[i].c_str();
    q.device = HVD_HOST_DEVICE;
    q.in = q.out = &data[i];
    prepared.push_back(core::check_request(&q, engine.world(), engine.gpus()));
  }
  constexpr int warm = 3;
  for (int s = 0; s < count + warm; ++s) {
    if (s == warm) counted.messages = counted.bytes = 0;
    const std::int64_t begin = memory::now_ns();
    engine.set().submit(prepared, ops.data());
    for (core::Operation* op : ops) {
      if (!engine.wait(*op, 120) || op->status != HVD_OK) {
        std::fprintf(stderr, "hvd-growth: rank %d: %s\n", engine.world().rank, op->error.c_str());
        std::_Exit(1);
      }
      engine.operations().release(*op);
    }
    if (s >= warm && engine.world().rank == 0) times.push_back(static_cast<double>(memory::now_ns() - begin) / 1e3);
  }
}

Result measure(int ranks, int per_node, int tensors, int count) {
  auto world = transport::LoopbackWorld::make(ranks);
  core::Config config;
  config.set("HVD_RANKS_PER_NODE", per_node);
  std::vector<Count> counts(static_cast<std::size_t>(ranks));
  std::vector<double> times;
  std::vector<std::thread> threads;
  std::atomic<int> left{ranks};
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      Count& mine = counts[static_cast<std::size_t>(r)];
      core::Engine engine(std::make_unique<Counted>(world->open(r), mine), config);
      steps(engine, tensors, count, times, mine);
      for (--left; left > 0;) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // no rank leaves early
    });
  for (std::thread& t : threads) t.join();
  Result result;
  std::sort(times.begin(), times.end());
  result.least_us = times.front();
  result.median_us = times[times.size() / 2];
  for (const Count& c : counts) {
    result.messages = std::max(result.messages, static_cast<double>(c.messages) / count);
    result.bytes = std::max(result.bytes, static_cast<double>(c.bytes) / count);
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  int tensors = 1000, count = 30;
  bool check = false;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--check"))
      check = true;
    else if (i + 1 < argc && !std::strcmp(argv[i], "--tensors"))
      tensors = std::atoi(argv[++i]);
    else if (i + 1 < argc && !std::strcmp(argv[i], "--steps"))
      count = std::atoi(argv[++i]);
    else
      return std::fprintf(stderr, "hvd-growth: no option %s\n", argv[i]), 2;
  }
  if (check) tensors = 100, count = 5;
  std::puts(
      "                      a step: time        at the busiest rank\n"
      "  ranks  nodes      least    median us   messages     bytes");
  bool good = true;
  for (const int per_node : {0, 8, 2, 1})
    for (int ranks = 2; ranks <= (check ? 16 : 64); ranks *= 2) {
      if (per_node > 0 && ranks <= per_node) continue;
      const int nodes = per_node ? (ranks + per_node - 1) / per_node : 1;
      const Result r = measure(ranks, per_node, tensors, count);
      std::printf("%7d %6d %10.0f %12.0f %10.1f %9.0f\n", ranks, nodes, r.least_us, r.median_us, r.messages, r.bytes);
      std::fflush(stdout);
      // Up and down with three children and a parent: eight messages a batch. A step of one call seldom has more than a
      // few batches.
      good &= nodes == 1 ? r.messages == 0 : r.messages <= 8 * 8;
    }
  return check && !good ? 1 : 0;
}
