#include "base/files/own_folder.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "../temp_folder.h"
#include "base/error.h"
#include "base/process/maker.h"

using namespace hvd;
namespace fs = std::filesystem;

namespace {

/// The id of a process that has just ended, with the folder that it made.
std::string folder_of_a_dead_process(const std::string& parent) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string path = OwnFolder(parent, "job-", getpid()).release();
    _exit(write(ends[1], path.data(), path.size()) == static_cast<ssize_t>(path.size()) ? 0 : 1);
  }
  char path[512];
  const ssize_t size = read(ends[0], path, sizeof path);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  close(ends[0]);
  close(ends[1]);
  REQUIRE(size > 0);
  return {path, static_cast<std::size_t>(size)};
}

void write(const fs::path& path) { std::ofstream(path) << "kept\n"; }

}  // namespace

TEST_CASE("own folder: made for its owner alone whatever the umask, removed with all in it") {
  const test::TempFolder parent;
  const mode_t before = umask(0777);
  std::string path;
  {
    const OwnFolder folder(parent.path, "job-", getpid());
    path = folder.path();
    struct stat about {};
    CHECK(stat(path.c_str(), &about) == 0);
    CHECK((about.st_mode & 07777) == 0700);
    CHECK(mkdir((path + "/shut").c_str(), 0700) == 0);  // 0000
    umask(before);
    write(path + "/file");
    fs::create_directory(path + "/below");
    write(path + "/below/file");
  }
  CHECK(!fs::exists(path));
}

TEST_CASE("own folder: links in it are removed, not followed") {
  const test::TempFolder parent;
  fs::create_directory(parent.path + "/mine");
  write(parent.path + "/mine/file");
  {
    const OwnFolder folder(parent.path, "job-", getpid());
    fs::create_symlink(parent.path + "/mine", folder.path() + "/link");
    fs::create_hard_link(parent.path + "/mine/file", folder.path() + "/name");
  }
  CHECK(fs::exists(parent.path + "/mine/file"));
}

TEST_CASE("own folder: the sweep takes those of dead processes, and nothing that others made") {
  const test::TempFolder parent;
  const std::string dead = folder_of_a_dead_process(parent.path), other = folder_of_a_dead_process(parent.path);
  const OwnFolder living(parent.path, "job-", getpid());
  for (const char* name : {"job-0.1.0", "job-results", "job-aaaaaaaa", "jobs"}) {
    fs::create_directory(parent.path + "/" + name);
    write(parent.path + "/" + name + "/file");
  }
  // The mark names the inode of its folder. A copied or linked folder has a mark for another inode, so the sweep keeps
  // it.
  fs::copy(other, parent.path + "/job-bbbbbbbb", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  REQUIRE(fs::is_symlink(parent.path + "/job-bbbbbbbb/.owner"));
  fs::create_directory_symlink(other, parent.path + "/job-cccccccc");
  fs::rename(other, parent.path + "/renamed");
  sweep_own_folders(parent.path, "job-");
  CHECK(!fs::exists(dead));
  CHECK(fs::exists(living.path()));
  CHECK(fs::exists(parent.path + "/renamed/.owner") == false);  // exists() follows the dangling link
  CHECK(fs::is_symlink(parent.path + "/renamed/.owner"));
  for (const char* name : {"job-0.1.0/file", "job-results/file", "job-aaaaaaaa/file", "jobs/file"})
    CHECK(fs::exists(parent.path + "/" + name));
  CHECK(fs::is_symlink(parent.path + "/job-bbbbbbbb/.owner"));
  CHECK(fs::is_symlink(parent.path + "/job-cccccccc"));
  CHECK(!remove_own_folder(parent.path + "/job-results"));
  CHECK(!remove_own_folder(parent.path + "/job-cccccccc"));
  CHECK(remove_own_folder(parent.path + "/renamed"));
  const auto found = living_folders(parent.path, "job-");
  REQUIRE(found.size() == 1);
  CHECK(found[0].path == living.path());
  CHECK(found[0].owner.pid == getpid());
}

TEST_CASE("own folder: none where others could put theirs in its place") {
  const test::TempFolder top;
  const std::string open = top.path + "/open", sticky = top.path + "/sticky";
  fs::create_directory(open);
  fs::create_directory(sticky);
  REQUIRE(chmod(open.c_str(), 0777) == 0);
  REQUIRE(chmod(sticky.c_str(), 01777) == 0);
  CHECK_THROWS_WITH_AS(OwnFolder(open, "job-", getpid()),
                       doctest::Contains("others could exchange a folder made there"), Error);
  CHECK(fs::is_empty(open));
  CHECK(OwnFolder(sticky, "job-", getpid()).path().starts_with(sticky));
  setenv("TMPDIR", open.c_str(), 1);
  CHECK(place_for_own_folder() == "/tmp");
  setenv("TMPDIR", sticky.c_str(), 1);
  CHECK(place_for_own_folder() == sticky);
  setenv("TMPDIR", "relative", 1);
  CHECK(place_for_own_folder() == "/tmp");
  unsetenv("TMPDIR");
}

TEST_CASE("own folder: after a reboot") {
  const test::TempFolder parent;
  const std::string path = parent.path + "/job-aaaaaaaa";
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const auto mark = [&](const std::string& name) {
    fs::remove_all(path);
    fs::create_directory(path);
    struct stat about {};
    stat(path.c_str(), &about);
    const std::string text =
        to_text(*maker_of(getpid())) + " " + std::to_string(about.st_ino) + " another-boot " + name;
    fs::create_symlink(text, path + "/.owner");
    sweep_own_folders(parent.path, "job-");
    return fs::exists(path);
  };
  CHECK(mark("another-host"));  // another host, which may share this file system
  CHECK(!mark(host));
}

TEST_CASE("maker: a process is gone when its id is another's, never when it cannot be looked for") {
  Maker self = *maker_of(getpid());
  CHECK(maker_from(to_text(self))->start_ticks == self.start_ticks);
  CHECK(!maker_from("1.2"));
  CHECK(!maker_from("1.2.x"));
  CHECK(!maker_from("-1.2.3"));
  CHECK(!is_gone(self));
  ++self.start_ticks;
  CHECK(is_gone(self));
  ++self.pid_namespace;
  CHECK(!is_gone(self));
}
