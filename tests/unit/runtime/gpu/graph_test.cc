/// Operations in CUDA graphs: each launch of a graph repeats the operations on the current data of its buffers.
#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu_operations.h"

extern "C" int cuStreamBeginCapture_v2(void* stream, int mode);
extern "C" int cuStreamEndCapture(void* stream, void** graph);
extern "C" int cuGraphLaunch(void* graph, void* stream);
extern "C" int cuGraphDestroy(void* graph);

using namespace hvd;
using namespace hvd::testing;

namespace {

/// A graph of calls on one rank.
class Graph {
 public:
  Graph(Rank& rank, GpuRank& gpu, const std::function<void(Graph&)>& calls) : rank_(rank), gpu_(gpu) {
    cuStreamSynchronize(gpu.stream());
    EXPECT(cuStreamBeginCapture_v2(gpu.stream(), 0) == 0);
    try {
      calls(*this);
    } catch (...) {
      cuStreamEndCapture(gpu.stream(), &graph_);
      if (graph_) cuGraphDestroy(graph_);
      throw;
    }
    EXPECT(cuStreamEndCapture(gpu.stream(), &graph_) == 0);
  }
  ~Graph() {
    cuStreamSynchronize(gpu_.stream());
    cuGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Records one call of @p qs.
  void record(std::vector<hvd_request> qs, bool group = false, int set = HVD_GLOBAL_SET) {
    const auto known = rank_.engine().known(set);
    std::vector<core::CheckedRequest> requests;
    for (hvd_request& q : qs) {
      q = gpu_.on_gpu(q);
      requests.push_back(core::check_request(&q, known->set->world(), rank_.engine().gpus()));
    }
    if (group) core::make_group(requests);
    std::vector<core::Operation*> ops(qs.size());
    rank_.engine().capture(*known->set, requests, ops.data());
    for (core::Operation* op : ops) {
      EXPECT(op->done() && op->arrived());
      op->hold_own();
      rank_.engine().operations().release(*op);
    }
  }
  /// Returns the error of record().
  std::string refused(const std::vector<hvd_request>& qs, Code code) {
    try {
      record(qs);
    } catch (const Error& e) { return e.code == code ? e.what() : "another code: " + std::string(e.what()); }
    return "";
  }
  void begin() { EXPECT(cuGraphLaunch(graph_, gpu_.stream()) == 0); }
  void launch() {
    begin();
    cuStreamSynchronize(gpu_.stream());
  }

 private:
  Rank& rank_;
  GpuRank& gpu_;
  void* graph_ = nullptr;
};

void write(void* to, const std::vector<float>& v) { std::memcpy(to, v.data(), v.size() * sizeof(float)); }

hvd_request summed(const char* name, std::int64_t n, void* t, hvd_reduce reduce = HVD_SUM) {
  return Rank::request(HVD_ALLREDUCE, name, {n}, t, t, HVD_F32, reduce);
}

/// All operations that can be recorded, in one graph, launched four times with new data.
void all_recorded(Rank& rank) {
  GpuRank gpu(rank);
  const int n = rank.size(), me = rank.rank();
  const std::size_t rows = static_cast<std::size_t>(2 * n + 1);
  void *a = gpu.empty(40), *b = gpu.empty(4000), *c = gpu.empty(280), *scaled = gpu.empty(400), *out = gpu.empty(400);
  void *root = gpu.empty(308), *mine = gpu.empty(24), *all = gpu.empty(24 * static_cast<std::size_t>(n));
  void* scattered = gpu.empty(rows * 20);
  const std::size_t each = (rows + static_cast<std::size_t>(n - 1 - me)) / static_cast<std::size_t>(n);
  void *part = gpu.empty(each * 20), *sent = gpu.empty(8 * static_cast<std::size_t>(n));
  void* received = gpu.empty(8 * static_cast<std::size_t>(n));
  Graph graph(rank, gpu, [&](Graph& g) {
    g.record({summed("a", 10, a)});
    g.record({summed("b", 1000, b), summed("c", 70, c, HVD_AVERAGE)}, true);
    hvd_request q = Rank::request(HVD_ALLREDUCE, "scaled", {100}, scaled, out, HVD_F32, HVD_SUM);
    q.prescale = 0.5;
    q.postscale = 4;
    g.record({q});
    q = Rank::request(HVD_BROADCAST, "root", {77}, root, root);
    q.root = n - 1;
    g.record({q});
    q = Rank::request(HVD_ALLGATHER, "all", {2, 3}, mine, all);
    q.out_bytes = 24 * static_cast<std::size_t>(n);
    g.record({q});
    q = Rank::request(HVD_REDUCESCATTER, "part", {static_cast<std::int64_t>(rows), 5}, scattered, part);
    q.out_bytes = each * 20;
    g.record({q});
    q = Rank::request(HVD_ALLTOALL, "exchange", {n, 2}, sent, received);
    q.out_bytes = 8 * static_cast<std::size_t>(n);
    g.record({q});
  });
  for (int round = 0; round < 4; ++round) {
    float one = 1;  // operations of the runtime go on beside graphs
    EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "host", {1}, &one, &one)) == HVD_OK);
    write(a, floats(10, me, round));
    write(b, floats(1000, me, round));
    write(c, floats(70, me, round));
    write(scaled, floats(100, me, round));
    write(root, floats(77, me, round));
    write(mine, floats(6, me, round));
    write(scattered, floats(rows * 5, me, round));
    write(sent, floats(static_cast<std::size_t>(n) * 2, me, round));
    graph.launch();
    EXPECT(read(a, 10) == sum_of_floats(10, n, round));
    EXPECT(read(b, 1000) == sum_of_floats(1000, n, round));
    EXPECT(near(read(c, 70), sum_of_floats(70, n, round, 1 / static_cast<float>(n))));
    EXPECT(near(read(out, 100), sum_of_floats(100, n, round, 2)));
    EXPECT(read(root, 77) == floats(77, n - 1, round));
    const auto whole = sum_of_floats(rows * 5, n, round);
    std::size_t begin = 0;
    for (int r = 0; r < n; ++r) {
      EXPECT(read(static_cast<char*>(all) + 24 * r, 6) == floats(6, r, round));
      const auto theirs = floats(static_cast<std::size_t>(n) * 2, r, round);
      EXPECT(read(static_cast<char*>(received) + 8 * r, 2) ==
             std::vector<float>(theirs.begin() + 2 * me, theirs.begin() + 2 * me + 2));
      if (r < me) begin += (rows + static_cast<std::size_t>(n - 1 - r)) / static_cast<std::size_t>(n) * 5;
    }
    EXPECT(read(part, each * 5) == std::vector<float>(whole.begin() + static_cast<long>(begin),
                                                      whole.begin() + static_cast<long>(begin + each * 5)));
  }
}

}  // namespace

TEST_CASE("recorded operations run at each launch of the graph") {
  if (!has_kernels()) return;
  for (const auto& [size, per_node] : worlds({{1, 1}, {2, 2}, {3, 3}, {4, 2}})) run_world(size, per_node, all_recorded);
}

TEST_CASE("a graph is recorded in each mode, before and after operations of the runtime") {
  run_world(2, 2, [](Rank& rank) {
    GpuRank gpu(rank);
    const auto v = floats(10, rank.rank());
    void* t = gpu.empty(40);
    for (const bool eager_first : {false, true}) {
      for (const int mode : {0, 1, 2}) {
        if (eager_first) {
          write(t, v);
          gpu.run(summed("eager", 10, t));
        }
        EXPECT(cuStreamBeginCapture_v2(gpu.stream(), mode) == 0);
        const hvd_request q = gpu.on_gpu(summed("x", 10, t));
        const core::CheckedRequest p = core::check_request(&q, rank.engine().world(), rank.engine().gpus());
        core::Operation* op = nullptr;
        rank.engine().capture(rank.engine().set(), {&p, 1}, &op);
        rank.engine().operations().release(*op);
        void* graph = nullptr;
        EXPECT(cuStreamEndCapture(gpu.stream(), &graph) == 0);
        for (int i = 0; i < 3; ++i) {
          write(t, v);
          cuGraphLaunch(graph, gpu.stream());
          cuStreamSynchronize(gpu.stream());
          EXPECT(read(t, 10) == sum_of_floats(10, 2));
        }
        cuGraphDestroy(graph);
      }
    }
  });
}

TEST_CASE("ranks that record different calls are told so in one sentence, and go on") {
  run_world(3, 3, [](Rank& rank) {
    GpuRank gpu(rank);
    const bool odd = rank.rank() == 1;
    void *a = gpu.empty(80), *b = gpu.empty(80);
    Graph graph(rank, gpu, [&](Graph& g) {
      EXPECT(
          g.refused({summed(odd ? "b" : "a", 10, a)}, Code::mismatch) ==
          "captured call 1: rank 0 records allreduce 'a' of float32 [10], but rank 1 records allreduce 'b' of float32 "
          "[10]");
      EXPECT(g.refused({summed("a", odd ? 20 : 10, a)}, Code::mismatch).find("of float32 [20]") != std::string::npos);
      EXPECT(g.refused({summed("a", 10, a, odd ? HVD_AVERAGE : HVD_SUM)}, Code::mismatch).find("Average") !=
             std::string::npos);
      std::vector<hvd_request> two{summed("a", 10, a)};
      if (!odd) two.push_back(summed("b", 10, b));
      EXPECT(g.refused(two, Code::mismatch).find("but rank 1 records nothing more") != std::string::npos);
      hvd_request q = Rank::request(HVD_ALLGATHER, "rows", {odd ? 2 : 1}, a, b);
      q.out_bytes = odd ? 24 : 12;
      EXPECT(g.refused({q}, Code::mismatch).find("allgather 'rows' of float32 [2]") != std::string::npos);
      g.record({summed("a", 10, a)});
    });
    write(a, floats(10, rank.rank()));
    graph.launch();
    EXPECT(read(a, 10) == sum_of_floats(10, 3));
  });
}

TEST_CASE("calls that cannot be recorded are refused on all ranks") {
  run_world(2, 2, [](Rank& rank) {
    GpuRank gpu(rank);
    void *a = gpu.empty(80), *b = gpu.empty(80);
    Graph graph(rank, gpu, [&](Graph& g) {
      const auto has = [&](const hvd_request& q, const char* text) {
        const std::string said = g.refused({q}, Code::usage);
        if (said.find(text) == std::string::npos) throw std::runtime_error(said);
      };
      has(Rank::request(HVD_ALLGATHER, "rows", {2}, a, nullptr),
          "rank 0 cannot record it: this allgather has no memory for the result");
      has(Rank::request(HVD_ALLREDUCE, "short", {2}, a, a, HVD_I16), "int16 goes through host memory");
      has(Rank::request(HVD_ALLREDUCE, "adasum", {2}, a, a, HVD_F32, HVD_ADASUM), "goes through host memory");
      const std::int64_t splits[] = {1, 2};
      hvd_request q = Rank::request(HVD_ALLTOALL, "exchange", {3}, a, b);
      q.splits = splits;
      q.num_splits = 2;
      q.out_bytes = 12;
      has(q, "different splits");
      // one rank refuses
      q = Rank::request(HVD_REDUCESCATTER, "part", {2}, a, b);
      q.out_bytes = rank.rank() == 1 ? 8 : 4;
      has(q, "captured call 5: rank 1 cannot record it: this reducescatter has no memory");
    });
    EXPECT(
        Graph(rank, gpu, [&](Graph& g) { g.record({summed("a", 2, a)}); }).refused({summed("a", 2, a)}, Code::usage) ==
        "allreduce: HVD_CAPTURE, but no stream of a GPU is being captured");
  });
}

TEST_CASE("a set of ranks records, and its graph outlives it without effect") {
  run_world(3, 3, [](Rank& rank) {
    GpuRank gpu(rank);
    void* t = gpu.empty(40);
    std::unique_ptr<Graph> graph;
    const int set = rank.engine().add_set({0, 2});
    const bool is_member = rank.rank() != 1;
    if (is_member) {
      graph = std::make_unique<Graph>(rank, gpu, [&](Graph& g) { g.record({summed("x", 10, t)}, false, set); });
      write(t, floats(10, rank.rank()));
      graph->launch();
      EXPECT(read(t, 10) == sum_of_floats(10, {0, 2}));
    }
    const auto begin = std::chrono::steady_clock::now();
    rank.engine().remove_set(set);
    EXPECT(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
    if (is_member) graph->launch();
  });
}

TEST_CASE("when a peer is lost, a graph that waits for it ends") {
  run_world(2, 2, [](Rank& rank) {
    GpuRank gpu(rank);
    void* t = gpu.empty(40);
    Graph graph(rank, gpu, [&](Graph& g) { g.record({summed("x", 10, t)}); });
    graph.launch();
    if (rank.rank() == 1) return rank.shutdown();
    graph.begin();
    float one = 1;
    EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "after", {1}, &one, &one)) == HVD_PEER_LOST);
    cuStreamSynchronize(gpu.stream());
    graph.launch();  // has no effect
  });
}
