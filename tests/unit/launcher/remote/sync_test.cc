/// The list of a folder that --sync copies, its mark, and the conversation with the shell.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/own_folder.h"
#include "base/text.h"
#include "launcher/remote/shell_talk.h"
#include "launcher/remote/sync_list.h"
#include "launcher/remote/sync_script.h"

using namespace hvd;
using namespace hvd::launcher;
using namespace std::chrono_literals;

namespace {

std::string text(const std::vector<SyncEntry>& entries) {
  std::string out;
  for (const SyncEntry& e : entries) out += std::string(1, e.kind) + ":" + e.name + " ";
  return out;
}

ShellTalk::Time in(std::chrono::milliseconds time) { return ShellTalk::Time::clock::now() + time; }

}  // namespace

TEST_CASE("sync: the list of a folder") {
  const OwnFolder room(place_for_own_folder(), "hvd-test-", getpid());
  const std::filesystem::path folder = room.path();
  for (const char* name : {"b/.venv", "b/__pycache__", "b/.git", ".git", "a"})
    std::filesystem::create_directories(folder / "job" / name);
  for (const char* name : {".git/config", "b/.venv/x", "b/x", "b-x", ".hvdrun-sync", ".gitignore", "b/.hvdrun-sync"})
    std::ofstream(folder / "job" / name) << "12345";
  std::filesystem::create_directory_symlink("/etc", folder / "job/link");
  REQUIRE(::mkfifo((folder / "job/pipe").c_str(), 0600) == 0);
  const SyncList list = list_folder(folder / "job");
  CHECK(text(list.entries) == "f:.gitignore d:a d:b f:b-x f:b/.hvdrun-sync f:b/x l:link ");
  CHECK(list.bytes == 20);
  CHECK(list.entries[0].stamp.starts_with("5 1"));
  CHECK_THROWS_AS(list_folder(folder / "none"), Error);
}

TEST_CASE("sync: a mark keeps every name, and none that leads out of the folder") {
  const std::vector<SyncEntry> entries{{"a b", 'd', ""}, {"a b/\n%0A%", 'f', "5 99"}, {" x ", 'l', "1 -2"}};
  const std::string mark = mark_text(entries);
  CHECK(split(mark, '\n').at(0) == sync_mark_line);
  CHECK(entries_of_mark(split(mark, '\n')) == entries);
  for (const char* line : {"f 1 2 ../x", "f 1 2 a/../../x", "d 0 0 /etc", "f 1 2 a//b", "f 1 2 ", "f 1 2", "x 1 2 a",
                           "f", "", "hvdrun sync 1", "f 1 2 .", "f 1 2 a/."})
    CHECK(entries_of_mark({line}).empty());
}

TEST_CASE("sync: files that are gone are removed before their folder") {
  const std::vector<SyncEntry> before{{"a", 'd', ""}, {"a/b", 'f', "1 2"}, {"c", 'l', "1 2"}, {"d", 'f', "1 2"}};
  CHECK(text(gone(before, {{"d", 'f', "9 9"}})) == "l:c f:a/b d:a ");
  CHECK(text(gone(before, {{"a", 'd', ""}, {"a/b", 'f', "1 2"}, {"c", 'd', ""}, {"d", 'f', ""}})) == "l:c ");
  CHECK(sync_unpacking({{"it's", 'f', "1 2"}}, {}).find("hvd_gone 'it'\\''s' '1 2'\n") != std::string::npos);
}

TEST_CASE("sync: a conversation with a shell") {
  ShellTalk talk({"/bin/sh"}, in(120s));
  CHECK(talk.say("echo one; echo to-err >&2; read -r x; echo \"got $x\"; cat | wc -c; exit 3\n", 60s));
  CHECK(talk.line(60s) == "one");  // a shell may read ahead, so the rest waits for a sign
  CHECK(talk.say("word\n", 60s));
  CHECK(talk.line(60s) == "got word");
  const OwnFolder room(place_for_own_folder(), "hvd-test-", getpid());
  std::ofstream(room.path() + "/file") << std::string(3'000'000, 'x');
  const Fd file(::open((room.path() + "/file").c_str(), O_RDONLY));
  std::uint64_t told = 0;
  CHECK(talk.send_file(file.get(), 3'000'000, 60s, [&](std::uint64_t at) { told = at; }));
  CHECK(told == 3'000'000);
  CHECK(talk.line(60s) == "3000000");
  CHECK(!talk.line(60s));
  CHECK(!talk.timed_out());
  CHECK(talk.finish() == 3 << 8);
  CHECK(talk.errors() == "to-err\n");
}

TEST_CASE("sync: a shell that does nothing, one that ends, and one that cannot start") {
  {
    ShellTalk silent({"sleep", "100"}, in(200ms));
    CHECK(!silent.line(60s));
    CHECK(silent.timed_out());
  }
  {
    ShellTalk full({"sleep", "100"}, in(120s));
    CHECK(!full.say(std::string(8 << 20, 'x'), 0s));
    CHECK(full.timed_out());
    CHECK(WIFSIGNALED(full.finish()));
  }
  ShellTalk ended({"true"}, in(120s));
  CHECK(!ended.say(std::string(8 << 20, 'x'), 60s));
  CHECK(!ended.timed_out());
  CHECK(ended.finish() == 0);
  CHECK_THROWS_AS(ShellTalk({"/no/such/ssh"}, in(1s)), Error);
}
