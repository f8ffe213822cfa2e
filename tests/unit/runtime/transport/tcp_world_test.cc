/// The engine over the TCP transport.
#include "tcp_ranks.h"
#include "transport/tcp/tcp_transport.h"
#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

/// Like run_world(), but the ranks of different nodes are connected by TCP.
void run_tcp_world(int size, int per_node, const std::function<void(Rank&)>& f,
                   transport::tcp::TcpOptions (*way)(int) = by_tcp) {
#if defined(__SANITIZE_THREAD__)
  per_node = 1;  // each thread maps its node's memory at another address: no order between them is seen
#endif
  core::Config config;
  config.set("HVD_RANKS_PER_NODE", per_node);
  config.set("HVD_INIT_TIMEOUT", 120);
  const auto world = transport::LoopbackWorld::make(size);
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::string failure;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        const auto meets = world->open(r);
        Rank rank(open_tcp(*meets, way(r)).transport, r, config);
        f(rank);
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex);
        failure += "rank " + std::to_string(r) + ": " + e.what() + "\n";
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(failure == "");
}

void sum_all(Rank& rank, std::size_t elements, int round) {
  std::vector<float> data(elements);
  for (std::size_t i = 0; i < elements; ++i)
    data[i] = static_cast<float>((rank.rank() + 1) * static_cast<int>(i % 13 + 1) + round);
  const std::string name = "sum." + std::to_string(elements);
  EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, name.c_str(), {static_cast<std::int64_t>(elements)}, data.data(),
                                data.data())) == HVD_OK);
  const int ranks = rank.size(), total = ranks * (ranks + 1) / 2;
  for (std::size_t i = 0; i < elements; ++i)
    EXPECT(data[i] == static_cast<float>(total * static_cast<int>(i % 13 + 1) + round * ranks));
}

}  // namespace

TEST_CASE("sums over nodes that TCP connects") {
  for (const Split s : worlds({{2, 1}, {3, 1}, {4, 2}, {3, 2}}))
    for (const auto way : {by_tcp, by_tls})
      run_tcp_world(
          s.size, s.per_node,
          [](Rank& rank) {
            for (int round = 0; round < 3; ++round)
              for (const std::size_t n : {1u, 1000u, 9000u, 300001u}) sum_all(rank, n, round);
          },
          way);
}

TEST_CASE("idle ranks are woken by a message") {
  run_tcp_world(2, 1, [](Rank& rank) {
    for (int round = 0; round < 5; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(round % 2 ? 700 : 20));
      sum_all(rank, 1, round);
    }
  });
}

TEST_CASE("callers that do not wait: the engines' threads do it all") {
  run_tcp_world(4, 2, [](Rank& rank) {
    for (int round = 0; round < 50 / slower; ++round) {
      std::vector<std::vector<float>> data(8, std::vector<float>(5000, 1.0f));
      std::vector<core::Operation*> ops;
      for (std::size_t i = 0; i < data.size(); ++i)
        ops.push_back(&rank.submit(
            Rank::request(HVD_ALLREDUCE, ("t" + std::to_string(i)).c_str(), {5000}, data[i].data(), data[i].data())));
      for (core::Operation* op : ops) {
        while (!op->done()) std::this_thread::sleep_for(std::chrono::microseconds(300));
        EXPECT(rank.finish(*op) == HVD_OK);
      }
      for (const auto& d : data) EXPECT(d.front() == 4.0f && d.back() == 4.0f);
    }
  });
}

TEST_CASE("a rank leaves while another waits") {
  run_tcp_world(2, 1, [](Rank& rank) {
    sum_all(rank, 100, 0);
    if (rank.rank() == 1) return;
    float x = 1;
    std::string text;
    EXPECT(rank.try_run(Rank::request(HVD_ALLREDUCE, "alone", {1}, &x, &x), &text, 20) == HVD_PEER_LOST);
    EXPECT(text.find("rank 1") != std::string::npos);
  });
}
