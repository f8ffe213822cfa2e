/// @file share.h — memory that the ranks of one node share.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "transport/transport.h"

namespace hvd::transport {

/// The steps to it, none of which waits.  Members exchange messages with Tag::share; nothing else may use that tag of
/// @p t meanwhile.
class Sharing {
 public:
  Sharing(Transport& t, std::vector<int> members, std::size_t bytes);
  ~Sharing();
  /// True when anything moved.  Throws Error{unavailable}; the other members then do so too, or have their memory.
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
  int left_ = 0;      ///< messages still to come
  std::string name_;  ///< in /dev/shm; empty when there is nothing to unlink
  Fd file_;           ///< the creator's, until all have opened it
  std::shared_ptr<void> memory_;
  std::vector<Send> sends_;
};

/// Zeroed memory of @p bytes bytes, page-aligned, seen by all of @p members (world ranks of one node, in the same
/// order everywhere).  Collective over them; the lowest creates it, in /dev/shm or, where that
/// has no room, in a file without a name.  Nothing is left in /dev/shm once it returns.
/// Throws Error{unavailable} when there is no memory to share, Error{timeout} when a member does not come.
std::shared_ptr<void> share(Transport& t, const std::vector<int>& members, std::size_t bytes, double limit_seconds);

}  // namespace hvd::transport
