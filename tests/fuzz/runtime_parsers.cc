/// Parsers of the messages between ranks: the tree's messages, the queues in shared memory, the descriptions of GPUs.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>

#include "gpu/nccl/agreement.h"
#include "negotiate/gather.h"
#include "negotiate/idset.h"
#include "negotiate/tree.h"
#include "parsers.h"

namespace hvd::fuzz {
namespace {

using namespace negotiate;

constexpr int nodes = 5, per_node = 2;
constexpr std::uint32_t ids = 128;

std::vector<std::vector<int>> ranks_of_nodes() {
  std::vector<std::vector<int>> all;
  for (int n = 0; n < nodes; ++n) all.push_back({n * per_node, n * per_node + 1});
  return all;
}

/// The root of a tree of nodes of two ranks, its coordinator, and the receiver of the coordinator's commands.
struct Root {
  TreeNode node{TreeShape{nodes, 3}, 0, ranks_of_nodes(), ids};
  std::uint64_t commands = 0;
  Coordinator coordinator{{.ranks = nodes * per_node, .ids = ids, .capacity = 8},
                          [this](Command type, std::string_view body) {
                            ++commands;
                            node.passing(type, body);
                          }};
};

/// Messages to the root: u8 node, u16 length, bytes, and so on.
void up(const std::string& s) {
  Root root;
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(s[at]); };
  for (std::size_t at = 0; at + 3 <= s.size();) {
    const int node = byte(at) % (nodes + 1);
    const std::size_t size = std::min<std::size_t>(byte(at + 1) | byte(at + 2) << 8, s.size() - at - 3);
    try {
      root.node.from_below(node, std::string_view(s).substr(at + 3, size));
    } catch (const std::runtime_error&) { return; }
    root.node.drain(root.coordinator);
    root.coordinator.decide(root.commands, [] { return std::int64_t{1}; });
    root.node.held(
        [](std::uint32_t, const std::string&, const RankSet& here) { here.complement(nodes * per_node).text(); });
    at += 3 + size;
  }
}

Record record_of(const std::string& name, std::int64_t length, std::uint8_t kind = 0) {
  Record r;
  r.signature.kind = kind;
  r.signature.ndim = 2;
  r.signature.dims[0] = length, r.signature.dims[1] = 3;
  r.name = name;
  return r;
}

std::string message(int node, const std::string& body) {
  return std::string{static_cast<char>(node), static_cast<char>(body.size() & 255),
                     static_cast<char>(body.size() >> 8)} +
         body;
}

std::vector<std::string> up_samples() {
  const auto tree = ranks_of_nodes();
  std::string equal, other, ended;
  for (int n = nodes - 1; n >= 0; --n) {
    TreeNode node(TreeShape{nodes, 20}, n, tree, ids);
    for (const int rank : tree[static_cast<std::size_t>(n)])
      for (const char* name : {"x", "y"}) node.record(rank, record_of(name, rank == 7 ? 4 : 3));
    node.executed(0);
    equal += message(n, node.up([] { return std::int64_t{1} << 40; }));
    node.record(2 * n, record_of("join", 0, static_cast<std::uint8_t>(Kind::join)));
    node.waits(no_slot, "z", RankSet(2 * n));
    other += message(n, node.up([] { return std::int64_t{1} << 41; }));
    node.gone({2 * n, 5, "has shut down"});
    ended += message(n, node.up([] { return std::int64_t{1} << 42; }));
  }
  return {equal, other, equal + other + ended, ended};
}

/// Commands from the parent node: u8 type, u16 length, body, and so on.
void commands(const std::string& s) {
  TreeNode node(TreeShape{nodes, 3}, 1, ranks_of_nodes(), ids);
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(s[at]); };
  for (std::size_t at = 0; at + 3 <= s.size();) {
    const std::size_t size = std::min<std::size_t>(byte(at + 1) | byte(at + 2) << 8, s.size() - at - 3);
    const std::string_view body = std::string_view(s).substr(at + 3, size);
    try {
      const auto type = static_cast<Command>(byte(at));
      node.passing(type, body);
      node.ready(byte(at) % ids);
      ByteReader r(body);
      if (type == Command::batch) r.get<std::uint64_t>(), get_ids(r, ids, [](std::uint32_t id) { hold(id < ids); });
      if (type == Command::stand_in) r.index(ids), hold(read_signature(r.rest()).payload_bytes() >= 0);
    } catch (const std::runtime_error&) { return; }
    node.held([](std::uint32_t, const std::string&, const RankSet& here) { hold(here.count() > 0); });
    at += 3 + size;
  }
  node.up([] { return std::int64_t{1}; });
}

std::vector<std::string> command_samples() {
  std::string all;
  Coordinator coordinator({.ranks = 2, .ids = ids}, [&](Command type, std::string_view body) {
    all += message(static_cast<int>(type), std::string(body));
  });
  const auto announce = [&](const char* name, std::int64_t second) {
    for (int rank : {0, 1}) {
      const Record r = record_of(name, rank ? second : 3);
      coordinator.record(RankSet(rank), 0, r.signature, r.name);
    }
    coordinator.decide(1000, [] { return std::int64_t{0}; });
  };
  announce("x", 3);
  announce("y", 3);
  announce("x", 4);
  coordinator.record(RankSet(0), 5, record_of("join", 0, static_cast<std::uint8_t>(Kind::join)).signature, "join");
  announce("x", 3);
  coordinator.gone(1, 5, "gone");
  return {all};
}

void rank_set(const std::string& s) {
  const RankSet among = RankSet::of({0, 1, 2, 3, 8, 9, 10, 11, 12, 40});
  try {
    ByteReader r(s);
    const RankSet set = RankSet::get(r, among);
    ByteWriter w;
    set.put(w);
    ByteReader again(w.bytes());
    hold(RankSet::get(again, among) == set && set.count() <= among.count());
    set.text(3);
  } catch (const std::runtime_error&) {}
}

std::vector<std::string> rank_set_samples() {
  ByteWriter w;
  RankSet::of({1, 2, 8, 40}).put(w);
  return {w.bytes()};
}

/// The shared queues of a node whose other rank writes arbitrary bytes. The seed: u64 posted, u64 taken, the ring of
/// records, a command's header (u64), the ring of commands.
void queues(const std::string& s) {
  memory::Geometry g;
  g.ranks = 2, g.words = 2, g.chunk_bytes = 64, g.eager_bytes = 64, g.record_bytes = 1024, g.command_bytes = 1024;
  memory::Node node(g, 1);
  const std::shared_ptr<void> memory(std::aligned_alloc(4096, node.total_bytes()), std::free);
  std::memset(memory.get(), 0, node.total_bytes());
  node.attach(memory);
  std::string bytes = s;
  bytes.resize(std::max<std::size_t>(s.size(), 16));
  std::uint64_t posted, taken;
  std::memcpy(&posted, bytes.data(), 8), std::memcpy(&taken, bytes.data() + 8, 8);
  node.board(0).posted = posted % 2048 < 1024 ? posted % 2048 : posted;
  node.taken(0) = taken % 4 ? 0 : taken;
  std::memcpy(node.records(0), bytes.data() + 16, std::min<std::size_t>(bytes.size() - 16, 1024));
  std::memcpy(node.commands(), bytes.data() + 16, std::min<std::size_t>(bytes.size() - 16, 1024));
  Gather gather(node);
  try {
    for (int i = 0; i < 3; ++i)
      gather.poll([](std::uint32_t) {},
                  [](int, const Record& r) {
                    hold(r.signature.bytes() <= sizeof(Signature) && r.name.size() <= longest_name);
                  });
  } catch (const std::exception&) {}
  memory::CommandReader reader(node);
  std::string body;
  try {
    for (int i = 0; i < 100 && reader.read(body); ++i) {}
  } catch (const std::exception&) {}
  node.taken(1) = taken;
  try {
    memory::post_records(node, s);
  } catch (const std::exception&) {}
}

std::vector<std::string> queue_samples() {
  std::string records;
  append_record(records, 1, record_of("x", 3).signature, "x");
  append_record(records, 2, record_of("name", 5).signature, "name");
  ByteWriter w;
  w.put(static_cast<std::uint64_t>(records.size())).put(std::uint64_t{0}).raw(records);
  ByteWriter commands;
  commands.put(std::uint64_t{64})
      .put(std::uint64_t{0})
      .put(std::uint64_t{2} << 32 | 12)
      .raw("abcdefghijkl")
      .raw("\0\0\0\0");
  return {w.bytes(), commands.bytes()};
}

/// The descriptions of GPUs that other ranks send: complete ones, and as many as the input holds.
void cards(const std::string& s) {
  std::vector<nccl::DeviceInfo> all(std::clamp<std::size_t>(s.size() / sizeof(nccl::DeviceInfo), 1, 8));
  std::memcpy(static_cast<void*>(all.data()), s.data(), std::min(s.size(), all.size() * sizeof(nccl::DeviceInfo)));
  std::transform(all.begin(), all.end(), all.begin(), nccl::sound);
  std::vector<int> ranks;
  for (std::size_t r = 0; r < all.size(); ++r) ranks.push_back(static_cast<int>(r));
  const std::vector<std::size_t> of_nodes = {1, all.size() - 1};
  const nccl::GpuDecision d = nccl::decide(all, ranks, of_nodes);
  hold(d.slots > 0 && d.blocks >= 0);
}

std::vector<std::string> card_samples() {
  std::vector<nccl::DeviceInfo> all(3);
  for (std::size_t r = 0; r < all.size(); ++r) {
    nccl::DeviceInfo& c = all[r];
    c.version = 23007, c.kernels = c.wide = c.splits = 1, c.slots = 2, c.blocks = 4, c.generation = 90;
    c.uuid[0] = 'G', c.uuid[1] = static_cast<char>('0' + r);
  }
  return {std::string(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(nccl::DeviceInfo))};
}

}  // namespace

std::vector<Parser> runtime_parsers() {
  return {{"up", up, up_samples},
          {"commands", commands, command_samples},
          {"rank-set", rank_set, rank_set_samples},
          {"queues", queues, queue_samples},
          {"cards", cards, card_samples}};
}

}  // namespace hvd::fuzz
