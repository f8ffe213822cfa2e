/// Disagreement between ranks. Each kind is an error on every rank, and names the tensor, the ranks and both values.
/// The next operation of that name works.
#include <random>

#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

/// The difference of one rank, and the expected text: the field, and both values.
struct Row {
  const char* what;
  hvd_kind kind;
  void (*differ)(hvd_request& q);
  std::vector<const char*> words;
};

const std::int64_t other_shape[] = {6}, flat_shape[] = {2, 2}, columns[] = {4, 3};

const Row rows[] = {
    {"shape", HVD_ALLREDUCE, [](hvd_request& q) { q.shape = other_shape; }, {"shape", "[4]", "[6]"}},
    {"dimensions", HVD_ALLREDUCE, [](hvd_request& q) { q.shape = flat_shape, q.ndim = 2; }, {"shape", "[4]", "[2, 2]"}},
    {"dtype", HVD_ALLREDUCE, [](hvd_request& q) { q.dtype = HVD_I32; }, {"dtype", "float32", "int32"}},
    {"op", HVD_ALLREDUCE, [](hvd_request& q) { q.reduce = HVD_MAX; }, {"reduce op", "Sum", "Max"}},
    {"prescale",
     HVD_ALLREDUCE,
     [](hvd_request& q) { q.prescale = 0.5, q.postscale = 1; },
     {"prescale factor", "0.5", "1"}},
    {"postscale",
     HVD_ALLREDUCE,
     [](hvd_request& q) { q.prescale = 1, q.postscale = 3; },
     {"postscale factor", "1", "3"}},
    {"kind", HVD_ALLREDUCE, [](hvd_request& q) { q.kind = HVD_BROADCAST; }, {"allreduce", "broadcast"}},
    {"root", HVD_BROADCAST, [](hvd_request& q) { q.root = 1; }, {"root rank", "0", "1"}},
    {"dtype of a broadcast", HVD_BROADCAST, [](hvd_request& q) { q.dtype = HVD_BF16; }, {"float32", "bfloat16"}},
    {"dtype of 8-bit floats",
     HVD_ALLREDUCE,
     [](hvd_request& q) { q.dtype = HVD_F8E4M3; },
     {"dtype", "float32", "float8_e4m3fn"}},
    {"shape of a broadcast", HVD_BROADCAST, [](hvd_request& q) { q.shape = other_shape; }, {"[4]", "[6]"}},
    {"columns of an allgather",
     HVD_ALLGATHER,
     [](hvd_request& q) { q.shape = columns, q.ndim = 2; },
     {"shape", "[*]", "[*, 3]"}},
    {"dtype of an allgather", HVD_ALLGATHER, [](hvd_request& q) { q.dtype = HVD_U8; }, {"float32", "uint8"}},
    {"op of a reducescatter",
     HVD_REDUCESCATTER,
     [](hvd_request& q) { q.reduce = HVD_AVERAGE; },
     {"reduce op", "Sum", "Average"}},
};

/// All ranks do the same, except one.
void disagree(Rank& rank, const Row& row, int odd) {
  float in[16] = {}, out[16] = {};
  hvd_request q = Rank::request(row.kind, "layer.weight", {4}, in, row.kind == HVD_ALLGATHER ? nullptr : out);
  if (row.kind == HVD_REDUCESCATTER) q.out = nullptr;
  const hvd_request same = q;
  for (int round = 0; round < 2; ++round) {
    hvd_request mine = same;
    if (rank.rank() == odd) row.differ(mine);
    if (mine.kind == HVD_BROADCAST) mine.out = out;
    std::string text;
    EXPECT(rank.finish(rank.submit(mine), &text) == HVD_MISMATCH);
    EXPECT(text.find("'layer.weight'") != std::string::npos);
    EXPECT(text.find("rank " + std::to_string(odd)) != std::string::npos);
    EXPECT(text.find(odd == 0 ? "1" : "0") != std::string::npos);  // and the rank that disagrees
    for (const char* word : row.words)
      if (text.find(word) == std::string::npos) throw std::runtime_error("'" + text + "' lacks " + word);
    EXPECT(rank.finish(rank.submit(same)) == HVD_OK);  // by record, then by bit
    EXPECT(rank.finish(rank.submit(same)) == HVD_OK);
  }
}

}  // namespace

TEST_CASE("mismatch: every kind is told on every rank, and then it goes on") {
  for (const Row& row : rows) {
    CAPTURE(row.what);
    run_world(2, 0, [&](Rank& rank) { disagree(rank, row, 1); });
    run_world(3, 0, [&](Rank& rank) { disagree(rank, row, 0); });
    run_world(4, 2, [&](Rank& rank) { disagree(rank, row, 2); });
  }
}

TEST_CASE("mismatch: one in a group fails the group, on every rank, and nothing else") {
  for (int per_node : {0, 2})
    run_world(4, per_node, [](Rank& rank) {
      float data[3][8] = {}, alone[4] = {1, 1, 1, 1};
      for (int round = 0; round < 4; ++round) {
        core::Operation& other =
            rank.submit(Rank::request(HVD_ALLREDUCE, "not of the group", {4}, alone, alone, HVD_F32, HVD_MAX));
        std::vector<hvd_request> qs;
        const char* names[] = {"g.0", "g.1", "g.2"};
        for (int i = 0; i < 3; ++i) {
          qs.push_back(Rank::request(HVD_ALLREDUCE, names[i], {8}, data[i], data[i]));
          if (i == round % 3 && rank.rank() == 3) qs.back().dtype = HVD_I32;
        }
        bool named = false;
        for (core::Operation* op : rank.submit_group(qs)) {
          std::string text;
          EXPECT(rank.finish(*op, &text) == HVD_MISMATCH);
          named |= text.find("'g." + std::to_string(round % 3) + "'") != std::string::npos;
        }
        EXPECT(named);
        EXPECT(rank.finish(other) == HVD_OK && alone[3] == 1);
        for (auto& q : qs) q.dtype = HVD_F32;
        for (core::Operation* op : rank.submit_group(qs)) EXPECT(rank.finish(*op) == HVD_OK);
      }
    });
}

TEST_CASE("mismatch: a group on one rank, single tensors or another group of the same names on others") {
  for (const Split& s : {Split{2, 0}, Split{3, 0}, Split{4, 2}, Split{3, 1}})
    run_world(
        s.size, s.per_node,
        [](Rank& rank) {
          std::mt19937 random(static_cast<unsigned>(rank.rank() * 7919 + rank.size()));
          float data[4] = {};
          const char* names[] = {"a", "b", "c", "d"};
          auto request = [&](int i) { return Rank::request(HVD_ALLREDUCE, names[i], {1}, &data[i], &data[i]); };
          auto grouped = [&](std::vector<int> which) {
            std::vector<hvd_request> qs;
            for (int i : which) qs.push_back(request(i));
            return rank.submit_group(qs);
          };
          auto singly = [&](std::vector<int> which) {
            std::vector<core::Operation*> ops;
            for (int i : which) {
              try {
                ops.push_back(&rank.submit(request(i)));
              } catch (const Error& e) {  // the others failed before this rank submitted the rest
                EXPECT(e.code == Code::mismatch && std::string(e.what()).find("group") != std::string::npos);
              }
              if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
            }
            return ops;
          };
          for (int round = 0; round < 36 / slower; ++round) {
            for (float& x : data) x = 1;
            const int mode = round % 6;
            const bool first = rank.rank() == round / 6 % rank.size();
            std::vector<int> order = {0, 1, 2};
            if (mode % 2) std::shuffle(order.begin(), order.end(), random);
            std::vector<core::Operation*> ops;
            if (mode == 0 || mode == 3) {  // all agree
              ops = mode == 0 ? singly(order) : grouped({0, 1, 2});
            } else if (mode < 5) {
              ops = first ? grouped({0, 1, 2}) : singly(order);
            } else {  // c is in a group with d on another rank, which no other rank has
              ops = first ? grouped({0, 1, 2}) : grouped({2, 3});
            }
            for (core::Operation* op : ops) {
              std::string text;
              const int status = rank.finish(*op, &text);
              if (status != (mode == 0 || mode == 3 ? HVD_OK : HVD_MISMATCH))
                throw std::runtime_error("round " + std::to_string(round) + ": " + std::to_string(status) + text);
              if (status != HVD_OK) EXPECT(text.find("group") != std::string::npos);
            }
            if (mode == 0 || mode == 3) EXPECT(data[1] == static_cast<float>(rank.size()));
          }
        },
        {}, s.per_node ? 200'000 : 0);
}

TEST_CASE("threads: eight of a rank submit two hundred tensors each") {
  run_world(3, 0, [](Rank& rank) {
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        std::vector<std::vector<float>> data;
        std::vector<core::Operation*> ops;
        for (int i = 0; i < 200; ++i) {
          data.emplace_back(static_cast<std::size_t>(1 + (t * 31 + i * 97) % 400), 1.0f);
          const std::string name = "t" + std::to_string(t) + "." + std::to_string(i % 50);
          if (i >= 50)
            wrong += rank.finish(*ops[static_cast<std::size_t>(i - 50)]) != HVD_OK;  // the name is free again
          ops.push_back(
              &rank.submit(Rank::request(HVD_ALLREDUCE, name.c_str(), {static_cast<std::int64_t>(data.back().size())},
                                         data.back().data(), data.back().data())));
        }
        for (std::size_t i = 150; i < 200; ++i) wrong += rank.finish(*ops[i]) != HVD_OK;
        for (const auto& d : data)
          for (float x : d) wrong += x != 3;
      });
    for (std::thread& t : threads) t.join();
    EXPECT(wrong == 0);
  });
}
