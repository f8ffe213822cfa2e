/// @file driver.cc — replaces hvdrun and mpirun in tests of hvdrank alone.
///
///   driver HVDRANK MANIFESTS [PAYLOAD]
/// MANIFESTS: a file, one manifest (JSON) a line. Starts one hvdrank per line, as mpirun would, and prints their
/// messages as JSON lines on stdout. Reads commands from stdin:
///   stop RANK GRACE | signal RANK NUMBER | release | hold (no release by itself) | pause | resume
/// Ends when all hvdranks have ended.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "wire/channel/channel.h"
#include "wire/json.h"
#include "wire/manifest/manifest.h"
#include "wire/messages/hello.h"
#include "wire/messages/message.h"
#include "wire/messages/payload_ready.h"
#include "wire/messages/stop_request.h"

using namespace hvd;
using namespace hvd::wire;

namespace {

struct Rank {
  RankManifest manifest;
  pid_t watchdog = -1;
  PeerId peer;
  bool clean = false;
};

class Driver {
 public:
  Driver(std::string program, const char* manifests, const char* payload) : program_(std::move(program)) {
    std::ifstream file(manifests);
    for (std::string line; std::getline(file, line);) {
      Rank r;
      r.manifest = manifest_from_json(line);
      ranks_.push_back(std::move(r));
    }
    if (payload) payload_ = read_file(payload, std::size_t{1} << 32);
    const char* folder = std::getenv("HVD_DRIVER_FOLDER");  // its owner removes it, also when this process is killed
    if (folder == nullptr) throw Error(Code::usage, "HVD_DRIVER_FOLDER", "is not set");
    folder_ = folder;
    listener_ = wire::listen({"unix://" + folder_ + "/local.sock"}, server_, client_.public_key);
    fcntl(0, F_SETFL, O_NONBLOCK);
  }
  int run() {
    for (std::size_t i = 0; i < ranks_.size(); ++i) start(i);
    while (living() > 0) {
      pollfd fds[] = {{listener_->fd(), POLLIN, 0}, {0, POLLIN, 0}};
      poll(fds, commands_end_ ? 1 : 2, 50);
      while (!paused_)
        if (auto r = listener_->receive())
          take(*r);
        else
          break;
      while (auto gone = listener_->gone()) say(Json{{"event", "gone"}, {"rank", rank_of(*gone)}});
      commands();
      reap();
    }
    return 0;
  }

 private:
  static void say(const Json& event) { std::cout << dump(event) << std::endl; }

  void start(std::size_t i) {
    Rank& r = ranks_[i];
    r.watchdog = fork();
    if (r.watchdog != 0) return;
    setpgid(0, 0);
    setenv("OMPI_COMM_WORLD_RANK", std::to_string(r.manifest.rank).c_str(), 1);
    setenv("HVD_JOB", r.manifest.job.c_str(), 1);
    setenv("HVD_SERVER_KEY", server_.public_key.c_str(), 1);
    setenv("HVD_JOB_KEYS", (client_.public_key + ":" + client_.secret_key).c_str(), 1);
    setenv("HVD_JOB_DIR", folder_.c_str(), 1);
    execl(program_.c_str(), program_.c_str(), nullptr);
    _exit(127);
  }

  std::size_t index_of(int rank) const {
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      if (ranks_[i].manifest.rank == rank) return i;
    throw Error(Code::usage, "driver", "no such rank");
  }
  int rank_of(const PeerId& peer) const {
    for (const Rank& r : ranks_)
      if (r.peer == peer) return r.manifest.rank;
    return -1;
  }

  void send(const Rank& r, Type type, const std::string& body) {
    if (r.peer.empty()) return;
    try {
      for (int i = 0; i < 2000 && !listener_->send(r.peer, {static_cast<std::uint16_t>(type), body}); ++i) usleep(5000);
    } catch (const Error&) {}
  }

  void take(const Listener::PeerFrame& r) {
    const auto type = static_cast<Type>(r.frame.type);
    if (type == Type::hello) return welcome(r);
    const int number = rank_of(r.from);
    if (number < 0) return;
    Rank& rank = ranks_[index_of(number)];
    Json event{{"rank", number}};
    const std::string& body = r.frame.body;
    switch (type) {
      case Type::output:
        event["event"] = body[0] == 1 ? "stdout" : "stderr";
        event["text"] = body.substr(1);
        break;
      case Type::death:
        event["event"] = "death";
        event["death"] = Json::parse(body);
        break;
      case Type::clean:
        event["event"] = "clean";
        rank.clean = true;
        break;
      case Type::started:
        event["event"] = "started";
        event["started"] = Json::parse(body);
        break;
      case Type::phase:
        event["event"] = "phase";
        event["text"] = body;
        break;
      case Type::result:
      case Type::trace:
        event["event"] = type == Type::trace ? "trace" : "result";
        event["hex"] = hex(body);
        break;
      case Type::payload_ready:
        return share(body);
      case Type::pong:
        event["event"] = "pong";
        break;
      default:
        event["event"] = "type" + std::to_string(r.frame.type);
    }
    say(event);
    if (!hold_ && std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& x) { return x.clean; })) release();
  }

  static std::string hex(const std::string& bytes) {
    std::string out;
    char two[3];
    for (const unsigned char c : bytes) {
      std::snprintf(two, sizeof two, "%02x", c);
      out += two;
    }
    return out;
  }

  void welcome(const Listener::PeerFrame& r) {
    const Hello h = hello_from_json(r.frame.body);
    Rank& rank = ranks_[index_of(h.rank)];
    rank.peer = r.from;
    say(Json{{"event", "hello"}, {"rank", h.rank}, {"pid", h.pid}, {"watchdog", rank.watchdog}});
    send(rank, Type::manifest, to_json(rank.manifest));
    if (!rank.manifest.payload.deliver) return;
    for (std::size_t at = 0; at < payload_.size(); at += max_frame_bytes)
      send(rank, Type::payload, payload_.substr(at, max_frame_bytes));
    send(rank, Type::payload, "");
  }

  void share(const std::string& body) {
    for (Rank& r : ranks_) {
      if (r.manifest.payload.deliver) continue;
      r.manifest.payload.path = payload_ready_from_json(body).path;
      send(r, Type::manifest, to_json(r.manifest));
    }
  }

  void release() {
    for (const Rank& r : ranks_) send(r, Type::release, "");
  }

  void commands() {
    char buffer[4096];
    const ssize_t n = commands_end_ ? -1 : read(0, buffer, sizeof buffer);
    if (n == 0) commands_end_ = true;
    if (n > 0) pending_.append(buffer, static_cast<std::size_t>(n));
    for (std::size_t end; (end = pending_.find('\n')) != std::string::npos; pending_.erase(0, end + 1))
      command(pending_.substr(0, end));
  }

  void command(const std::string& line) {
    std::istringstream in(line);
    std::string verb;
    int rank = 0;
    double number = 0;
    in >> verb >> rank >> number;
    if (verb == "stop") send(ranks_[index_of(rank)], Type::stop, to_json(StopRequest{"test", number}));
    if (verb == "signal") {
      const auto n = static_cast<std::int32_t>(number);
      send(ranks_[index_of(rank)], Type::signal, std::string(reinterpret_cast<const char*>(&n), sizeof n));
    }
    if (verb == "hold") hold_ = true;
    if (verb == "pause") paused_ = true;
    if (verb == "resume") paused_ = false;
    if (verb == "release") release();
  }

  void reap() {
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
      for (Rank& r : ranks_)
        if (r.watchdog == pid) {
          r.watchdog = -1;
          const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
          say(Json{{"event", "exit"}, {"rank", r.manifest.rank}, {"code", code}});
        }
  }

  long living() const {
    return std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.watchdog > 0; });
  }

  std::string program_, payload_, folder_, pending_;
  std::vector<Rank> ranks_;
  KeyPair server_ = KeyPair::for_this_host(), client_ = KeyPair::for_this_host();
  std::unique_ptr<Listener> listener_;
  bool hold_ = false, commands_end_ = false, paused_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  try {
    return Driver(argv[1], argv[2], argc > 3 ? argv[3] : nullptr).run();
  } catch (const std::exception& e) {
    std::cerr << "driver: " << e.what() << "\n";
    return 70;
  }
}
