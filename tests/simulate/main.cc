/// @file main.cc — hvd-simulate: the runtime's own negotiation at sizes for which no cluster is available.
///
///   hvd-simulate [--json] [--check] [--ranks 1024,16384,27600] [--per-node 6] [--arity 3] [--tensors 1000]
///                [--bytes 1e8] [--compute-ms 150]    (0: without the training step)
///
/// burst     all tensors are known; every rank submits all of them within 50 µs, ranks up to 20 µs apart. Once the data
///           takes no time: this gives the most messages, and the time of the agreement. Once the gradients take their
///           own time, while which more tensors gather.
/// first     the same tensors when no rank knows them: records, merged
/// training  forward a third of the compute time, then gradients come evenly over the rest, the last layers first; each
///           rank is up to 0.5 % slower than the fastest.  Efficiency: the slowest rank's compute over the time of the
///           step. Gradients move by a bandwidth-optimal allreduce (network.h), the same for both runtimes.
/// --check   small sizes, and exit code 1 where a bound does not hold
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "simulate/cluster.h"
#include "simulate/horovod.h"

using namespace hvd::simulate;

namespace {

struct Options {
  std::vector<int> ranks = {1024, 16384, 27600};
  int per_node = 6, tensors = 1000;
  std::vector<int> arity = {3};
  double bytes = 100e6, compute_ms = 150;
  bool json = false, check = false;
};

std::vector<int> list_of(const char* text) {
  std::vector<int> all;
  for (char* end = nullptr; *text; text = *end ? end + 1 : end)
    all.push_back(static_cast<int>(std::strtol(text, &end, 10)));
  return all;
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--json" || name == "--check") {
      (name == "--json" ? o.json : o.check) = true;
      continue;
    }
    if (i + 1 == argc) {
      std::fprintf(stderr, "hvd-simulate: %s needs a value, or does not exist\n", argv[i]);
      std::exit(2);
    }
    const char* value = argv[++i];
    if (name == "--ranks")
      o.ranks = list_of(value);
    else if (name == "--per-node")
      o.per_node = std::atoi(value);
    else if (name == "--arity")
      o.arity = list_of(value);
    else if (name == "--tensors")
      o.tensors = std::atoi(value);
    else if (name == "--bytes")
      o.bytes = std::atof(value);
    else if (name == "--compute-ms")
      o.compute_ms = std::atof(value);
    else {
      std::fprintf(stderr, "hvd-simulate: no option %s\n", argv[i - 1]);
      std::exit(2);
    }
  }
  return o;
}

/// Returns a number in [0, 1) for each rank, the same everywhere.
double draw(unsigned rank, unsigned salt) {
  std::minstd_rand random(rank * 2654435761u + salt * 40503u + 1);
  random.discard(3);
  return static_cast<double>(random()) / static_cast<double>(std::minstd_rand::max());
}

struct Row {
  Shape shape;
  Cost first, burst, loaded, training;
  double efficiency = 0, peer_efficiency = 0, peer_gather_efficiency = 0;
  Time peer_cached = 0, peer_gathered = 0;
  double peer_messages = 0, peer_bytes = 0, peer_gathered_bytes = 0;
  int peer_cycles = 0;
};

Row simulate(const Options& o, int ranks, int arity) {
  Row row;
  row.shape = {ranks, o.per_node, arity, o.tensors, o.bytes};
  const Network net;
  const int nodes = row.shape.nodes();
  Cluster cluster(row.shape, net);
  const auto burst = [&](int rank, int tensor) {
    return 20e3 * draw(static_cast<unsigned>(rank), 1) + 50e3 * tensor / o.tensors;
  };
  const auto at_once = [](double) { return Time{1000}; };
  row.first = cluster.step(burst, at_once);
  row.burst = cluster.step(burst, at_once);
  const auto carry = [&](double bytes) { return net.allreduce(nodes, bytes); };
  row.loaded = cluster.step(burst, carry);

  const Peer peer;
  row.peer_cached = peer.cached(net, ranks, o.per_node);
  row.peer_gathered = peer.gathered(net, ranks, o.tensors);
  row.peer_messages = peer.cached_messages(ranks, o.per_node);
  row.peer_bytes = row.peer_messages * static_cast<double>(peer.vector_bytes());
  row.peer_gathered_bytes = peer.gathered_bytes(ranks, o.tensors);
  if (o.compute_ms <= 0) return row;
  const double compute = o.compute_ms * 1e6;
  const auto slow = [](int rank) { return 1 + 0.005 * draw(static_cast<unsigned>(rank), 2); };
  const auto training = [&](int rank, int tensor) {
    return slow(rank) * compute * (1.0 / 3 + 2.0 / 3 * (tensor + 1) / o.tensors);
  };
  row.training = cluster.step(training, carry);
  int slowest = 0;
  for (int r = 1; r < ranks; ++r)
    if (slow(r) > slow(slowest)) slowest = r;
  const Time ideal = slow(slowest) * compute;
  row.efficiency = ideal / row.training.last_finished;

  std::vector<Time> ready;
  for (int i = 0; i < o.tensors; ++i) ready.push_back(training(slowest, i));
  const Peer::Step cached = peer.step(ready, o.bytes, carry, net, row.shape, true);
  const Peer::Step gathered = peer.step(ready, o.bytes, carry, net, row.shape, false);
  row.peer_efficiency = ideal / cached.ends;
  row.peer_gather_efficiency = ideal / gathered.ends;
  row.peer_cycles = cached.cycles;
  return row;
}

void print(const Row& r) {
  std::printf(
      "%7d %6d %3d | %8.1f %5d %6zu | %5d %6zu | %8.1f %5d %8zu | %4d %5d %6zu %6.3f | %8.1f %6.0f %7.0f %6.3f | %8.1f "
      "%9.1f "
      "%6.3f\n",
      r.shape.ranks, r.shape.nodes(), r.shape.arity, (r.burst.last_published - r.burst.last_submitted) / 1e3,
      r.burst.most_messages, r.burst.most_bytes, r.loaded.most_messages, r.loaded.most_bytes,
      r.first.last_published / 1e3, r.first.most_messages, r.first.most_bytes, r.training.batches,
      r.training.most_messages, r.training.most_bytes, r.efficiency, r.peer_cached / 1e3, r.peer_messages, r.peer_bytes,
      r.peer_efficiency, r.peer_gathered / 1e3, r.peer_gathered_bytes / 1e6, r.peer_gather_efficiency);
}

void print_json(const Row& r, bool last) {
  std::printf(
      "  {\"ranks\":%d,\"nodes\":%d,\"arity\":%d,\"burst_us\":%.1f,\"burst_messages\":%d,\"burst_bytes\":%zu,"
      "\"loaded_messages\":%d,\"loaded_bytes\":%zu,"
      "\"first_us\":%.1f,\"first_messages\":%d,\"first_bytes\":%zu,\"training_batches\":%d,\"training_messages\":%d,"
      "\"training_bytes\":%zu,\"efficiency\":%.4f,\"horovod_cached_us\":%.1f,\"horovod_cached_messages\":%.0f,"
      "\"horovod_cached_bytes\":%.0f,\"horovod_efficiency\":%.4f,\"horovod_gathered_us\":%.1f,"
      "\"horovod_gathered_bytes\":%.0f,\"horovod_gathered_efficiency\":%.4f}%s\n",
      r.shape.ranks, r.shape.nodes(), r.shape.arity, (r.burst.last_published - r.burst.last_submitted) / 1e3,
      r.burst.most_messages, r.burst.most_bytes, r.loaded.most_messages, r.loaded.most_bytes,
      r.first.last_published / 1e3, r.first.most_messages, r.first.most_bytes, r.training.batches,
      r.training.most_messages, r.training.most_bytes, r.efficiency, r.peer_cached / 1e3, r.peer_messages, r.peer_bytes,
      r.peer_efficiency, r.peer_gathered / 1e3, r.peer_gathered_bytes, r.peer_gather_efficiency, last ? "" : ",");
}

/// Checks the bounds that hold at any size; false with a line on stderr.
bool holds(const Row& r) {
  const bool good =
      r.loaded.most_messages <= 64 && r.loaded.most_bytes <= 4096 && (r.training.batches == 0 || r.efficiency >= 0.95);
  if (!good)
    std::fprintf(stderr, "%d ranks: %d messages, %zu bytes, efficiency %.3f\n", r.shape.ranks, r.loaded.most_messages,
                 r.loaded.most_bytes, r.efficiency);
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  Options o = parse(argc, argv);
  if (o.check) {
    o.ranks = {8, 64, 384};
    o.arity = {2, 3};
  }
  if (o.json)
    std::puts("[");
  else
    std::printf(
        "                   |      burst: 1 step       |  with data   |     first step, records   |      training step "
        "       |"
        "  Horovod, cached: 1 cycle        |  gathered at rank 0\n"
        "  ranks  nodes   k |  last us  msgs  bytes |  msgs  bytes |       us  msgs    bytes | bat. msgs   bytes   "
        "eff. |"
        "       us   msgs   bytes   eff. |       us        MB   eff.\n");
  bool good = true;
  for (std::size_t i = 0; i < o.ranks.size(); ++i)
    for (std::size_t j = 0; j < o.arity.size(); ++j) {
      const Row row = simulate(o, o.ranks[i], o.arity[j]);
      o.json ? print_json(row, i + 1 == o.ranks.size() && j + 1 == o.arity.size()) : print(row);
      std::fflush(stdout);
      good &= holds(row);
    }
  if (o.json) std::puts("]");
  return o.check && !good ? 1 : 0;
}
