#include "base/files/own_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "../temp_folder.h"
#include "base/error.h"

using namespace hvd;
namespace fs = std::filesystem;

namespace {

constexpr uid_t somebody = 54321;

/// A folder that all users may write to, and a private file beside it.
struct Shared {
  Shared() {
    chmod(top.c_str(), 0755);
    fs::create_directory(path);
    chmod(path.c_str(), 01777);
    std::ofstream(top + "/mine") << "precious\n";
  }
  const test::TempFolder folder;
  const std::string &top = folder.path, path = top + "/shared";
};

std::string text_of(const std::string& path) { return read_file(path, 1000); }

std::string refusal(const std::string& path) {
  try {
    open_own_file(path, WriteMode::truncate, 0600);
  } catch (const Error& e) { return e.what(); }
  return "";
}

void put(const std::string& path, std::string_view text) {
  CHECK(write_all(open_own_file(path, WriteMode::truncate, 0640).get(), text));
}

}  // namespace

TEST_CASE("own file: made, emptied, appended to; by links of our own, and through what is no file") {
  const Shared shared;
  const std::string path = shared.path + "/f";
  const mode_t before = umask(0);
  put(path, "one");
  umask(before);
  struct stat about {};
  stat(path.c_str(), &about);
  CHECK((about.st_mode & 0777) == 0640);
  put(path, "two");
  CHECK(write_all(open_own_file(path, WriteMode::append, 0600).get(), "three"));
  CHECK(text_of(path) == "twothree");

  fs::create_directory(shared.top + "/real");
  fs::create_symlink("../real", shared.path + "/folder");
  fs::create_symlink("./folder//../shared/folder/x", shared.path + "/link");
  put(shared.path + "/link", "through both");
  CHECK(text_of(shared.top + "/real/x") == "through both");
  put(shared.top + "/mine", "new");
  CHECK(text_of(shared.top + "/mine") == "new");

  put("/dev/null", "x");
  const Fd memory(memfd_create("m", MFD_CLOEXEC));
  put("/proc/self/fd/" + std::to_string(memory.get()), "inherited");
  CHECK(text_of("/proc/self/fd/" + std::to_string(memory.get())) == "inherited");
  const int out = dup(1);
  dup2(memory.get(), 1);
  CHECK(write_all(open_own_file("/dev/stdout", WriteMode::append, 0600).get(), "!"));
  dup2(out, 1);
  close(out);
  CHECK(text_of("/proc/self/fd/" + std::to_string(memory.get())) == "inherited!");

  REQUIRE(mkfifo((shared.path + "/fifo").c_str(), 0600) == 0);
  std::string got;
  std::thread reader([&] { got = text_of(shared.path + "/fifo"); });
  put(shared.path + "/fifo", "for a reader");
  reader.join();
  CHECK(got == "for a reader");
}

TEST_CASE("own file: a pipe without a reader, or whose reader does not read, is an error") {
  const Shared shared;
  const std::string fifo = shared.path + "/fifo", refused = fifo + ": is a pipe that no process reads";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS(replace_own_file(fifo, "x", 0600), doctest::Contains(refused.c_str()), Error);
  const Fd reader(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK));
  CHECK_THROWS_WITH_AS(replace_own_file(fifo, std::string(1u << 20, 'x'), 0600),
                       doctest::Contains("its reader does not read"), Error);
}

TEST_CASE("own file: an inherited file is not truncated") {
  const Shared shared;
  const std::string path = shared.path + "/out";
  const Fd out(::open(path.c_str(), O_WRONLY | O_CREAT, 0600));
  const std::string name = "/dev/fd/" + std::to_string(out.get());
  CHECK(is_inherited_file(name));
  CHECK_FALSE(is_inherited_file(path));
  REQUIRE(write_all(out.get(), "job\n"));
  replace_own_file(name, "verdict\n", 0600);
  REQUIRE(write_all(out.get(), "more\n"));
  put(name, "report\n");
  REQUIRE(write_all(out.get(), "end\n"));
  CHECK(text_of(path) == "job\nverdict\nmore\nreport\nend\n");
}

TEST_CASE("own file: what cannot be written says why") {
  const Shared shared;
  CHECK(refusal(shared.path) == shared.path + ": is a folder, not a file");
  CHECK(refusal(shared.path + "/no/f") == shared.path + "/no/f: No such file or directory");
  CHECK(refusal(shared.top + "/mine/f") == shared.top + "/mine/f: Not a directory");
  CHECK(refusal("") == "No such file or directory");
  fs::create_symlink("loop", shared.path + "/loop");
  CHECK(refusal(shared.path + "/loop").ends_with("Too many levels of symbolic links"));
}

TEST_CASE("own file: another user's links, files, FIFOs and second names are refused" * doctest::skip(geteuid() != 0)) {
  const Shared shared;
  const std::string mine = shared.top + "/mine", trap = shared.path + "/trap";
  const auto theirs = [&] { REQUIRE(lchown(trap.c_str(), somebody, somebody) == 0); };
  const auto refused = [&](std::string_view why, const std::string& path) {
    CAPTURE(path);
    CHECK(refusal(path).find(why) != std::string::npos);
    CHECK_THROWS_WITH_AS(replace_own_file(path, "x", 0600), doctest::Contains(std::string(why).c_str()), Error);
    CHECK(text_of(mine) == "precious\n");
    fs::remove(trap);
  };
  fs::create_symlink(mine, trap);
  theirs();
  refused("leads through a link of another user's (uid 54321)", trap);
  fs::create_symlink(shared.top, trap);
  theirs();
  refused("leads through a link of another user's", trap + "/mine");
  fs::create_symlink(shared.top + "/not-there", trap);
  theirs();
  refused("leads through a link of another user's", trap);
  CHECK(!fs::exists(shared.top + "/not-there"));
  std::ofstream(trap) << "bait";
  chmod(trap.c_str(), 0666);
  theirs();
  refused("belongs to another user (uid 54321)", trap);
  REQUIRE(mkfifo(trap.c_str(), 0666) == 0);
  theirs();
  refused("belongs to another user", trap);
  fs::create_hard_link(mine, trap);
  refused("has another name too", trap);
  // A link of the user's own that points to another user's link is refused too.
  fs::create_symlink(mine, trap);
  theirs();
  fs::create_symlink(trap, shared.top + "/own");
  refused("leads through a link of another user's", shared.top + "/own");
}

TEST_CASE("own file: an existing regular file; never made, no link, FIFO or second name") {
  const Shared shared;
  const std::string path = shared.path + "/f", link = shared.path + "/link", fifo = shared.path + "/fifo";
  CHECK_FALSE(open_existing_own_file(path));
  CHECK_FALSE(fs::exists(path));
  put(path, "one");
  CHECK(open_existing_own_file(path));
  fs::create_symlink(path, link);
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  fs::create_hard_link(shared.top + "/mine", shared.path + "/second");
  for (const std::string& other : {link, fifo, shared.path, shared.path + "/second", std::string()}) {
    CAPTURE(other);
    CHECK_FALSE(open_existing_own_file(other));
  }
  if (geteuid() != 0) return;
  fs::create_symlink(shared.top, shared.path + "/folder");
  CHECK(open_existing_own_file(shared.path + "/folder/mine"));
  fs::remove(shared.path + "/second");
  REQUIRE(lchown((shared.path + "/folder").c_str(), somebody, somebody) == 0);
  CHECK_FALSE(open_existing_own_file(shared.path + "/folder/mine"));
  REQUIRE(chown(path.c_str(), somebody, somebody) == 0);
  CHECK_FALSE(open_existing_own_file(path));
}

TEST_CASE("own file: replaced as a whole") {
  const Shared shared;
  const std::string path = shared.path + "/f", link = shared.path + "/link";
  replace_own_file(path, "one", 0600);
  replace_own_file(path, "two", 0644);
  CHECK(text_of(path) == "two");
  fs::create_symlink(path, link);
  replace_own_file(link, "three", 0600);  // the target of the link, not the link
  CHECK(fs::is_symlink(link));
  CHECK(text_of(path) == "three");
  CHECK_THROWS_WITH_AS(replace_own_file(shared.path, "x", 0600), doctest::Contains("is a folder"), Error);
  CHECK_THROWS_WITH_AS(replace_own_file(shared.path + "/none/f", "x", 0600), doctest::Contains("No such file"), Error);
  CHECK_THROWS_WITH_AS(replace_own_file("/dev/full", "x", 0600), doctest::Contains("No space left"), Error);
  replace_own_file("/dev/null", "x", 0600);
  CHECK(fs::is_character_file("/dev/null"));
  const auto names = fs::directory_iterator(shared.path);
  CHECK(std::distance(begin(names), end(names)) == 2);  // no temporary file is left
}

TEST_CASE("own file: of several that replace it at once one wins, as a whole") {
  const Shared shared;
  const std::string path = shared.path + "/f";
  std::vector<std::thread> writers;
  for (char letter = 'a'; letter < 'e'; ++letter)
    writers.emplace_back([&, letter] {
      for (int i = 0; i < 50; ++i) replace_own_file(path, std::string(900, letter), 0600);
    });
  for (std::thread& t : writers) t.join();
  const std::string text = text_of(path);
  CHECK(text == std::string(900, text.at(0)));
}

TEST_CASE("own folder for output: made with those above it, through our own links only") {
  const Shared shared;
  make_own_folder(shared.path + "/a//b/./c/");
  struct stat about {};
  REQUIRE(stat((shared.path + "/a/b/c").c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0700);
  make_own_folder(shared.path + "/a/b/c");
  make_own_folder(shared.path);
  CHECK_THROWS_AS(make_own_folder(shared.top + "/mine"), Error);
  fs::create_symlink(shared.path + "/a", shared.top + "/link");
  make_own_folder(shared.top + "/link/d");
  CHECK(fs::is_directory(shared.path + "/a/d"));
  if (geteuid() != 0) return;
  REQUIRE(lchown((shared.top + "/link").c_str(), somebody, somebody) == 0);
  CHECK_THROWS_AS(make_own_folder(shared.top + "/link/e"), Error);
  CHECK(!fs::exists(shared.path + "/a/e"));
}
