/// @file query_server.h — a running job answers questions of other hvdrun processes of this user: one line in, one text
/// out.
///
/// The questions come through a unix socket in the job's folder (mode 0700); the caller's user id is checked as well.
#pragma once
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace hvd::launcher {

/// The end of the job.  Never blocks.  Thread: the event loop's.
class QueryServer {
 public:
  static constexpr const char* socket_name = "/commands.sock";

  /// @param folder  the job's.  A job whose socket cannot be made runs without one.
  explicit QueryServer(const std::string& folder);

  struct Query {
    int id = 0;
    std::string line;
  };
  /// Where the first caller is announced; -1 while somebody calls, or nobody can: then call next() from time to time.
  int fd() const { return peers_.empty() ? listener_.get() : -1; }
  bool has_callers() const { return !peers_.empty(); }
  /// Accepts callers, reads and writes without waiting.  Returns the next whole line, or nothing.
  std::optional<Query> next();
  /// Answers a query; the connection ends once the answer is written.
  void answer(int id, std::string text);
  /// Bytes of answers that callers have not read yet.
  std::size_t pending_bytes() const;

 private:
  struct QueryClient {
    int id;
    Fd fd;
    std::string in, out;
    bool asked = false, answered = false;
    std::chrono::steady_clock::time_point since;
  };
  void accept_all();
  bool serve(QueryClient& peer);

  Fd listener_;
  std::vector<QueryClient> peers_;
  int next_id_ = 1;
};

/// Sends one line to the job in @p folder and returns the answer.  Throws Error{unavailable}, Error{timeout}.
std::string ask_job(const std::string& folder, const std::string& line, std::chrono::milliseconds limit);

}  // namespace hvd::launcher
