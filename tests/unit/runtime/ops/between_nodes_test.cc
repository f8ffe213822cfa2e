/// The exchange between nodes: every number of nodes, every plan, the same bits.
#include "ops/allreduce/between_nodes.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "transport/loopback.h"
#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::ops;

namespace {

/// Networks, each of which favours one kind of plan.
const NetworkModel slow_links{1, 1, 1000, 1}, far{1e9, 1, 1e-3, 1e-3}, dear_messages{1, 1e7, 1e-3, 1e-3};

struct NodeTensor {
  DType dtype;
  std::size_t elements;
  bool average = false;
};

using Bytes = std::vector<unsigned char>;

Bytes numbers(const NodeTensor& t, int node) {
  std::mt19937 random(static_cast<unsigned>(node) * 7919 + static_cast<unsigned>(t.elements));
  Bytes bytes(t.elements * element_bytes(t.dtype));
  for (std::size_t i = 0; i < t.elements; ++i) {
    if (t.dtype == DType::f32 || t.dtype == DType::f64) {
      const float x = std::ldexp(static_cast<float>(random() % 20011) - 9999.0f, static_cast<int>(random() % 20) - 10);
      const double wide = x;
      if (t.dtype == DType::f32) std::memcpy(&bytes[4 * i], &x, 4);
      if (t.dtype == DType::f64) std::memcpy(&bytes[8 * i], &wide, 8);
    } else {
      const auto x = static_cast<std::uint16_t>((0x3800 + random() % 0x400) | (random() & 0x8000));
      std::memcpy(&bytes[2 * i], &x, 2);
    }
  }
  return bytes;
}

Item item_of(const NodeTensor& t, int nodes, const Bytes& in, Bytes& out) {
  Item item;
  item.in = in.data();
  item.out = out.data();
  item.bytes = in.size();
  item.element_bytes = element_bytes(t.dtype);
  item.reduce = reducer(t.dtype, Reduce::sum);
  if (t.dtype == DType::f16) item.wide = wide_reducer(t.dtype, Reduce::sum);
  if (t.average) item.scale.divisor = nodes;
  return item;
}

/// The order of node_order.h, by a plain recursion.
std::vector<float> sum_in_order(const std::vector<std::vector<float>>& x) {
  std::vector<std::vector<float>> level = x;
  for (const int f : levels_of_order(static_cast<int>(x.size()), false)) {
    std::vector<std::vector<float>> next;
    for (std::size_t g = 0; g < level.size(); g += static_cast<std::size_t>(f)) {
      next.push_back(level[g]);
      for (std::size_t k = 1; k < static_cast<std::size_t>(f); ++k)
        for (std::size_t i = 0; i < next.back().size(); ++i) next.back()[i] += level[g + k][i];
    }
    level = next;
  }
  return level.front();
}

/// The memory of slices and their results.
enum class Place {
  ring,          ///< in one buffer; all chunks are equal
  tensor,        ///< in the tensor, if it is alone
  tensor_or_own  ///< cut at tensors: in the tensor; slices of several tensors are in the exchange's own memory
};

/// One rank a node, all in this thread.
class Nodeful {
 public:
  Nodeful(int nodes, const NetworkModel& model) : world_(transport::LoopbackWorld::make(nodes)) {
    for (int n = 0; n < nodes; ++n) {
      at_.push_back(std::make_unique<At>());
      At& at = *at_.back();
      for (int k = 0; k < nodes; ++k) at.nodes.ranks.push_back({k});
      at.nodes.node = n;
      at.transport = world_->open(n);
      at.exchange = std::make_unique<BetweenNodes>(at.nodes, *at.transport, model);
    }
  }
  const ExchangePlan& plan() const { return at_.front()->exchange->plan(); }

  /// Returns the results: [nodes][tensors].
  std::vector<std::vector<Bytes>> run(const std::vector<NodeTensor>& tensors, Place place,
                                      std::size_t chunk = 64 << 10) {
    const int count = static_cast<int>(at_.size());
    std::vector<std::vector<Bytes>> in, out;
    for (int n = 0; n < count; ++n) {
      At& at = *at_[static_cast<std::size_t>(n)];
      at.stream.clear();
      in.emplace_back(), out.emplace_back();
      for (const NodeTensor& t : tensors) {
        in.back().push_back(numbers(t, n));
        out.back().emplace_back(in.back().back().size());
      }
      for (std::size_t i = 0; i < tensors.size(); ++i)
        at.stream.add(item_of(tensors[i], count, in.back()[i], out.back()[i]));
      at.place = place;
      at.cut =
          place == Place::tensor_or_own ? Cut::at_tensors(at.stream, chunk, chunk) : Cut::of(at.stream.bytes, chunk, 1);
      CHECK(at.cut.end(at.cut.chunks() - 1) == at.stream.bytes);
      at.ring.assign(at.stream.bytes, 0);
      at.exchange->begin(at.stream, at.cut);
      at.expected = at.started = at.finished = 0;
      at.results.clear();
    }
    for (bool all = false; !all;) {
      all = true;
      for (auto& at : at_) {
        at->step();
        all &= at->finished == at->cut.chunks();
      }
    }
    for (std::size_t n = 0; n < at_.size(); ++n)
      if (place == Place::ring)
        for (std::size_t i = 0; i < tensors.size(); ++i)
          std::memcpy(out[n][i].data(), at_[n]->ring.data() + at_[n]->stream.items[i].at, out[n][i].size());
    return out;
  }

 private:
  struct At {
    Nodes nodes;
    std::unique_ptr<transport::Transport> transport;
    std::unique_ptr<BetweenNodes> exchange;
    Stream stream;
    Cut cut;
    Bytes ring;
    Place place = Place::ring;
    std::deque<unsigned char*> results;  ///< of the slices that are expected and not finished
    std::uint64_t expected = 0, started = 0, finished = 0;

    void step() {
      for (; expected < cut.chunks() && expected < finished + exchange->most_slices(); ++expected)
        expect(cut.begin(expected), cut.end(expected));
      if (started < expected) {
        start(started++);
        return;
      }
      if (exchange->finished()) finish(finished++);
    }
    /// Returns the tensor that alone holds all of a slice in transit.
    const Item* tensor_of(std::size_t begin, std::size_t end) const {
      const Item* found = nullptr;
      int count = 0;
      stream.pieces(begin, end, [&](const Item& item, std::size_t, std::size_t, std::size_t) {
        found = &item;
        ++count;
      });
      return place != Place::ring && count == 1 && !found->wide.element_bytes ? found : nullptr;
    }
    void expect(std::size_t begin, std::size_t end) {
      const Item* tensor = tensor_of(begin, end);
      unsigned char* result = tensor ? tensor->out + (begin - tensor->at) : nullptr;
      if (place == Place::ring) result = ring.data() + begin;
      results.push_back(exchange->expect(result, begin, end, tensor != nullptr));
    }
    void finish(std::uint64_t k) {
      const unsigned char* result = results.front();
      results.pop_front();
      if (place != Place::ring && !tensor_of(cut.begin(k), cut.end(k)))
        stream.pieces(cut.begin(k), cut.end(k), [&](const Item& item, std::size_t from, std::size_t at, std::size_t n) {
          std::memcpy(item.out + from, result + (at - cut.begin(k)), n);
        });
    }
    void start(std::uint64_t k) {
      const std::size_t begin = cut.begin(k);
      if (const Item* tensor = tensor_of(begin, cut.end(k))) return exchange->start(tensor->in + (begin - tensor->at));
      unsigned char* result = results[k - finished];
      unsigned char* wide = exchange->wide();
      stream.pieces(cut.begin(k), cut.end(k), [&](const Item& item, std::size_t from, std::size_t at, std::size_t n) {
        const void* source = item.in + from;
        const ReduceFn part = item.wide.element_bytes ? item.wide.part : item.reduce;
        part(&source, 1, wide ? wide : result + (at - begin), n / item.element_bytes, {});
        if (wide) wide += item.wire_bytes(n);
      });
      exchange->start(result);
    }
  };
  std::shared_ptr<transport::LoopbackWorld> world_;
  std::vector<std::unique_ptr<At>> at_;
};

const std::vector<std::vector<NodeTensor>> all_tensors = {
    {{DType::f32, 1}},
    {{DType::f32, 1000}},
    {{DType::f32, 70001}},
    {{DType::f16, 33333}},
    {{DType::f64, 5}, {DType::f32, 3}},  // the part of each node ends with 4 bytes: the next one must be aligned
    {{DType::f32, 17, true}, {DType::f16, 129, true}, {DType::f32, 20000}, {DType::f16, 3}, {DType::f32, 40001}},
};

}  // namespace

TEST_CASE("between nodes: every plan has the same bits, on every node") {
  const std::vector<int> all = {2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17}, some = {2, 3, 8, 12};
  const std::vector<int> few = {3, 8};  // the thread sanitizer has no other thread to check here
  for (const int nodes : testing::slower > 3 ? few : testing::slower > 1 ? some : all) {
    for (const auto& tensors : all_tensors) {
      std::vector<Bytes> first;
      for (const NetworkModel& model : {slow_links, far, dear_messages, NetworkModel{}})
        for (const Place place : {Place::ring, Place::tensor, Place::tensor_or_own}) {
          Nodeful world(nodes, model);
          for (const auto& results : world.run(tensors, place)) {
            if (first.empty()) first = results;
            CHECK_MESSAGE(results == first, nodes, " nodes, ", world.plan().stages(), " stages");
          }
        }
    }
  }
}

TEST_CASE("between nodes: the order is the tree's, whatever is fused") {
  for (const int nodes : {2, 3, 4, 6, 8, 12, 17}) {
    const NodeTensor t{DType::f32, 9000};
    std::vector<std::vector<float>> in;
    for (int n = 0; n < nodes; ++n) {
      const Bytes bytes = numbers(t, n);
      in.emplace_back(t.elements);
      std::memcpy(in.back().data(), bytes.data(), bytes.size());
    }
    const std::vector<float> expected = sum_in_order(in);
    Nodeful world(nodes, {});
    for (const auto& tensors : std::vector<std::vector<NodeTensor>>{{t}, {{DType::f32, 777}, t, {DType::f16, 5}}}) {
      const auto results = world.run(tensors, Place::ring);
      const Bytes& mine = results.back()[tensors.size() > 1 ? 1 : 0];
      CHECK(std::memcmp(mine.data(), expected.data(), mine.size()) == 0);
    }
  }
}

TEST_CASE("cuts at tensors: whole lines, no larger than a chunk, small tensors together") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    Stream stream;
    const int count = 1 + static_cast<int>(random() % 40);
    for (int i = 0; i < count; ++i) {
      Item item;
      item.bytes = 4 * (1 + random() % (random() % 3 == 0 ? 500'000 : 3'000));
      stream.add(item);
    }
    const std::size_t most = round % 2 ? 512 << 10 : 1 << 20;
    const Cut cut = Cut::at_tensors(stream, 512 << 10, most);
    REQUIRE(cut.begin(0) == 0);
    for (std::uint64_t k = 0; k < cut.chunks(); ++k) {
      CHECK(cut.begin(k) % 64 == 0);
      CHECK(cut.begin(k) < cut.end(k));
      CHECK(cut.end(k) - cut.begin(k) <= most);
      CHECK(cut.end(k) - cut.begin(k) <= cut.chunk);
      CHECK((k + 1 == cut.chunks() ? stream.bytes : cut.begin(k + 1)) == cut.end(k));
      std::size_t tensors = 0, largest = 0;
      stream.pieces(cut.begin(k), cut.end(k), [&](const Item& item, std::size_t, std::size_t, std::size_t) {
        ++tensors;
        largest = std::max(largest, item.bytes);
      });
      CHECK((tensors == 1 || largest < 32 << 10));
    }
    CHECK(cut.chunks() <= 2 * static_cast<std::uint64_t>(count) + stream.bytes / (64 << 10));
  }
}

TEST_CASE("plans: what is far takes few rounds, what is large few bytes, whatever the nodes") {
  for (const int nodes : {2, 8, 96, 1000, 1024, 16384}) {
    int product = 1;
    const ExchangePlan small = ExchangePlan::choose(levels_of_order(nodes, false), 4, 4, {});
    CHECK(small.whole());
    for (int s = 0; s < small.stages(); ++s) {
      CHECK(small.stage(s).apart == product);
      product *= small.stage(s).group;
    }
    CHECK(product == nodes);
    CHECK_FALSE(ExchangePlan::choose(levels_of_order(nodes, false), 64 << 20, 512 << 10, {}).whole());
  }
  CHECK(ExchangePlan::choose(levels_of_order(1024, false), 4, 4, far).stages() == 1);
  CHECK(ExchangePlan::choose(levels_of_order(1024, false), 4, 4, dear_messages).stages() == 10);
  CHECK(ExchangePlan::choose({2}, 64 << 10, 32 << 10, {}).rounds() == 1);
  CHECK(ExchangePlan::choose({2}, 8 << 20, 512 << 10, {}).rounds() == 2);
}

TEST_CASE("plans: parts are whole lines, and all of them are the slice") {
  for (const int nodes : {2, 6, 17, 32})
    for (const std::size_t length : {std::size_t{1}, std::size_t{64}, std::size_t{100}, std::size_t{65537}}) {
      const ExchangePlan plan(levels_of_order(nodes, false), 4, false);
      std::vector<int> owners(length);
      for (int n = 0; n < nodes; ++n) {
        Range r{0, length};
        for (int s = 0; s < plan.stages(); ++s) r = plan.part(r, s, plan.digit(n, s));
        CHECK((r.first % 64 == 0 || r.first == length));
        for (std::size_t i = r.first; i < r.second; ++i) ++owners[i];
      }
      CHECK(std::count(owners.begin(), owners.end(), 1) == static_cast<std::ptrdiff_t>(length));
    }
}
