#include "simulate/cluster.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "negotiate/idset.h"

namespace hvd::simulate {
namespace {

using negotiate::ByteReader;
using negotiate::ByteWriter;
using negotiate::Command;

constexpr Time look = 300;     ///< the time of a leader's poll of its node's boards and queues
constexpr Time again = 20000;  ///< the interval of polls for messages that are held back

}  // namespace

Cluster::Cluster(const Shape& shape, const Network& network) : shape_(shape), net_(network) {
  std::vector<std::vector<int>> ranks(static_cast<std::size_t>(shape.nodes()));
  for (int r = 0; r < shape.ranks; ++r) ranks[static_cast<std::size_t>(r / shape.per_node)].push_back(r);
  memory::Geometry g;
  g.words = static_cast<std::uint32_t>(shape.tensors + 64 + 63) / 64;
  g.chunk_bytes = g.eager_bytes = g.record_bytes = 64;
  g.command_bytes = 128;
  leaders_.resize(ranks.size());
  for (int n = 0; n < shape.nodes(); ++n) {
    Leader& l = leaders_[static_cast<std::size_t>(n)];
    g.ranks = ranks_of(n);
    l.board = std::make_unique<memory::Node>(g, 0);
    void* p = std::aligned_alloc(4096, (l.board->total_bytes() + 4095) / 4096 * 4096);
    if (!p) throw std::bad_alloc();
    std::memset(p, 0, l.board->total_bytes());
    l.board->attach(std::shared_ptr<void>(p, std::free));
    l.gather = std::make_unique<negotiate::Gather>(*l.board);
    l.tree =
        std::make_unique<negotiate::TreeNode>(negotiate::TreeShape{shape.nodes(), shape.arity}, n, ranks, g.words * 64);
    l.submitted.resize(static_cast<std::size_t>(g.ranks));
    l.next.resize(static_cast<std::size_t>(g.ranks));
  }
  negotiate::CoordinatorOptions o;
  o.ranks = shape.ranks;
  o.ids = g.words * 64;
  o.capacity = static_cast<std::uint32_t>(shape.tensors);
  coordinator_ =
      std::make_unique<negotiate::Coordinator>(o, [this](Command type, std::string_view body) { command(type, body); });
  for (int i = 0; i < shape.tensors; ++i) {
    Signature s;
    s.dtype = HVD_F32;
    s.ndim = 1;
    s.dims[0] = static_cast<std::int64_t>(shape.bytes / 4 / shape.tensors);
    std::string bytes;
    negotiate::append_record(bytes, 0, s, "gradient." + std::to_string(i));
    std::string_view left = bytes;
    negotiate::next_record(left, records_.emplace_back());
  }
  id_of_.resize(records_.size());
  tensor_of_.resize(o.ids);
}

Cost Cluster::step(const Schedule& schedule, const std::function<Time(double)>& carry) {
  schedule_ = &schedule;
  carry_ = &carry;
  cost_ = {};
  batches_.clear();
  first_batch_ = batches_made_;
  tensors_done_ = 0;
  begin_ = now_ = data_free_ = cost_end_ + 1e6;  // the clock never goes back: the runtime remembers times
  for (std::size_t n = 0; n < leaders_.size(); ++n) {
    Leader& l = leaders_[n];
    l.messages = 0;
    l.bytes = 0;
    l.wakes_at = 1e18;
    for (int r = 0; r < ranks_of(static_cast<int>(n)); ++r) {
      l.submitted[static_cast<std::size_t>(r)] = 0;
      l.next[static_cast<std::size_t>(r)] = begin_ + schedule(static_cast<int>(n) * shape_.per_node + r, 0);
    }
    wake(static_cast<int>(n), *std::max_element(l.next.begin(), l.next.end()));
  }
  while (!events_.empty()) {
    const Event e = events_.top();
    events_.pop();
    handle(e);
  }
  if (tensors_done_ < shape_.tensors) throw std::runtime_error("simulation: nothing happens any more");
  known_ = true;
  cost_end_ = now_;
  for (Time* t : {&cost_.last_submitted, &cost_.last_published, &cost_.last_finished}) *t -= begin_;
  for (const Leader& l : leaders_) {
    cost_.most_messages = std::max(cost_.most_messages, l.messages);
    cost_.most_bytes = std::max(cost_.most_bytes, l.bytes);
  }
  cost_.batches = static_cast<int>(batches_.size());
  return cost_;
}

void Cluster::wake(int n, Time at) {
  Leader& l = leaders_[static_cast<std::size_t>(n)];
  if (at >= l.wakes_at) return;
  l.wakes_at = at;
  events_.push({at, ++events_made_, n, -1, nullptr});
}

/// Node -1 is the network's end of a batch.
void Cluster::handle(const Event& e) {
  now_ = e.at;
  if (e.node < 0) return finish(e.at);
  Leader& l = leaders_[static_cast<std::size_t>(e.node)];
  if (e.from < 0) {
    if (e.at < l.wakes_at) return;  // an earlier wake-up has been here
    l.wakes_at = 1e18;
  }
  if (e.at < l.free_at) {  // still busy
    events_.push({l.free_at, e.order, e.node, e.from, e.body});
    if (e.from < 0) l.wakes_at = l.free_at;
    return;
  }
  l.free_at = e.at + look;
  if (e.from >= 0) {
    l.free_at += net_.o;
    ++l.messages;
    l.bytes += e.body->size();
    if (e.from > e.node || e.node == 0) {
      l.tree->from_below(e.from, *e.body);
    } else {
      for (int child = l.tree->first_child(); child < l.tree->end_child(); ++child) send(e.node, child, e.body);
      for (ByteReader r(*e.body); !r.empty();) {
        const auto type = static_cast<Command>(r.varint());
        take_command(e.node, type, r.take(r.varint()), e.at);
      }
    }
  }
  work(e.node, e.at);
}

/// Members act as they would have until now: they set bits on the board, or write records.
void Cluster::submit(int n, Time now) {
  Leader& l = leaders_[static_cast<std::size_t>(n)];
  for (int r = 0; r < ranks_of(n); ++r) {
    const int rank = n * shape_.per_node + r;
    int& i = l.submitted[static_cast<std::size_t>(r)];
    Time& next = l.next[static_cast<std::size_t>(r)];
    while (i < shape_.tensors && next <= now) {
      cost_.last_submitted = std::max(cost_.last_submitted, next);
      if (known_) {
        const std::uint32_t id = id_of_[static_cast<std::size_t>(i)];
        l.board->flip(r, id / 64, 1ull << (id % 64));
      } else {
        l.tree->record(rank, records_[static_cast<std::size_t>(i)]);
      }
      next = ++i < shape_.tensors ? begin_ + (*schedule_)(rank, i) : 1e18;
    }
  }
}

void Cluster::send(int from, int to, Body body) {
  Leader& l = leaders_[static_cast<std::size_t>(from)];
  const Time leaves = std::max(l.free_at, l.sent_at + net_.g);
  l.sent_at = leaves;
  l.free_at = leaves + net_.o;
  ++l.messages;
  l.bytes += body->size();
  ++cost_.messages;
  const Time arrives = leaves + net_.o + net_.wire(body->size()) + net_.latency(from, to);
  events_.push({arrives, ++events_made_, to, from, std::move(body)});
}

/// A leader's step, as in core/set/leader.cc.
void Cluster::work(int n, Time now) {
  Leader& l = leaders_[static_cast<std::size_t>(n)];
  const auto clock = [now] { return static_cast<std::int64_t>(now); };
  submit(n, now);
  l.gather->poll([&](std::uint32_t id) { l.tree->ready(id); }, [](int, const negotiate::Record&) {});
  const std::uint64_t here = l.gather->executed();
  l.tree->executed(here);
  bool held;
  if (n == 0) {
    l.tree->drain(*coordinator_);
    if (coordinator_->holding()) coordinator_->decide(here, clock);
    if (!down_.empty()) {
      const auto body = std::make_shared<const std::string>(std::exchange(down_, {}));
      for (int child = l.tree->first_child(); child < l.tree->end_child(); ++child) send(0, child, body);
    }
    held = coordinator_->holding();
  } else {
    std::string news = l.tree->up(clock);
    if (!news.empty()) send(n, l.tree->parent(), std::make_shared<const std::string>(std::move(news)));
    held = l.tree->holding();
  }
  if (held) wake(n, now + again);
  // The next id of this node is ready when the slowest member has submitted it.
  const int least = *std::min_element(l.submitted.begin(), l.submitted.end());
  Time next = now + look;
  for (std::size_t r = 0; r < l.next.size(); ++r)
    if (l.submitted[r] == least) next = std::max(next, l.next[r]);
  if (next < 1e17) wake(n, next);
}

void Cluster::command(Command type, std::string_view body) {
  ByteWriter w;
  w.varint(static_cast<std::uint32_t>(type)).varint(body.size()).raw(body);
  down_ += w.bytes();
  ++published_;
  if (type == Command::assign) {
    ByteReader r(body);
    const auto id = r.get<std::uint32_t>();
    r.get<std::uint32_t>();
    const auto tensor = static_cast<std::uint32_t>(std::stoi(std::string(r.rest().substr(9))));
    id_of_[tensor] = id;
    tensor_of_[id] = tensor;
  }
  if (type == Command::batch) {
    ByteReader r(body);
    r.get<std::uint32_t>();
    const double share = r.get<std::uint32_t>() / static_cast<double>(shape_.tensors);
    batches_.push_back({published_, share * shape_.bytes});
    ++batches_made_;
  }
  take_command(0, type, body, now_);
}

void Cluster::take_command(int n, Command type, std::string_view body, Time now) {
  Leader& l = leaders_[static_cast<std::size_t>(n)];
  l.tree->passing(type, body);
  if (type == Command::assign) l.gather->assigned(ByteReader(body).get<std::uint32_t>());
  if (type != Command::batch) return;
  cost_.last_published = std::max(cost_.last_published, now);
  arrived(static_cast<std::size_t>(l.arrived++ - first_batch_), now);
}

/// The data of a batch begins to move when all nodes have its command and the batch before it is finished.
void Cluster::arrived(std::size_t batch, Time now) {
  Batch& b = batches_[batch];
  b.last = std::max(b.last, now);
  if (++b.arrived < shape_.nodes()) return;
  b.ends = data_free_ = std::max(data_free_, b.last) + (*carry_)(b.bytes);
  events_.push({b.ends, ++events_made_, -1, -1, nullptr});
}

void Cluster::finish(Time now) {
  double share = 0;
  for (Batch& b : batches_)
    if (b.ends > 0 && b.ends <= now) finished_command_ = std::max(finished_command_, b.number), share += b.bytes;
  tensors_done_ = static_cast<int>(share / shape_.bytes * shape_.tensors + 0.5);
  cost_.last_finished = now;
  for (std::size_t n = 0; n < leaders_.size(); ++n) {
    for (int r = 0; r < ranks_of(static_cast<int>(n)); ++r)
      leaders_[n].board->board(r).executed.store(finished_command_, std::memory_order_relaxed);
    wake(static_cast<int>(n), now);
  }
}

}  // namespace hvd::simulate
