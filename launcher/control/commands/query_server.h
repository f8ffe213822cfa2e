/// @file query_server.h — a running job answers questions of other hvdrun processes of this user.
///
/// A question is one line, the answer is one text.  A line may also ask for a conversation: bytes both ways until one
/// side ends it.  Questions come through a unix socket in the job's folder (mode 0700).  The caller's user id is
/// checked as well.
#pragma once
#include <poll.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace hvd::launcher {

/// The job's side.  Never blocks.  Thread: the event loop's.
class QueryServer {
 public:
  static constexpr const char* socket_name = "/commands.sock";

  /// @param folder  the job's folder.  If the socket cannot be made, the job runs without one.
  explicit QueryServer(const std::string& folder);

  struct Query {
    int id = 0;
    std::string line;
  };
  /// Adds the descriptors that become readable when a caller connects or a caller in a conversation sends bytes.  Other
  /// callers have no descriptor here: while has_callers(), call next() from time to time.
  void add_fds(std::vector<pollfd>& fds) const;
  bool has_callers() const { return !peers_.empty(); }
  /// Accepts callers, reads and writes without waiting.  Returns the next whole line, or nothing.
  std::optional<Query> next();
  /// Answers a query; the connection ends once the answer is written.
  void answer(int id, std::string text);

  /// Turns a query into a conversation: heard() returns the caller's bytes, say() sends bytes.
  void converse(int id);
  struct Heard {
    int id = 0;
    std::string bytes;
    bool ended = false;  ///< no more bytes will come
    bool gone = false;   ///< the connection is over: the caller reads no more
  };
  /// The bytes that one caller has sent since the last call; nothing: no caller has sent any.  Call it after next().
  std::optional<Heard> heard();
  /// Queues bytes for a caller.  A caller with more than 16 MiB of unread bytes is disconnected: its next Heard has
  /// `gone`.
  void say(int id, std::string_view bytes);
  /// Ends a conversation once all bytes are written.
  void end(int id);

  /// Bytes of answers that callers have not read yet.
  std::size_t pending_bytes() const;

 private:
  struct QueryClient {
    int id;
    Fd fd;
    std::chrono::steady_clock::time_point since;
    std::string in{}, out{};
    bool asked = false, answered = false;
    bool converses = false, in_ended = false, gone = false;
    bool end_told = false;  ///< heard() has returned the end
  };
  static bool is_silent(const QueryClient& peer) { return !peer.asked; }
  bool has_room() const;
  void accept_all();
  bool serve(QueryClient& peer);
  void listen_to(QueryClient& peer);

  Fd listener_;
  std::vector<QueryClient> peers_;
  int next_id_ = 1;
};

/// Connects to the job in @p folder, and sends it one line.  Throws Error{unavailable}.
Fd call_job(const std::string& folder, const std::string& line, std::chrono::milliseconds limit);

/// Sends one line to the job in @p folder and returns the answer.  Throws Error{unavailable}, Error{timeout}.
std::string ask_job(const std::string& folder, const std::string& line, std::chrono::milliseconds limit);

}  // namespace hvd::launcher
