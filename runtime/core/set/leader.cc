#include "core/set/leader.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

#include "base/error.h"
#include "memory/doorbell.h"
#include "negotiate/idset.h"
#include "ops/shm/eager.h"

namespace hvd::core {
namespace {

using negotiate::ByteReader;
using negotiate::Command;
using negotiate::Record;
using transport::Tag;

/// Children of a leader in the tree.  Each child costs the busiest node two messages for a batch.  Each level of the
/// tree costs the time of one message up and one down.
/// hvd-simulate was run with 1024 ranks and a thousand tensors; the ranks submit within 50 us.  For 2, 3, 4 and 8
/// children it gives 45, 50, 66 and 100 messages.  The times are 141, 80, 68 and 54 us.
constexpr int arity = 3;

negotiate::CoordinatorOptions options_of(const World& world, const Config& config, const memory::Geometry& g) {
  negotiate::CoordinatorOptions o;
  o.ranks = world.size;
  o.world_ranks = world.world_ranks;
  o.ids = g.words * 64;
  o.capacity = static_cast<std::uint32_t>(config.integer("HOROVOD_CACHE_CAPACITY"));
  o.fusion_bytes = static_cast<std::int64_t>(config.number("HOROVOD_FUSION_THRESHOLD"));
  o.hold_ns = static_cast<std::int64_t>(config.number("HOROVOD_CYCLE_TIME") * 1e6);
  o.many_nodes = world.nodes.size() > 1;
  // Between nodes a rank reads only the slot of its node's leader.  So the number of ranks does not matter.
  if (o.many_nodes) o.eager_work = std::numeric_limits<std::int64_t>::max();
  o.eager_limit = o.many_nodes ? largest_travelling(world.nodes.size(), {}) : ops::eager_limit;
  o.eager_bytes = ops::EagerSlots::bytes(g);
  return o;
}

int children_of(const Config& config) {
  const auto chosen = static_cast<int>(config.integer("HVD_TREE_ARITY"));
  return chosen > 0 ? chosen : arity;
}

}  // namespace

Leader::Leader(const World& world, const Config& config, transport::Transport& transport, const memory::Node& node,
               const RankStatus& status, const std::vector<Operation*>& pending, OwnGpu gpu, ops::FiniteCheck* check)
    : world_(world),
      transport_(transport),
      node_(node),
      gpu_(std::move(gpu)),
      gather_(node),
      writer_(node),
      sums_(world, node, pending, check),
      most_travelling_(largest_travelling_sum(world.nodes.size(), {})) {
  if (world.nodes.size() > 1)
    tree_ = std::make_unique<negotiate::TreeNode>(
        negotiate::TreeShape{static_cast<int>(world.nodes.size()), children_of(config)}, world.node(), world.nodes,
        node.geometry.words * 64);
  if (world.rank == 0)
    coordinator_ = std::make_unique<negotiate::Coordinator>(
        options_of(world, config, node.geometry), [this](Command type, std::string_view body) { command(type, body); });
  if (coordinator_ && tree_) order_of_parts_ = tree_->order_of_parts();
  stalls_ = std::make_unique<StallCheck>(
      StallCheck::Sources{world_, gather_, tree_.get(), coordinator_.get(), status, node.geometry.words * 64}, config);
}

Leader::~Leader() {
  for (Send& s : sends_) {
    transport_.abandon(s.ticket);
    new std::shared_ptr<std::string>(s.body);  // never freed: the transport may still read the body
  }
}

/// Takes a command of the coordinator.  Passes the command to the other leaders, and publishes it on this node.
void Leader::command(Command type, std::string_view body) {
  if (tree_) {
    const bool known_there = type == Command::batch && std::exchange(offers_.taken, false);
    if (type == Command::batch && tree_->parts().any()) add_up(body, !known_there);
    if (!known_there) tell(static_cast<std::uint64_t>(type), body);
  }
  publish(static_cast<std::uint32_t>(type), body);
}

/// Adds an entry to the next message down the tree.
void Leader::tell(std::uint64_t type, std::string_view body) {
  negotiate::ByteWriter w;
  w.varint(type).varint(body.size()).raw(body);
  down_ += w.bytes();
}

/// Called before @p batch is published.  Adds up the parts of the batch's tensors.  @p tells: sends the results down
/// before the batch.
void Leader::add_up(std::string_view batch, bool tells) {
  std::vector<std::string_view> by_node(order_of_parts_.size());
  ByteReader r(batch);
  const bool eager = r.get<std::uint32_t>() & negotiate::batch_eager;
  r.get<std::uint32_t>();
  negotiate::get_ids(r, node_.geometry.words * 64, [&](std::uint32_t id) {
    if (eager) {
      const std::string_view parts = tree_->parts().parts(id);
      const std::size_t each = tree_->parts().each(id);
      for (std::size_t i = 0; i < by_node.size(); ++i)
        by_node[static_cast<std::size_t>(order_of_parts_[i])] = parts.substr(each * i, each);
      const std::string_view result = sums_.whole(id, by_node);
      if (tells) {
        negotiate::ByteWriter w;
        w.varint(result_entry).varint(8 + result.size()).put(id).put(static_cast<std::uint32_t>(result.size()));
        down_.reserve(down_.size() + result.size() + 128);  // the command follows
        down_.append(w.bytes()).append(result);
      }
    }
    tree_->parts().drop(id);
  });
}

/// Announces fresh_, which all ranks of this node have submitted, up the tree.  Small tensors travel with the
/// announcement.  If they have more than most_travelling_ bytes together, all travel in slices.
void Leader::ready() {
  std::size_t bytes = 0;
  for (const std::uint32_t id : fresh_) bytes += sums_.bytes(id);
  const bool little = bytes > 0 && bytes <= most_travelling_;
  const bool offers = little && coordinator_ && world_.nodes.size() == 2 && offers_.pause == 0;
  if (little && offers_.pause > 0) --offers_.pause;
  for (const std::uint32_t id : fresh_) {
    if (little && sums_.bytes(id) > 0) {
      if (unsigned char* to = tree_->part(id, sums_.bytes(id))) sums_.part(id, to);
      if (offers) offers_.own.push_back(id);
    }
    tree_->ready(id);
  }
  fresh_.clear();
}

/// Writes a command for the ranks of this node.  All commands pass here, in sequence.
void Leader::publish(std::uint32_t type, std::string_view body) {
  stalls_->published(static_cast<Command>(type), body);
  if (tree_) tree_->passing(static_cast<Command>(type), body);
  if (tree_ && static_cast<Command>(type) == Command::tune) plan(body);
  if (!backlog_.empty() || !write_command(type, body)) backlog_.emplace_back(type, body);
}

/// Decides by new settings which tensors travel with their announcements.
void Leader::plan(std::string_view settings) {
  ByteReader r(settings);
  ops::NetworkModel model;
  model.latency_ns = static_cast<double>(negotiate::get_settings(r).latency_ns);
  most_travelling_ = largest_travelling_sum(world_.nodes.size(), model);
  if (coordinator_) coordinator_->limit_eager(largest_travelling(world_.nodes.size(), model));
}

bool Leader::write_command(std::uint32_t type, std::string_view body) {
  // gather_ must know the id before any rank of the node can see it.
  if (static_cast<Command>(type) == Command::assign) gather_.assigned(ByteReader(body).get<std::uint32_t>());
  if (!writer_.write(type, body)) return false;
  if (static_cast<Command>(type) == Command::evict) gather_.evicted(ByteReader(body).get<std::uint32_t>());
  ++written_;
  next_doorbell_ = 1;
  return true;
}

bool Leader::flush_commands() {
  bool any = false;
  while (!backlog_.empty() && write_command(backlog_.front().first, backlog_.front().second)) {
    backlog_.pop_front();
    any = true;
  }
  return any;
}

/// A member that has carried out all commands is not woken. The member's caller polled, and has continued with its own
/// work. A thread that wakes on the same core would interrupt this work for ten microseconds.
void Leader::ring_doorbells(int most) {
  if (next_doorbell_ == 0) return;
  for (; next_doorbell_ < node_.ranks; ++next_doorbell_)
    if (node_.doorbell(next_doorbell_).would_wake() &&
        node_.board(next_doorbell_).executed.load(std::memory_order_acquire) < written_) {
      if (most-- == 0) return;
      node_.doorbell(next_doorbell_).ring();
    }
  next_doorbell_ = 0;
}

bool Leader::step() {
  bool any = flush_commands();
  if (tree_) {
    any |= gather_.poll(
        [this](std::uint32_t id) { fresh_.push_back(id); },
        [this](int r, const Record& record) { tree_->record(world_.locals()[static_cast<std::size_t>(r)], record); });
    // The announcement leaves before this rank looks at the network, since a look takes time.
    looks_ = fresh_.empty() || !looks_;
    if (!fresh_.empty()) ready();
    if (looks_) any |= receive_up();
    if (looks_ && !coordinator_) any |= receive_down();
    tree_->executed(gather_.executed());
  } else {
    any |= gather_.poll([this](std::uint32_t id) { coordinator_->ready(id); },
                        [this](int r, const Record& record) {
                          coordinator_->record(negotiate::RankSet(world_.locals()[static_cast<std::size_t>(r)]),
                                               record.executed, record.signature, record.name);
                        });
  }
  any |= coordinator_ ? coordinate() : report();
  if (!sends_.empty()) any |= flush_sends();
  return any;
}

/// On the coordinator's rank: takes the news from the tree, decides, and sends the commands down.
bool Leader::coordinate() {
  const bool open = !coordinator_->offered().empty() && !end_offer();
  if (tree_ && !open) tree_->drain(*coordinator_);
  bool any = false;
  if (!open && coordinator_->holding()) {
    const std::uint64_t here = gather_.executed();
    if (!tree_) coordinator_->executed(here);
    struct {
      const Leader& leader;
      bool waited_for() const { return leader.waited_for(); }
      bool works() const { return leader.gpu_.works(); }
    } const gpu{*this};
    any = coordinator_->decide(here, memory::now_ns, gpu);
  }
  if (!open && !offers_.own.empty()) offer();
  if (down_.empty()) return any;
  send_down(std::make_shared<std::string>(std::exchange(down_, {})));
  return true;
}

/// True if a caller on this node polls, or callers of this rank asked to be notified.  Callers on other nodes are not
/// seen.  A batch is held for HOROVOD_CYCLE_TIME at most, so they do not wait longer.
bool Leader::waited_for() const {
  for (int r = 0; r < node_.ranks; ++r)
    if (node_.doorbell(r).polling.load(std::memory_order_relaxed) != 0) return true;
  return gpu_.notifies();
}

/// This rank's callers that wait drive by themselves.  Callers of other ranks do not, so the leader looks for them
/// every 250 us.
std::int64_t Leader::behind_gpu_ns() const {
  constexpr std::int64_t look_ns = 250'000;
  if (!coordinator_ || !backlog_.empty() || !sends_.empty() || next_doorbell_ != 0) return 0;
  const std::int64_t left = coordinator_->behind_gpu_ns(memory::now_ns());
  return world_.size == 1 ? left : std::min(left, look_ns);
}

/// On the other leaders: sends news to the parent.
bool Leader::report() {
  if (held_) tree_->hurry(held_->ids);
  std::string news = tree_->up(memory::now_ns);
  if (news.empty()) return false;
  send(world_.nodes[static_cast<std::size_t>(tree_->parent())].front(), Tag::up,
       std::make_shared<std::string>(std::move(news)));
  if (held_) take_offer();
  return true;
}

bool Leader::busy() const {
  return !backlog_.empty() || !sends_.empty() || next_doorbell_ != 0 ||
         (coordinator_ ? coordinator_->holding() : tree_->holding());
}

bool Leader::receive_up() {
  bool any = false;
  while (auto m = transport_.poll(Tag::up)) {
    any = true;
    tree_->from_below(world_.node_of[static_cast<std::size_t>(m->from)], m->body);
    if (coordinator_ && !coordinator_->offered().empty()) end_offer();
  }
  return any;
}

bool Leader::receive_down() {
  bool any = false;
  while (auto m = transport_.poll(Tag::down)) {
    any = true;
    auto body = std::make_shared<std::string>(std::move(m->body));
    send_down(body);  // before this node's own work: the farthest nodes wait longest
    for (ByteReader r(*body); !r.empty();) {
      const std::uint64_t type = r.varint();
      take_entry(type, r.take(r.varint()), body);
    }
  }
  return any;
}

void Leader::send_down(std::shared_ptr<std::string> body) {
  for (int child = tree_->first_child(); child < tree_->end_child(); ++child)
    send(world_.nodes[static_cast<std::size_t>(child)].front(), Tag::down, body);
}

void Leader::send(int to, Tag tag, std::shared_ptr<std::string> body) {
  const transport::Ticket t = transport_.isend_shared(to, tag, body);
  if (!transport_.test(t)) sends_.push_back({t, std::move(body)});
}

bool Leader::flush_sends() {
  const std::size_t before = sends_.size();
  std::erase_if(sends_, [this](const Send& s) { return transport_.test(s.ticket); });
  return sends_.size() != before;
}

std::string Leader::departure(int rank, const std::string& text) {
  return negotiate::TreeNode::departure({rank, HVD_PEER_LOST, text});
}

void Leader::announce_departure(const std::string& text) {
  if (!tree_) return;  // the ranks see the departure in the node's shared memory
  // The coordinator reaches the children only through this leader.  This leader leaves, so it tells the children
  // itself.
  negotiate::ByteWriter gone;
  gone.put(std::uint32_t{HVD_PEER_LOST}).put(static_cast<std::uint32_t>(world_.rank)).raw(text);
  negotiate::ByteWriter w;
  w.raw(down_).varint(static_cast<std::uint32_t>(Command::gone)).varint(gone.bytes().size()).raw(gone.bytes());
  send_down(std::make_shared<std::string>(std::move(w.bytes())));
  if (!coordinator_) {
    send(world_.nodes[static_cast<std::size_t>(tree_->parent())].front(), Tag::up,
         std::make_shared<std::string>(departure(world_.rank, text)));
  }
  const std::int64_t end = memory::now_ns() + 1'000'000'000;
  while (!sends_.empty() && memory::now_ns() < end) flush_sends();
}

void Leader::gone(int rank, std::uint32_t code, const std::string& text) {
  if (coordinator_)
    coordinator_->gone(rank, code, text);
  else
    tree_->gone({rank, code, text});
}

}  // namespace hvd::core
