/// @file transport.h — how ranks reach each other outside shared memory.
///
/// A seam of few calls: tagged byte messages between ranks, in order per
/// (sender, receiver, tag), never blocking.  tcp/ implements it over sockets, libhvd_mpi.so over
/// MPI; loopback.h is its twin for ranks that are threads of one process.
/// A process set has a view of its own (split), in which its members are ranks
/// from 0 and whose messages never mix with those of other sets.
/// Thread: one thread at a time (the engine's drive lock sees to that).
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

/// What has gone from here to another rank over a network, since its connections were made.
struct LinkUse {
  int peer = 0;
  std::string card;                ///< of this host; empty: there is one way only
  std::int64_t bytes = 0;          ///< have arrived there
  std::int64_t busy_ns = 0;        ///< the network was what they waited for
  std::int64_t round_trip_ns = 0;  ///< the least so far; 0: unknown
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
  /// Other threads of this process may call MPI.
  virtual bool threads_multiple() const = 0;
  /// [size]: what each rank has told all others while the world was being formed; empty: nothing yet.
  virtual const std::vector<std::string>& introductions() const {
    static const std::vector<std::string> none;
    return none;
  }

  /// @p data must stay valid until test() says the ticket is done.  At most 2 GiB - 1 bytes; of a control stream (all
  /// tags but data and second) 256 MiB.  Throws Error{peer_lost}.
  virtual Ticket isend(int to, Tag tag, const void* data, std::size_t bytes) = 0;
  /// Exactly @p bytes bytes are expected.
  virtual Ticket irecv(int from, Tag tag, void* data, std::size_t bytes) = 0;
  /// True once the ticket is done; it is then void.  0 is done.
  virtual bool test(Ticket ticket) = 0;
  /// Gives up a ticket whose peer may be gone; never blocks.
  virtual void abandon(Ticket ticket) = 0;
  /// After abandon() the memory is neither read nor written any more.
  virtual bool gives_memory_back() const { return false; }
  /// The next whole message of this tag from anybody, or nothing.  Not for Tag::data.
  virtual std::optional<Message> poll(Tag tag) = 0;

  /// The same transport as a process set sees it: member i is rank i.  @p members: [size of the set] ranks here, this
  /// one among them.  @p stream: from 1 to streams() - 1, the same on all members and of no other living view.  Of
  /// any two views that a rank makes, the later has the larger one, until streams() is reached.  Must not outlive this
  /// transport.
  virtual std::unique_ptr<Transport> split(const std::vector<int>& members, int stream) = 0;
  virtual int streams() const = 0;

  /// @name Sleeping
  /// For transports whose messages can wake a thread.  The others are looked at now and then.
  /// @{
  /// False where messages wake nobody.  @p arrived is called, on a thread of the transport's, once for each arm(true)
  /// after which something has arrived; empty: no more, and no call is under way on return.
  virtual bool watch(std::function<void()> arrived) {
    (void)arrived;
    return false;
  }
  /// Any thread.
  virtual void arm(bool on) { (void)on; }
  /// Any thread.  Sleeps until something arrives, or so long; false where messages wake nobody.
  virtual bool nap(std::int64_t ns) {
    (void)ns;
    return false;
  }
  /// Sends what the network has had no room for.  True where some of it is left, which may be of a send whose ticket is
  /// done: somebody must call this again, nap() tells when.
  virtual bool flush() { return false; }
  /// @}
  /// Ranks that are gone, as far as the transport has seen.
  virtual std::vector<LostPeer> lost() const { return {}; }
  /// Why the world is over (revocation.h); empty: it is not.
  virtual std::string revoked() const { return {}; }
  /// Ranks that have not answered for some seconds, and are not given up yet: a link may come back.
  virtual std::vector<LostPeer> silent() const { return {}; }

  /// By peer, and by card where several reach it; empty where nothing is counted.  A system call for each connection.
  virtual std::vector<LinkUse> links() const { return {}; }

  /// Zeroed memory that all of @p members (this rank too, same order everywhere) see, when the
  /// transport has a way of its own; nullptr: use a shared-memory file.
  virtual std::shared_ptr<void> share_in_process(const std::vector<int>& members, std::size_t bytes) {
    (void)members, (void)bytes;
    return nullptr;
  }
};

/// Everybody's text, by rank.  Collective over all ranks; throws Error{timeout} after @p limit_seconds, naming who is
/// missing.
std::vector<std::string> exchange(Transport& t, const std::string& mine, double limit_seconds);

/// Sends and waits until the bytes are out of our hands.  Throws Error{timeout}.
void send_blocking(Transport& t, int to, Tag tag, const std::string& body, double limit_seconds);
/// Waits for one message of @p tag.  Throws Error{timeout} that says @p waiting_for.
Message receive_blocking(Transport& t, Tag tag, double limit_seconds, const std::string& waiting_for);

}  // namespace hvd::transport
