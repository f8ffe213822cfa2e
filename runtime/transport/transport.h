/// @file transport.h — how ranks reach each other outside shared memory.
///
/// An interface of few calls: tagged byte messages between ranks, in order for each (sender, receiver, tag), never
/// blocking.  tcp/ implements it over sockets, libhvd_mpi.so over MPI, and loopback.h for ranks that are threads of one
/// process.  A process set has a view of its own (split()): its members are ranks from 0, and its messages never mix
/// with those of other sets.
///
/// Thread: one at a time, under the engine's drive lock.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hvd::transport {

/// Message streams that must not mix.
enum class Tag : int { exchange = 1, share = 2, up = 3, down = 4, data = 5, second = 6 };

struct Message {
  int from = 0;
  std::string body;
};

/// A rank whose connection has ended without a goodbye.
struct LostPeer {
  int rank = 0;
  std::string text;  ///< one line, with its name
};

/// The traffic from this rank to another one over a network, since their connections were made.
struct LinkUse {
  int peer = 0;
  std::string card;                ///< of this host; empty: only one interface reaches the rank
  std::int64_t bytes = 0;          ///< that have arrived at the other rank
  std::int64_t busy_ns = 0;        ///< the time in which bytes waited for the network
  std::int64_t round_trip_ns = 0;  ///< the shortest so far; 0: unknown
};

/// Names a send or receive under way; 0 is none.
using Ticket = std::uint64_t;

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// [size]: ranks with the same number can share memory.
  virtual const std::vector<int>& host_of() const = 0;
  /// True if other threads of this process may call MPI.
  virtual bool threads_multiple() const = 0;
  /// [size]: the text of each rank, exchanged while the world was formed; empty: none was exchanged.
  virtual const std::vector<std::string>& introductions() const {
    static const std::vector<std::string> none;
    return none;
  }

  /// @p data must stay valid until test() says the ticket is done.  At most 2 GiB - 1 bytes; of a control stream (all
  /// tags but data and second) 256 MiB.  Throws Error{peer_lost}.
  virtual Ticket isend(int to, Tag tag, const void* data, std::size_t bytes) = 0;
  /// Receives a message of exactly @p bytes bytes.
  virtual Ticket irecv(int from, Tag tag, void* data, std::size_t bytes) = 0;
  /// True once the ticket is done; the ticket is then invalid.  Ticket 0 is done.
  virtual bool test(Ticket ticket) = 0;
  /// Gives up a ticket whose peer may be gone; never blocks.
  virtual void abandon(Ticket ticket) = 0;
  /// True if abandon() ends all reads and writes of the memory.
  virtual bool gives_memory_back() const { return false; }
  /// The next whole message of this tag, from any rank, or none.  Not for Tag::data and Tag::second.
  virtual std::optional<Message> poll(Tag tag) = 0;

  /// The same transport as a process set sees it: member i is rank i.  @p members: [size of the set] ranks here, this
  /// one among them.  @p stream: from 1 to streams() - 1, the same on all members and of no other living view.  Each
  /// view that a rank makes has a larger stream than its earlier views, until streams() is reached.  Must not outlive
  /// this transport.
  virtual std::unique_ptr<Transport> split(const std::vector<int>& members, int stream) = 0;
  virtual int streams() const = 0;

  /// @name Sleeping
  /// For transports whose messages can wake a thread.  The engine polls other transports.
  /// @{
  /// False if messages wake no thread.  A thread of the transport calls @p arrived once for each arm(true) after which
  /// a message has arrived.  An empty @p arrived ends the calls, and waits for one under way.
  virtual bool watch(std::function<void()> arrived) {
    (void)arrived;
    return false;
  }
  /// Any thread.
  virtual void arm(bool on) { (void)on; }
  /// Sleeps until a message arrives, or for that time.  False if messages wake no thread.  Any thread.
  virtual bool nap(std::int64_t ns) {
    (void)ns;
    return false;
  }
  /// Sends bytes for which the network had no room.  True if some are left, perhaps of a send whose ticket is done. The
  /// caller must then call flush() again, after nap().
  virtual bool flush() { return false; }
  /// @}
  /// Ranks whose loss the transport has noticed.
  virtual std::vector<LostPeer> lost() const { return {}; }
  /// The reason for which the world has ended (revocation.h); empty: it has not.
  virtual std::string revoked() const { return {}; }
  /// Ranks that have not answered for some seconds, and are not given up yet: a link may come back.
  virtual std::vector<LostPeer> silent() const { return {}; }

  /// The traffic of each peer, and of each network interface if several reach the peer.  Empty: the transport counts
  /// none.  Costs a system call for each connection.
  virtual std::vector<LinkUse> links() const { return {}; }

  /// Zeroed memory that all of @p members (this rank too, same order everywhere) see, when the
  /// transport has a way of its own; nullptr: use a shared-memory file.
  virtual std::shared_ptr<void> share_in_process(const std::vector<int>& members, std::size_t bytes) {
    (void)members, (void)bytes;
    return nullptr;
  }
};

/// Exchanges a text of each rank.  [size] by rank.  Collective over all ranks.  Throws Error{timeout} that names the
/// missing ranks, after @p limit_seconds.
std::vector<std::string> exchange(Transport& t, const std::string& mine, double limit_seconds);

/// Sends @p body, and waits until the transport no longer reads it.  Throws Error{timeout}.
void send_blocking(Transport& t, int to, Tag tag, const std::string& body, double limit_seconds);
/// Waits for one message of @p tag.  Throws Error{timeout} that says @p waiting_for.
Message receive_blocking(Transport& t, Tag tag, double limit_seconds, const std::string& waiting_for);

}  // namespace hvd::transport
