/// @file transport.h — how ranks reach each other outside shared memory.
///
/// A transport sends tagged byte messages between ranks.  Messages of one (sender, receiver, tag) arrive in order.  No
/// call blocks, except nap().  Three implementations exist: tcp/ over sockets, libhvd_mpi.so over MPI, and loopback.h
/// for ranks that are threads of one process.  Each process set has a view of the transport (split()).  The members of
/// a set have ranks from 0 in its view.  Messages of different views never mix.
///
/// Thread: one at a time, under the engine's drive lock.  Calls that any thread may make say so.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hvd::transport {

/// Identifies a kind of message.  Messages with different tags never mix.
enum class Tag : int { exchange = 1, share = 2, up = 3, down = 4, data = 5, second = 6 };

struct Message {
  int from = 0;
  std::string body;
};

/// A peer from lost() or silent().  lost(): its connection ended without a goodbye.  silent(): its host does not
/// answer.
struct LostPeer {
  int rank = 0;
  std::string text;  ///< one line that names the rank
};

/// The traffic from this rank to another rank over a network.  Counting starts when the connections are made.
struct LinkUse {
  int peer = 0;
  std::string card;                ///< network interface of this host; empty: only one interface reaches the peer
  std::int64_t bytes = 0;          ///< bytes that the peer's kernel has acknowledged
  std::int64_t busy_ns = 0;        ///< time during which bytes waited for the network
  std::int64_t round_trip_ns = 0;  ///< shortest measured round trip; 0: unknown
};

/// Names a send or receive that is not finished.  0: no operation.
using Ticket = std::uint64_t;

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// [size] a host number for each rank.  Ranks with the same number can share memory.
  virtual const std::vector<int>& host_of() const = 0;
  /// True if other threads of this process may call MPI.
  virtual bool threads_multiple() const = 0;
  /// [size] the text of each rank, exchanged while the world was formed.  Empty: no texts were exchanged.
  virtual const std::vector<std::string>& introductions() const {
    static const std::vector<std::string> none;
    return none;
  }

  /// Starts to send @p bytes bytes.  @p data must stay valid until test() returns true.  The limit is 2 GiB - 1 bytes
  /// for Tag::data and Tag::second, and 256 MiB for other tags.  Throws Error{peer_lost}.
  virtual Ticket isend(int to, Tag tag, const void* data, std::size_t bytes) = 0;
  /// Like isend().  The caller keeps its reference to @p body until test() returns true.  The transport may keep
  /// another one longer.
  virtual Ticket isend_shared(int to, Tag tag, const std::shared_ptr<std::string>& body) {
    return isend(to, tag, body->data(), body->size());
  }
  /// Starts to receive a message of exactly @p bytes bytes.  @p data must stay valid until test() returns true.  Throws
  /// Error{peer_lost}.
  virtual Ticket irecv(int from, Tag tag, void* data, std::size_t bytes) = 0;
  /// Returns true when the operation is complete.  The ticket is then invalid.  Always true for ticket 0.  Throws
  /// Error{peer_lost}.
  virtual bool test(Ticket ticket) = 0;
  /// Ends the operation without waiting for the peer.  The ticket is then invalid.  Never blocks.
  virtual void abandon(Ticket ticket) = 0;
  /// True if the transport no longer accesses the caller's memory after abandon().
  virtual bool gives_memory_back() const { return false; }
  /// Returns the next complete message with this tag, from any rank.  nullopt: no message has arrived.  Tag::data and
  /// Tag::second are not allowed.
  virtual std::optional<Message> poll(Tag tag) = 0;

  /// Makes the view of a process set: member i has rank i in the view.  The view must not outlive this transport.
  /// @param members  [size of the set] ranks of this transport, including this rank
  /// @param stream  1 to streams() - 1.  All members pass the same number, and no other living view has the number.
  ///   A rank passes a larger number for each new view, until the numbers reach streams().
  virtual std::unique_ptr<Transport> split(const std::vector<int>& members, int stream) = 0;
  virtual int streams() const = 0;

  /// @name Sleeping
  /// These calls are for transports whose messages can wake a thread.  The engine polls other transports.
  /// @{
  /// After each arm(true), a thread of the transport calls @p arrived once when a message arrives.  An empty @p arrived
  /// ends the calls: watch() then waits until a running call returns.  Returns false if messages wake no thread.
  virtual bool watch(std::function<void()> arrived) {
    (void)arrived;
    return false;
  }
  /// True: causes one call of watch()'s function when a message is available.  False: prevents the call.  Any thread.
  virtual void arm(bool on) { (void)on; }
  /// Causes one call of watch()'s function after about a millisecond, message or not.  Any thread.
  virtual void call_later() {}
  /// Sleeps until a message arrives, for at most @p ns nanoseconds.  Returns false if messages wake no thread.  Any
  /// thread.
  virtual bool nap(std::int64_t ns) {
    (void)ns;
    return false;
  }
  /// Sends bytes that the kernel did not accept earlier.  Returns true if bytes still wait.  The caller must then call
  /// flush() again, after nap().  Bytes can wait although the ticket of their send is done.
  virtual bool flush() { return false; }
  /// @}
  /// Ranks that the transport has found to be lost.
  virtual std::vector<LostPeer> lost() const { return {}; }
  /// The reason why the world has ended (revocation.h).  Empty: the world has not ended.
  virtual std::string revoked() const { return {}; }
  /// Ranks that have not answered for some seconds and do not count as lost yet.  A network link may recover.
  virtual std::vector<LostPeer> silent() const { return {}; }

  /// The traffic with each peer, split by network interface if several interfaces reach the peer.  Empty: the transport
  /// does not count traffic.  Makes a system call for each connection.
  virtual std::vector<LinkUse> links() const { return {}; }

  /// Returns zeroed memory that all @p members share.  @p members includes this rank, and has the same order on all
  /// members.  nullptr: the transport has no memory of this kind, and the caller must use a shared-memory file.
  virtual std::shared_ptr<void> share_in_process(const std::vector<int>& members, std::size_t bytes) {
    (void)members, (void)bytes;
    return nullptr;
  }
};

/// Sends @p mine to all ranks, and returns the texts of all ranks: [size] by rank.  Collective over all ranks.  Each
/// wait for another rank lasts at most @p limit_seconds.  Then throws Error{timeout}, which names a missing rank.
std::vector<std::string> exchange(Transport& t, const std::string& mine, double limit_seconds);

/// Sends @p body, and waits until the transport no longer reads the body.  Throws Error{timeout}.
void send_blocking(Transport& t, int to, Tag tag, const std::string& body, double limit_seconds);
/// Waits for one message with @p tag.  Throws Error{timeout}.  The error's text contains @p waiting_for.
Message receive_blocking(Transport& t, Tag tag, double limit_seconds, const std::string& waiting_for);

}  // namespace hvd::transport
