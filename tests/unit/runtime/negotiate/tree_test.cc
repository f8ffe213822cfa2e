/// The tree of leaders: its parts alone, then whole worlds with delayed messages.
#include "negotiate/tree.h"

#include <cstring>
#include <functional>
#include <random>
#include <set>

#include "../world_of_threads.h"
#include "negotiate/idset.h"

using namespace hvd;
using namespace hvd::negotiate;
using namespace hvd::testing;

TEST_CASE("negotiate: sets of ids survive the wire, and long runs are short") {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    std::vector<std::uint64_t> words(1 + random() % 40);
    const unsigned how = random() % 4;
    for (std::size_t i = 0; i < words.size() * 64; ++i)
      if (how == 0 ? random() % 2 : how == 1 ? random() % 50 == 0 : how == 2 ? (i / 97) % 2 == 1 : i == round % 64u)
        words[i / 64] |= 1ull << (i % 64);
    ByteWriter w;
    put_ids(w, words);
    std::vector<std::uint64_t> got(words.size());
    std::uint32_t last = 0;
    ByteReader r(w.bytes());
    get_ids(r, static_cast<std::uint32_t>(words.size() * 64), [&](std::uint32_t id) {
      CHECK((id == 0 || id > last || got[0] == 0));
      last = id;
      got[id / 64] |= 1ull << (id % 64);
    });
    REQUIRE(r.empty());
    REQUIRE(got == words);
    REQUIRE(w.bytes().size() <= words.size() * 8 + 6);
  }
  std::vector<std::uint64_t> all(16, ~0ull);
  ByteWriter w;
  put_ids(w, all);
  CHECK(w.bytes().size() <= 5);
  ByteReader r(w.bytes());
  CHECK_THROWS(get_ids(r, 1023, [](std::uint32_t) {}));
}

TEST_CASE("negotiate: sets of ranks") {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::set<int> a, b;
    for (unsigned i = random() % 60; i > 0; --i) a.insert(static_cast<int>(random() % 100));
    for (unsigned i = random() % 60; i > 0; --i) b.insert(static_cast<int>(random() % 100));
    RankSet x = RankSet::of({a.begin(), a.end()}), y = RankSet::of({b.begin(), b.end()});
    x.merge(y);
    a.insert(b.begin(), b.end());
    CHECK(x == RankSet::of({a.begin(), a.end()}));
    CHECK(x.count() == static_cast<int>(a.size()));
    ByteWriter w;
    x.put(w);
    ByteReader r(w.bytes());
    CHECK(RankSet::get(r, RankSet::range(0, 99)) == x);
    ByteReader again(w.bytes());
    if (!x.empty()) CHECK_THROWS(RankSet::get(again, x.complement(100)));
    const RankSet rest = x.complement(100);
    CHECK(rest.count() == 100 - x.count());
    for (int i = 0; i < 100; ++i) CHECK(x.contains(i) != rest.contains(i));
  }
  CHECK(RankSet::of({5, 0, 1, 2}).text() == "ranks 0-2, 5");
  CHECK(RankSet::range(1, 27599).complement(27600).text() == "rank 0");
}

namespace {

/// A tree of nodes without a transport: the test passes each message on.
struct Carried {
  std::vector<std::vector<int>> ranks;
  std::vector<TreeNode> nodes;
  Carried(int count, int arity, int per_node) {
    for (int n = 0; n < count; ++n) {
      ranks.emplace_back();
      for (int l = 0; l < per_node; ++l) ranks.back().push_back(n * per_node + l);
    }
    for (int n = 0; n < count; ++n) nodes.emplace_back(TreeShape{count, arity}, n, ranks, 128);
  }
  void all_pass(Command type, const ByteWriter& w) {
    for (TreeNode& n : nodes) n.passing(type, const_cast<ByteWriter&>(w).bytes());
  }
  void assign(std::uint32_t id, const char* name) {
    ByteWriter w;
    all_pass(Command::assign, w.put(id).put(no_slot).raw(name));
  }
  /// Passes the messages up, from the leaves to the root, one for each node. Returns the number of messages.
  int carry_up() {
    int count = 0;
    for (std::size_t n = nodes.size() - 1; n > 0; --n) {
      const std::string news = nodes[n].up([] { return std::int64_t{1} << 40; });
      if (news.empty()) continue;
      ++count;
      nodes[static_cast<std::size_t>(nodes[n].parent())].from_below(static_cast<int>(n), news);
    }
    return count;
  }
};

Record record_of(const char* name, std::int64_t length) {
  Record r;
  r.signature.ndim = 1;
  r.signature.dims[0] = length;
  r.name = name;
  return r;
}

}  // namespace

TEST_CASE("tree: a message a node, and a thousand equal records are one") {
  for (int arity : {1, 2, 3, 8}) {
    Carried tree(40, arity, 3);
    std::vector<std::string> commands;
    Coordinator coordinator({.ranks = 120, .ids = 128}, [&](Command type, std::string_view body) {
      commands.emplace_back(std::to_string(static_cast<int>(type)) + std::string(body));
    });
    for (int n = 39; n >= 0; --n)
      for (int rank : tree.ranks[static_cast<std::size_t>(n)])
        tree.nodes[static_cast<std::size_t>(n)].record(rank, record_of("x", rank == 77 ? 4 : 3));
    CHECK(tree.carry_up() == 39);
    tree.nodes[0].drain(coordinator);
    REQUIRE(commands.size() == 1);
    CHECK(commands[0].find("[3] on ranks 0-76, 78-119") != std::string::npos);
    CHECK(commands[0].find("[4] on rank 77") != std::string::npos);

    tree.assign(70, "x");
    for (int n = 39; n > 0; --n) tree.nodes[static_cast<std::size_t>(n)].ready(70);
    CHECK(tree.carry_up() == 39);
    int waiting = 0;
    tree.nodes[0].held([&](std::uint32_t id, const std::string& name, const RankSet& here) {
      ++waiting;
      CHECK(id == 70);
      CHECK(name == "x");
      CHECK(here.complement(120).text() == "ranks 0-2");
    });
    CHECK(waiting == 1);
  }
}

TEST_CASE("tree: a record for a name with an id does not wait for the others") {
  Carried tree(7, 2, 1);
  tree.assign(3, "x");
  tree.nodes[6].record(6, record_of("x", 5));
  CHECK(tree.carry_up() == 2);  // through node 2
  ByteWriter evict;
  tree.all_pass(Command::evict, evict.put(std::uint32_t{3}));
  tree.nodes[5].ready(3);  // stale: set before the node saw the command
  CHECK(tree.carry_up() == 0);
  tree.nodes[5].record(5, record_of("x", 5));
  CHECK(tree.carry_up() == 1);  // node 2's own bit is missing
  tree.nodes[2].record(2, record_of("x", 5));
  CHECK(tree.carry_up() == 1);
  int held = 0;
  tree.nodes[2].held([&](std::uint32_t, const std::string&, const RankSet&) { ++held; });
  CHECK(held == 0);
}

TEST_CASE("tree: after a group has failed nothing is held back") {
  Carried tree(3, 2, 1);
  Record r = record_of("x", 5);
  r.signature.group = 99;
  r.signature.group_size = 2;
  tree.nodes[0].record(0, r);
  ByteWriter fail;
  tree.all_pass(Command::fail_group, fail.put(std::uint32_t{HVD_MISMATCH}).put(std::uint64_t{99}).raw("no"));
  tree.nodes[1].record(1, r);  // an old record
  int held = 0;
  for (TreeNode& n : tree.nodes) n.held([&](std::uint32_t, const std::string&, const RankSet&) { ++held; });
  CHECK(held == 0);
  r.executed = 1;
  for (int n = 2; n >= 0; --n) tree.nodes[static_cast<std::size_t>(n)].record(n, r);
  tree.carry_up();
  int agreed = 0;
  Coordinator coordinator({.ranks = 3, .ids = 128},
                          [&](Command type, std::string_view) { agreed += type == Command::assign; });
  tree.nodes[0].drain(coordinator);
  coordinator.decide(0, [] { return 0; });
  CHECK(agreed == 1);
}

TEST_CASE("tree: messages that no node can have sent are refused") {
  Carried tree(7, 2, 1);
  std::mt19937 random(11);
  CHECK_THROWS(tree.nodes[1].from_below(6, ""));
  for (int round = 0; round < 3000; ++round) {
    std::string junk(random() % 40, 0);
    for (char& c : junk) c = static_cast<char>(random() % (round % 2 ? 256 : 16));
    try {
      tree.nodes[0].from_below(1, junk);
    } catch (const std::runtime_error&) {  // the only expected error
    }
  }
}

namespace {

/// The work of all ranks in a round, drawn from a common seed: the same names in another order on every rank.
struct Task {
  std::string name;
  std::int64_t length = 1;
  int odd = -1;    ///< this rank has another length: an error on all
  int group = -1;  ///< submitted together
};

std::vector<Task> tasks_of(std::mt19937& random, int ranks) {
  std::vector<Task> tasks;
  for (int i = 0; i < 12; ++i) {
    if (random() % 4 == 0) continue;
    Task t;
    t.name = "n" + std::to_string(i);
    t.length = 1 + random() % 3 % 2 * (random() % 5000);
    if (random() % 12 == 0) t.odd = static_cast<int>(random() % static_cast<unsigned>(ranks));
    if (i >= 9) t.group = 0;
    tasks.push_back(t);
  }
  return tasks;
}

void carry_out(Rank& rank, const std::vector<Task>& tasks, std::mt19937& mine) {
  std::vector<std::vector<float>> data(tasks.size());
  std::vector<hvd_request> requests;
  bool group_fails = false;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Task& t = tasks[i];
    group_fails |= t.group >= 0 && t.odd >= 0;
    data[i].assign(static_cast<std::size_t>(t.length + (t.odd == rank.rank())), static_cast<float>(rank.rank() + 1));
    requests.push_back(Rank::request(HVD_ALLREDUCE, t.name.c_str(), {static_cast<std::int64_t>(data[i].size())},
                                     data[i].data(), data[i].data()));
  }
  std::vector<std::size_t> order(tasks.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), mine);
  std::vector<core::Operation*> ops(tasks.size());
  bool grouped = false;
  for (std::size_t i : order) {
    if (mine() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(mine() % 300));
    if (tasks[i].group < 0) {
      ops[i] = &rank.submit(requests[i]);
    } else if (!std::exchange(grouped, true)) {
      std::vector<hvd_request> together;
      for (std::size_t j = 0; j < tasks.size(); ++j)
        if (tasks[j].group >= 0) together.push_back(requests[j]);
      const std::vector<core::Operation*> got = rank.submit_group(together);
      for (std::size_t j = 0, k = 0; j < tasks.size(); ++j)
        if (tasks[j].group >= 0) ops[j] = got[k++];
    }
  }
  const float sum = static_cast<float>(rank.size() * (rank.size() + 1)) / 2;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const bool fails = tasks[i].odd >= 0 || (tasks[i].group >= 0 && group_fails);
    std::string text;
    EXPECT(rank.finish(*ops[i], &text) == (fails ? HVD_MISMATCH : HVD_OK));
    if (fails)
      EXPECT(text.find(std::to_string(tasks[i].length)) != std::string::npos || tasks[i].odd < 0);
    else
      EXPECT(data[i].front() == sum && data[i].back() == sum);
  }
}

}  // namespace

TEST_CASE("tree: random operations over random delays, two to sixteen nodes") {
  struct World {
    int ranks, per_node, arity;
    std::uint32_t capacity;
  };
  for (const World& w : {World{2, 1, 0, 1024}, World{4, 2, 1, 6}, World{5, 1, 2, 1024}, World{7, 2, 1, 4},
                         World{9, 1, 3, 8}, World{16, 1, 2, 1024}, World{16, 1, 0, 5}}) {
    CAPTURE(w.ranks);
    CAPTURE(w.arity);
    core::Config config;
    config.set("HVD_TREE_ARITY", w.arity);
    config.set("HOROVOD_CACHE_CAPACITY", w.capacity);
    run_world(
        w.ranks, w.per_node,
        [&](Rank& rank) {
          std::mt19937 common(static_cast<unsigned>(w.ranks)), mine(static_cast<unsigned>(rank.rank()) + 1000);
          for (int round = 0; round < 12 / slower; ++round) carry_out(rank, tasks_of(common, rank.size()), mine);
        },
        config, 400'000);
  }
}

TEST_CASE("tree: a rank of any node that shuts down ends the waits of all") {
  for (int leaver : {0, 1, 2, 3, 9, 15}) {
    core::Config config;
    config.set("HVD_TREE_ARITY", 2);
    run_world(
        16, 2,
        [&](Rank& rank) {
          float x = 1;
          EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "x", {1}, &x, &x)) == HVD_OK);
          if (rank.rank() == leaver) return;
          std::string text;
          EXPECT(rank.try_run(Rank::request(HVD_ALLREDUCE, "x", {1}, &x, &x), &text, 120) == HVD_PEER_LOST);
          EXPECT(text.find("shut down") != std::string::npos || text.find("rank") != std::string::npos);
        },
        config, 100'000);
  }
}

TEST_CASE("tree: the stall check names the ranks of other nodes that are missing") {
  core::Config config;
  config.set("HVD_TREE_ARITY", 2);
  config.set("HOROVOD_STALL_CHECK_TIME_SECONDS", slower * 0.6);  // a leader's report counts for five times that long
  config.set("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", slower * 3);
  run_world(
      14, 2,
      [](Rank& rank) {
        float x = 1;
        EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "x", {1}, &x, &x)) == HVD_OK);
        const bool missing = rank.rank() == 7 || rank.rank() == 12 || rank.rank() == 13;
        std::string text;
        if (!missing) {
          EXPECT(rank.try_run(Rank::request(HVD_ALLREDUCE, "x", {1}, &x, &x), &text, 60) == HVD_TIMEOUT);
          // Reports of subtrees arrive at different times: none of them may stand for all.
          if (text.find("ranks 7, 12-13") == std::string::npos) throw std::runtime_error("not the missing: " + text);
        } else {
          while (rank.engine().set().broken().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
      },
      config);
}

namespace {

/// A message up with one record, which `change` may make invalid.
std::string claim_message(const std::function<void(ByteWriter&, std::string& blob)>& ranks_and_blob) {
  const Record r = record_of("x", 3);
  std::string blob(r.signature.blob());
  ByteWriter ranks;
  ranks_and_blob(ranks, blob);
  ByteWriter w;
  w.put(std::uint8_t{2}).varint(0).varint(1).varint(0).varint(blob.size()).raw(blob).varint(1).raw("x");
  return w.raw(ranks.bytes()).bytes();
}

}  // namespace

TEST_CASE("tree: what no leader can have written is refused") {
  const auto refused = [](const std::string& message) {
    Carried tree(4, 3, 2);
    CHECK_THROWS_AS(tree.nodes[0].from_below(1, message), std::runtime_error);
  };
  const auto ranks = [](std::initializer_list<int> of) {
    return [of](ByteWriter& w, std::string&) { RankSet::of(of).put(w); };
  };
  Carried good(4, 3, 2);
  good.nodes[0].from_below(1, claim_message(ranks({2, 3})));
  refused(claim_message(ranks({})));
  refused(claim_message(ranks({2, 4})));  // rank 4 is on another node
  refused(claim_message(ranks({1000})));
  refused(claim_message([](ByteWriter& w, std::string&) { w.varint(1).varint(0).varint(~0ull); }));
  refused(claim_message([](ByteWriter& w, std::string&) { w.varint(1).varint(~0ull).varint(~0ull); }));
  for (const std::size_t at : {0u, 1u, 2u, 3u})  // kind, dtype, reduce, ndim
    refused(claim_message([at](ByteWriter& w, std::string& blob) {
      RankSet(2).put(w);
      blob[at] = '\xff';
    }));
  refused(claim_message([](ByteWriter& w, std::string& blob) {
    RankSet(2).put(w);
    blob += std::string(64 * 1024, 'x');
  }));
  refused(claim_message([](ByteWriter& w, std::string& blob) {
    RankSet(2).put(w);
    blob.resize(3);
  }));
  ByteWriter w;
  refused(w.put(std::uint8_t{0}).varint(1).bytes());  // the message confirms a command that did not exist
  refused(TreeNode::departure({7, 1, ""}));           // rank 7 is not this node's
  refused(TreeNode::departure({-1, 1, ""}));
  for (const auto& [type, body] : {std::pair{Command::assign, std::string("\xff\xff\xff\x7f....x", 9)},
                                   {Command::evict, std::string("\x80\0\0\0", 4)},
                                   {static_cast<Command>(0), std::string(8, 0)},
                                   {static_cast<Command>(99), std::string(8, 0)},
                                   {Command::fail, std::string(1 << 20, 'x')}}) {
    Carried tree(4, 3, 2);
    CHECK_THROWS_AS(tree.nodes[1].passing(type, body), std::runtime_error);
  }
}

TEST_CASE("negotiate: records that none can be") {
  const Record r = record_of("x", 3);
  std::string sound;
  append_record(sound, 5, r.signature, "x");
  const auto refused = [&](std::size_t at, const std::string& by) {
    std::string bytes = sound;
    bytes.replace(at, by.size(), by);
    std::string_view left = bytes;
    Record got;
    CHECK_THROWS_AS(next_record(left, got), std::runtime_error);
  };
  refused(0, std::string("\xff\xff\xff\xff"));      // 4 GiB
  refused(12, std::string("\xff\xff\0\0", 4));      // the signature's length
  refused(16 + 3, "\xff");                          // its dimensions
  const std::int64_t huge = std::int64_t{1} << 62;  // and the check itself does not overflow
  refused(16 + sizeof(SignatureHead), std::string(reinterpret_cast<const char*>(&huge), sizeof huge));
  std::string_view left = sound;
  Record got;
  REQUIRE(next_record(left, got));
  CHECK(got.signature == r.signature);
}

TEST_CASE("tree: hashes of results travel with other news, in order, and cause no message") {
  const std::vector<std::vector<int>> ranks{{0}, {1}, {2}};
  TreeNode root({3, 2}, 0, ranks, 64), child({3, 2}, 2, ranks, 64);
  const auto now = [] { return std::int64_t{1} << 40; };
  child.result_word(7);
  child.result_word(0xffffffff);
  CHECK(child.up(now).empty());
  Record record;
  record.name = "t";
  child.record(2, record);
  root.from_below(2, child.up(now));
  const std::vector<ResultWords> words = root.take_words();
  REQUIRE(words.size() == 1);
  CHECK(words[0].child == 1);
  CHECK(words[0].words == std::vector<std::uint32_t>{7, 0xffffffff});
  CHECK(root.take_words().empty());
  ByteWriter w;
  w.put(std::uint8_t{32}).varint(0).varint(1ull << 40).put(1);
  CHECK_THROWS(root.from_below(2, w.bytes()));
}
