/// Callers that send nothing, and hvdrun without a free descriptor.
#include "launcher/control/commands/query_server.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "base/random.h"

using namespace hvd;
using namespace hvd::launcher;
using namespace std::chrono_literals;

namespace {

struct Folder {
  const std::string path = "/tmp/hvd-query-" + random_letters(12);
  Folder() { std::filesystem::create_directory(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

/// Connects and sends nothing. The connection waits in the server's queue; a full queue refuses it.
Fd silent_call(const std::string& folder) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, (folder + QueryServer::socket_name).c_str());
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return fd;
}

/// Returns the answer that a caller gets while the server turns.
std::string asked(QueryServer& server, const std::string& folder) {
  auto answer = std::async(std::launch::async, [&] { return ask_job(folder, "status", 10s); });
  while (answer.wait_for(1ms) != std::future_status::ready)
    while (const auto query = server.next())
      if (query->line == "status") server.answer(query->id, "it runs");
  return answer.get();
}

}  // namespace

TEST_CASE("callers of a job who say nothing make room for one who asks") {
  const Folder folder;
  QueryServer server(folder.path);
  std::vector<Fd> silent;
  for (int i = 0; i < 60; ++i) {
    silent.push_back(silent_call(folder.path));
    CHECK(!server.next());
  }
  CHECK(asked(server, folder.path) == "it runs");
}

TEST_CASE("a job of which strangers have taken all descriptors but those held back still answers") {
  const Folder folder;
  QueryServer server(folder.path);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit few = before;
  const auto open_ones = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  few.rlim_cur = static_cast<rlim_t>(open_ones) + 40;  // accept() of the library gets no descriptor
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  CHECK(asked(server, folder.path) == "it runs");
  CHECK(::setrlimit(RLIMIT_NOFILE, &before) == 0);
}
