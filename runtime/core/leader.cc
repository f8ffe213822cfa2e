#include "core/leader.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "memory/wake.h"
#include "ops/shm/eager.h"

namespace hvd::core {
namespace {

using negotiate::Order;
using negotiate::Reader;
using negotiate::Record;
using transport::Tag;

/// News from a leader to the conductor.
enum class Up : std::uint8_t { ready = 1, record, executed, gone };

negotiate::ConductorOptions options_of(const World& world, const Config& config, const memory::Geometry& g) {
  negotiate::ConductorOptions o;
  o.ranks = world.size;
  o.nodes = static_cast<int>(world.nodes.size());
  o.ids = g.words * 64;
  o.capacity = config.cache_capacity;
  o.fusion_bytes = config.fusion_bytes;
  o.hold_ns = config.hold_ns;
  o.eager_limit = ops::eager_limit;
  // Across nodes every tensor is streamed: what a slot saves is nothing beside a message.
  o.eager_bytes = world.nodes.size() == 1 ? g.eager_bytes : 0;
  return o;
}

}  // namespace

Leader::Leader(const World& world, const Config& config, transport::Transport& transport, const memory::Node& node)
    : world_(world),
      config_(config),
      transport_(transport),
      node_(node),
      gather_(node),
      writer_(node),
      executed_of_(world.nodes.size()) {
  if (world.rank != 0) return;
  conductor_ = std::make_unique<negotiate::Conductor>(options_of(world, config, node.geometry),
                                                      [this](Order type, std::string_view body) { order(type, body); });
}

Leader::~Leader() {
  for (Send& s : sends_) {
    transport_.abandon(s.ticket);
    new std::shared_ptr<std::string>(s.body);  // may still be read: kept until the end of the process
  }
}

/// From the conductor: to this node's ring and to the other leaders.
void Leader::order(Order type, std::string_view body) {
  if (world_.nodes.size() > 1) {
    negotiate::Writer w;
    w.put(static_cast<std::uint32_t>(type)).text(body);
    down_ += w.bytes();
  }
  if (!backlog_.empty() || !write_order(static_cast<std::uint32_t>(type), body))
    backlog_.emplace_back(static_cast<std::uint32_t>(type), body);
}

bool Leader::write_order(std::uint32_t type, std::string_view body) {
  // The latch is set before any member can see that the id is there.
  if (static_cast<Order>(type) == Order::assign) gather_.assigned(Reader(body).get<std::uint32_t>());
  if (!writer_.write(type, body)) return false;
  if (static_cast<Order>(type) == Order::evict) gather_.evicted(Reader(body).get<std::uint32_t>());
  wrote_ = true;
  return true;
}

bool Leader::flush_orders() {
  bool any = false;
  while (!backlog_.empty() && write_order(backlog_.front().first, backlog_.front().second)) {
    backlog_.pop_front();
    any = true;
  }
  return any;
}

void Leader::ring_members() {
  if (!wrote_) return;
  wrote_ = false;
  for (int r = 0; r < node_.ranks; ++r)
    if (r != node_.me) memory::ring(node_.bell(r));
}

bool Leader::step() {
  bool any = flush_orders();
  const bool many = world_.nodes.size() > 1;
  if (conductor_) {
    any |= gather_.poll([this](std::uint32_t id) { conductor_->ready(0, id); },
                        [this](int r, const Record& record) {
                          conductor_->record(world_.locals()[static_cast<std::size_t>(r)], record, memory::now_ns());
                        });
    if (many) any |= receive_up();
    if (any || conductor_->holding()) {
      std::uint64_t executed = gather_.executed();
      const bool under_way = executed < conductor_->last_batch();
      for (std::size_t n = 1; n < executed_of_.size(); ++n) executed = std::min(executed, executed_of_[n]);
      conductor_->executed(executed);
      any |= conductor_->decide(under_way, under_way ? memory::now_ns() : 0);
    }
    if (!down_.empty()) {
      auto body = std::make_shared<std::string>(std::move(down_));
      down_.clear();
      for (std::size_t n = 1; n < world_.nodes.size(); ++n) send(world_.nodes[n].front(), Tag::down, body);
    }
  } else {
    any |= gather_.poll([this](std::uint32_t id) { up_.put(Up::ready).put(id); },
                        [this](int r, const Record& record) {
                          std::string bytes;
                          negotiate::append_record(bytes, record.executed, record.signature, record.name);
                          up_.put(Up::record).put(world_.locals()[static_cast<std::size_t>(r)]).text(bytes);
                        });
    any |= receive_down();
    any |= send_up();
  }
  ring_members();
  if (!sends_.empty()) any |= flush_sends();
  return any;
}

bool Leader::busy() const { return !backlog_.empty() || !sends_.empty() || (conductor_ && conductor_->holding()); }

bool Leader::send_up() {
  const std::uint64_t executed = gather_.executed();
  // How far the node is goes along with other news, and by itself only now and then: it only frees ids.
  if (up_.bytes().empty() && executed < reported_executed_ + 64) return false;
  if (executed != reported_executed_) up_.put(Up::executed).put(executed);
  reported_executed_ = executed;
  send(0, Tag::up, std::make_shared<std::string>(std::move(up_.bytes())));
  up_ = {};
  return true;
}

bool Leader::receive_up() {
  bool any = false;
  while (auto m = transport_.poll(Tag::up)) {
    any = true;
    const auto node = static_cast<std::size_t>(world_.node_of[static_cast<std::size_t>(m->from)]);
    for (Reader r(m->body); !r.empty();) {
      switch (r.get<Up>()) {
        case Up::ready:
          conductor_->ready(static_cast<int>(node), r.get<std::uint32_t>());
          break;
        case Up::record: {
          const int rank = r.get<int>();
          std::string_view bytes = r.text();
          Record record;
          if (negotiate::next_record(bytes, record)) conductor_->record(rank, record, memory::now_ns());
          break;
        }
        case Up::executed:
          executed_of_[node] = r.get<std::uint64_t>();
          break;
        case Up::gone: {
          const auto code = r.get<std::uint32_t>();
          conductor_->gone(m->from, code, std::string(r.text()));
          break;
        }
      }
    }
  }
  return any;
}

bool Leader::receive_down() {
  bool any = false;
  while (auto m = transport_.poll(Tag::down)) {
    any = true;
    for (Reader r(m->body); !r.empty();) {
      const auto type = r.get<std::uint32_t>();
      const std::string_view body = r.text();
      if (!backlog_.empty() || !write_order(type, body)) backlog_.emplace_back(type, body);
    }
  }
  return any;
}

void Leader::send(int to, Tag tag, std::shared_ptr<std::string> body) {
  const transport::Ticket t = transport_.isend(to, tag, body->data(), body->size());
  if (!transport_.test(t)) sends_.push_back({t, std::move(body)});
}

bool Leader::flush_sends() {
  const std::size_t before = sends_.size();
  std::erase_if(sends_, [this](const Send& s) { return transport_.test(s.ticket); });
  return sends_.size() != before;
}

std::string Leader::departure(const std::string& text) {
  negotiate::Writer w;
  w.put(Up::gone).put(static_cast<std::uint32_t>(HVD_PEER_LOST)).text(text);
  return std::move(w.bytes());
}

void Leader::announce_departure(const std::string& text) {
  if (world_.nodes.size() == 1) return;  // the node sees it in its shared memory
  if (conductor_) {
    conductor_->gone(0, HVD_PEER_LOST, text);
    auto body = std::make_shared<std::string>(std::move(down_));
    for (std::size_t n = 1; n < world_.nodes.size(); ++n) send(world_.nodes[n].front(), Tag::down, body);
  } else {
    up_.raw(departure(text));
    send(0, Tag::up, std::make_shared<std::string>(std::move(up_.bytes())));
  }
  ring_members();
  const std::int64_t end = memory::now_ns() + 1'000'000'000;
  while (!sends_.empty() && memory::now_ns() < end) flush_sends();
}

void Leader::gone(int rank, std::uint32_t code, const std::string& text) {
  if (conductor_) conductor_->gone(rank, code, text);
}

}  // namespace hvd::core
