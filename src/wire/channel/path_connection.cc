/// @file path_connection.cc — a host daemon's end of a connection over several networks (paths.h).
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "wire/channel/paths.h"
#include "wire/channel/unconfirmed_frames.h"
#include "wire/messages/message.h"

namespace hvd::wire {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds attempt_limit(10000);

Frame path_frame(const std::string& name, std::size_t number, std::size_t all, const std::string& address) {
  return {static_cast<std::uint16_t>(Type::path), name + static_cast<char>(number) + static_cast<char>(all) + address};
}

Frame count_frame(Type type, std::uint64_t count) { return {static_cast<std::uint16_t>(type), path_count_body(count)}; }

class PathConnection : public Connection {
 public:
  explicit PathConnection(std::vector<OpenPath> paths) {
    const std::string name = random_letters(path_name_letters);
    for (std::size_t i = 0; i < paths.size(); ++i)
      paths_.push_back({std::move(paths[i].connection), path_frame(name, i, paths.size(), paths[i].address)});
    for (const Path& path : paths_) watch(path);
    if (!active().send(paths_[0].greeting)) throw Error(Code::internal, "channel", "a new connection takes no frame");
    paths_[0].has_greeted = true;
  }

  int fd() const override { return epoll_.get(); }

  std::optional<Frame> receive() override {
    look_after_others();
    while (!is_deceived_) {
      if (auto frame = active().receive()) {
        if (take(*frame)) return frame;
      } else if (!leave_lost_path()) {
        break;
      }
    }
    flush();
    return std::nullopt;
  }

  bool send(const Frame& frame) override {
    if (frames_.is_full() || !flush() || !active().send(frame)) return false;
    frames_.add(frame);
    return true;
  }

  bool connected() override { return true; }

  std::optional<milliseconds> lost_for() override {
    if (is_deceived_) return std::chrono::duration_cast<milliseconds>(Clock::now() - deceived_at_);
    look_after_others();
    return may_move() ? std::nullopt : active().lost_for();  // receive() moves the connection
  }

  bool spans_networks() override {
    look_after_others();
    return !is_deceived_ && (may_move() || (has_moved_ && !active().lost_for()));
  }

  void drop_unsent() override {
    for (const Path& path : paths_) path.connection->drop_unsent();
  }

 private:
  struct Path {
    std::unique_ptr<Connection> connection;
    Frame greeting;
    bool has_greeted = false;  ///< hvdrun gets, or has got, the first frame
  };

  Connection& active() { return *paths_.front().connection; }

  /// A path that is up and not in use, or the end.
  std::vector<Path>::iterator other_path() {
    return std::find_if(paths_.begin() + 1, paths_.end(), [](const Path& path) { return path.has_greeted; });
  }
  bool may_move() { return other_path() != paths_.end(); }

  /// Greets hvdrun on paths that have come up, and drops those that have ended or do not come up.
  void look_after_others() {
    for (auto path = paths_.begin() + 1; path != paths_.end();) {
      if (!path->has_greeted && path->connection->connected())
        path->has_greeted = path->connection->send(path->greeting);
      const auto lost_for = path->connection->lost_for();
      if (lost_for && (path->has_greeted || *lost_for > attempt_limit))
        path = drop(path);
      else
        ++path;
    }
  }

  /// Moves to another path if the present one has ended.
  bool leave_lost_path() {
    if (!active().lost_for()) return false;
    look_after_others();
    const auto other = other_path();
    if (other == paths_.end()) return false;
    std::swap(paths_.front(), *other);
    drop(other);
    active().send(count_frame(Type::moved, frames_.received()));  // a path without frames takes it
    frames_.has_confirmed();
    is_moving_ = has_moved_ = true;
    return true;
  }

  std::vector<Path>::iterator drop(std::vector<Path>::iterator path) {
    path->connection->drop_unsent();
    return paths_.erase(path);
  }

  /// False for a frame of the paths themselves.
  bool take(const Frame& frame) {
    const auto type = static_cast<Type>(frame.type);
    if (type == Type::ping) return false;  // hvdrun's listener asks whether the path has ended
    if (type == Type::confirmed) return check(frames_.confirm(path_count_of(frame.body)));
    if (type == Type::moved) {
      is_moving_ = false;
      return check(frames_.resume(path_count_of(frame.body)));
    }
    if (is_moving_) return check(false);  // the answer comes first
    frames_.count_received(frame);
    return true;
  }

  /// @p is_possible  hvdrun's claim can be true.  Returns false.
  bool check(bool is_possible) {
    if (is_possible) return false;
    is_deceived_ = true;
    deceived_at_ = Clock::now();
    return false;
  }

  /// Sends the waiting frames of the paths themselves.  False: the path takes no more, or hvdrun has not answered yet.
  bool flush() {
    if (is_deceived_ || is_moving_) return false;
    for (; const Frame* frame = frames_.next_to_repeat(); frames_.repeated())
      if (!active().send(*frame)) return false;
    if (!frames_.owes_confirmation()) return true;
    if (!active().send(count_frame(Type::confirmed, frames_.received()))) return false;
    frames_.has_confirmed();
    return true;
  }

  void watch(const Path& path) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (!epoll_ || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, path.connection->fd(), &event) != 0)
      throw Error(Code::unavailable, "epoll", errno_text(errno));
  }

  std::vector<Path> paths_;  ///< never empty; the first is in use
  Fd epoll_{::epoll_create1(EPOLL_CLOEXEC)};
  UnconfirmedFrames frames_;
  bool is_moving_ = false;  ///< hvdrun has not answered the last move
  bool has_moved_ = false, is_deceived_ = false;
  Clock::time_point deceived_at_;
};

}  // namespace

std::string path_count_body(std::uint64_t count) {
  std::string body;
  for (int shift = 0; shift < 64; shift += 8) body += static_cast<char>(count >> shift & 0xff);
  return body;
}

std::uint64_t path_count_of(std::string_view body) {
  if (body.size() != 8) return refused_move;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < 8; ++i) count |= std::uint64_t{static_cast<unsigned char>(body[i])} << (8 * i);
  return count;
}

std::unique_ptr<Connection> over_paths(std::vector<OpenPath> paths) {
  if (paths.size() > most_paths) paths.resize(most_paths);
  return std::make_unique<PathConnection>(std::move(paths));
}

}  // namespace hvd::wire
