#include "group.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "sums.h"

namespace fake {

using namespace hvd::nccl;

namespace {

struct Message {
  unsigned char* memory;
  std::size_t bytes, done = 0;
  std::uint32_t kind;
  bool begun = false;
};

struct Job {
  Communicator* comm;
  std::map<int, std::vector<Message>> out, in;  ///< by peer, in order
  std::vector<std::function<void()>> after;     ///< called when all messages have arrived
  std::vector<std::vector<unsigned char>> memory;

  void total(const Call& c, const std::vector<const void*>& from) const {
    const bool made = c.op >= first_made_op;
    const double factor = made ? comm->ops[static_cast<std::size_t>(c.op - first_made_op)].factor : 1;
    reduce(from, c.out, c.count, c.type, made ? sum : c.op, factor);
  }
  unsigned char* temporary(std::size_t bytes) { return memory.emplace_back(bytes + 1).data(); }
  void send(int to, const void* from, std::size_t bytes, Kind kind) {
    out[to].push_back(
        {static_cast<unsigned char*>(const_cast<void*>(from)), bytes, 0, static_cast<std::uint32_t>(kind)});
  }
  void receive(int from, void* to, std::size_t bytes, Kind kind) {
    in[from].push_back({static_cast<unsigned char*>(to), bytes, 0, static_cast<std::uint32_t>(kind)});
  }

  void prepare(const Call& c) {
    const std::size_t bytes = c.count * bytes_of(c.type);
    const int me = comm->rank, n = comm->size;
    auto gathered = [&](const void* own, std::size_t length) {  // the parts of all ranks, in rank order
      std::vector<const void*> from;
      for (int r = 0; r < n; ++r) {
        if (r == me) {
          from.push_back(own);
        } else {
          unsigned char* part = temporary(length);
          receive(r, part, length, c.kind);
          from.push_back(part);
        }
      }
      return from;
    };
    switch (c.kind) {
      case Kind::all_reduce: {
        for (int r = 0; r < n; ++r)
          if (r != me) send(r, c.in, bytes, c.kind);
        auto from = gathered(c.in, bytes);
        after.push_back([this, c, from] { total(c, from); });
        break;
      }
      case Kind::reduce:
        if (me != c.peer) {
          send(c.peer, c.in, bytes, c.kind);
        } else {
          auto from = gathered(c.in, bytes);
          after.push_back([this, c, from] { total(c, from); });
        }
        break;
      case Kind::reduce_scatter: {
        const auto* in = static_cast<const unsigned char*>(c.in);
        for (int r = 0; r < n; ++r)
          if (r != me) send(r, in + static_cast<std::size_t>(r) * bytes, bytes, c.kind);
        auto from = gathered(in + static_cast<std::size_t>(me) * bytes, bytes);
        after.push_back([this, c, from] { total(c, from); });
        break;
      }
      case Kind::broadcast:
        if (me == c.peer) {
          for (int r = 0; r < n; ++r)
            if (r != me) send(r, c.in, bytes, c.kind);
          after.push_back([c, bytes] {
            if (bytes) std::memmove(c.out, c.in, bytes);
          });
        } else {
          receive(c.peer, c.out, bytes, c.kind);
        }
        break;
      case Kind::all_gather: {
        auto* to = static_cast<unsigned char*>(c.out);
        for (int r = 0; r < n; ++r) {
          if (r == me) continue;
          send(r, c.in, bytes, c.kind);
          receive(r, to + static_cast<std::size_t>(r) * bytes, bytes, c.kind);
        }
        after.push_back([=] {
          if (bytes) std::memmove(to + static_cast<std::size_t>(me) * bytes, c.in, bytes);
        });
        break;
      }
      case Kind::send:
        send(c.peer, c.in, bytes, Kind::send);
        break;
      case Kind::receive:
        receive(c.peer, c.out, bytes, Kind::send);
        break;
    }
  }

  Mailbox& box(int from, int to) { return comm->segment->boxes[from * most_ranks + to]; }

  bool push(int to, Message& m) {
    Mailbox& b = box(comm->rank, to);
    if (b.full.load(std::memory_order_acquire)) return false;
    b.bytes = static_cast<std::uint32_t>(std::min(box_bytes, m.bytes - m.done));
    b.kind = m.kind;
    b.total = m.bytes;
    if (b.bytes) std::memcpy(b.data, m.memory + m.done, b.bytes);
    m.done += b.bytes;
    m.begun = true;
    b.full.store(1, std::memory_order_release);
    return true;
  }
  bool pull(int from, Message& m) {
    Mailbox& b = box(from, comm->rank);
    if (!b.full.load(std::memory_order_acquire)) return false;
    if (b.kind != m.kind || b.total != m.bytes) {
      std::fprintf(stderr, "fake NCCL: rank %d calls %u of %zu bytes, rank %d sent %u of %zu\n", comm->rank, m.kind,
                   m.bytes, from, b.kind, static_cast<std::size_t>(b.total));
      comm->error = invalid_usage;
      comm->aborted = true;
      return false;
    }
    if (b.bytes) std::memcpy(m.memory + m.done, b.data, b.bytes);
    m.done += b.bytes;
    m.begun = true;
    b.full.store(0, std::memory_order_release);
    return true;
  }

  /// Advances the first message to or from each peer. Returns false when all messages are finished.
  bool carry(bool& moved) {
    bool left = false;
    auto go = [&](std::map<int, std::vector<Message>>& lists, auto&& step) {
      for (auto& [peer, list] : lists) {
        if (list.empty()) continue;
        left = true;
        if (!step(peer, list.front())) continue;
        moved = true;
        if (list.front().done == list.front().bytes) list.erase(list.begin());
      }
    };
    go(out, [this](int peer, Message& m) { return push(peer, m); });
    go(in, [this](int peer, Message& m) { return pull(peer, m); });
    return left;
  }

  void run(const std::vector<Call>& calls) {
    for (const Call& c : calls) prepare(c);
    for (bool moved = true; !comm->aborted.load() && carry(moved); moved = false)
      if (!moved) {
        const timespec pause{0, 20000};
        nanosleep(&pause, nullptr);
      }
    if (!comm->aborted.load())
      for (auto& f : after) f();
  }
};

}  // namespace

Communicator* open_communicator(const std::string& name, int rank, int size) {
  const int fd = shm_open(name.c_str(), O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(Segment)) != 0) return nullptr;
  void* memory = mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return nullptr;
  auto* c = new Communicator;
  c->segment = static_cast<Segment*>(memory);
  c->name = name;
  c->rank = rank;
  c->size = size;
  c->looks = 2;
  c->segment->joined.fetch_add(1);
  return c;
}

void begin_split(Communicator& comm, int color, int key, Communicator** made) {
  Round& round = comm.segment->rounds[comm.rounds];
  round.color[comm.rank] = color;
  round.key[comm.rank] = key;
  comm.made = made;
  round.arrived.fetch_add(1, std::memory_order_acq_rel);
}

bool finish_split(Communicator& comm) {
  const Round& round = comm.segment->rounds[comm.rounds];
  if (round.arrived.load(std::memory_order_acquire) < comm.size) return false;
  const int color = round.color[comm.rank];
  int rank = 0, size = 0;
  for (int r = 0; r < comm.size; ++r) {
    if (round.color[r] != color) continue;
    ++size;
    rank += std::pair(round.key[r], r) < std::pair(round.key[comm.rank], comm.rank);
  }
  if (color != no_color)
    *comm.made =
        open_communicator(comm.name + "-" + std::to_string(comm.rounds) + "." + std::to_string(color), rank, size);
  comm.made = nullptr;
  ++comm.rounds;
  return true;
}

bool meet(Communicator& comm, int fact) {
  Round& round = comm.segment->rounds[comm.rounds++];
  round.color[comm.rank] = fact;
  round.arrived.fetch_add(1, std::memory_order_acq_rel);
  const timespec pause{0, 1000000};
  while (round.arrived.load(std::memory_order_acquire) < comm.size && !comm.aborted.load()) nanosleep(&pause, nullptr);
  for (int r = 0; r < comm.size; ++r)
    if (round.color[r] != fact) return false;
  return true;
}

void carry_out(Communicator& comm, const std::vector<Call>& calls) { Job{.comm = &comm}.run(calls); }

}  // namespace fake
