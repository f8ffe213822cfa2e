/// @file share.h — memory that the ranks of one node share.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "transport/transport.h"

namespace hvd::transport {

/// Creates shared memory in steps that do not wait.  The members exchange messages with Tag::share.  Until done() is
/// true, the caller must not use that tag of the transport.
class Sharing {
 public:
  /// @p t must outlive this.  @p members: ranks of @p t on one node, in the same order on all members.
  Sharing(Transport& t, std::vector<int> members, std::size_t bytes);
  ~Sharing();
  /// Does one step.  Returns true if the step made progress.  Throws Error{unavailable}.  The other members then get
  /// the same error or their memory, and wait for nothing more.
  bool step();
  bool done() const { return memory_ && left_ == 0 && sends_.empty(); }
  std::shared_ptr<void> memory() const { return memory_; }

 private:
  struct Send {
    Ticket ticket;
    std::shared_ptr<std::string> body;
  };
  void begin();
  void create();
  int create_in_shm();
  std::string create_unnamed();
  void open(const std::string& told);
  void send(int to, const std::string& body);

  Transport& transport_;
  const std::vector<int> members_;
  const std::size_t bytes_;
  bool begun_ = false;
  int left_ = 0;      ///< messages that have not arrived yet
  std::string name_;  ///< file name in /dev/shm; empty: no file to unlink
  Fd file_;           ///< on the creator, until all members have opened the file
  std::shared_ptr<void> memory_;
  std::vector<Send> sends_;
};

/// Returns zeroed, page-aligned memory of @p bytes bytes that all @p members share.  @p members: ranks of @p t on one
/// node, in the same order on all members.  Collective over the members.  The first member creates the memory as a file
/// in /dev/shm.  If /dev/shm has no room, that member creates a file without a name.  When the first member returns, no
/// file is left in /dev/shm.  Throws Error{unavailable} if the memory cannot be created or mapped, Error{timeout} after
/// @p limit_seconds, and Error{peer_lost} if the world ends.
std::shared_ptr<void> share(Transport& t, const std::vector<int>& members, std::size_t bytes, double limit_seconds);

}  // namespace hvd::transport
