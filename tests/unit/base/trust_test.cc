/// The users who could have chosen the target of a path. Owners are changed where the test may do so.
#include "base/files/trust.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "../temp_folder.h"
#include "base/error.h"

using namespace hvd;
namespace fs = std::filesystem;

namespace {

constexpr uid_t other = 54321, third = 54322;

struct Folder : test::TempFolder {
  std::string file(const std::string& name, mode_t mode = 0644, uid_t uid = ::geteuid(),
                   gid_t gid = ::getegid()) const {
    std::ofstream(root / name) << "text";
    return set(name, mode, uid, gid);
  }
  std::string folder(const std::string& name, mode_t mode = 0755, uid_t uid = ::geteuid(),
                     gid_t gid = ::getegid()) const {
    fs::create_directories(root / name);
    return set(name, mode, uid, gid);
  }
  std::string set(const std::string& name, mode_t mode, uid_t uid, gid_t gid) const {
    CHECK(::chown((root / name).c_str(), uid, gid) == 0);
    CHECK(::chmod((root / name).c_str(), mode) == 0);
    return root / name;
  }
};

std::string doubt(const std::string& path, PathUse purpose = PathUse::file,
                  const SoftwareOwners& software_owners = {}) {
  return look_at(path, purpose, software_owners).doubt;
}

std::string fault(const std::string& path, bool by_anybody = false) {
  try {
    return read_trusted(path, 100, by_anybody);
  } catch (const Error& e) { return e.what(); }
}

}  // namespace

TEST_CASE("trust: modes of a file, its folders and the folder that modules come from") {
  const Folder f;
  CHECK(doubt(f.file("own")) == "");
  CHECK(fault(f.root / "own") == "text");
  CHECK(doubt(f.file("open", 0646)) == "everybody may write to it, so anybody could change the job");
  CHECK(look_at(f.root / "open").hint == "chmod o-w " + (f.root / "open").string() + ", or --allow-writable");
  CHECK(fault(f.root / "open").ends_with("could change the job"));
  CHECK(fault(f.root / "open", true) == "text");
  f.folder("all", 0777);
  CHECK(doubt(f.file("all/own")).starts_with("everybody may write to its folder " + f.root.string() + "/all, so"));
  f.folder("sticky", 01777);
  CHECK(doubt(f.file("sticky/own")) == "");
  CHECK(doubt(f.root / "sticky", PathUse::modules).starts_with("everybody may write to it"));
  CHECK(doubt(f.root, PathUse::modules) == "");
  fs::create_symlink("all/own", f.root / "link");
  CHECK(doubt(f.root / "link").starts_with("everybody may write to its folder"));
  fs::create_symlink(f.root / "own", f.root / "all/away");
  CHECK(doubt(f.root / "all/../all/away").starts_with("everybody may write to its folder"));
}

TEST_CASE("trust: what is not there, or no file") {
  const Folder f;
  CHECK(look_at(f.root / "no").error == ENOENT);
  CHECK(look_at(f.file("x") + "/y").error == ENOTDIR);
  fs::create_symlink("loop", f.root / "loop");
  CHECK(look_at(f.root / "loop").error == ELOOP);
  CHECK(look_at("").error == 0);
  CHECK(!look_at("").fd);
  CHECK(::mkfifo((f.root / "pipe").c_str(), 0600) == 0);
  CHECK(fault(f.root / "pipe") == (f.root / "pipe").string() + ": is no regular file");
  CHECK(fault(f.root) == f.root.string() + ": is a folder, not a file");
  CHECK(fault(f.root / "no") == (f.root / "no").string() + ": No such file or directory");
  CHECK(fault("/dev/null") == "");
  std::ofstream(f.root / "long") << std::string(200, 'x');
  CHECK(fault(f.root / "long") == (f.root / "long").string() + ": larger than 100 bytes");
}

TEST_CASE("trust: a descriptor of this process's own") {
  const Folder f;
  int ends[2];
  CHECK(::pipe(ends) == 0);
  CHECK(::write(ends[1], "through", 7) == 7);
  ::close(ends[1]);
  CHECK(fault("/proc/self/fd/" + std::to_string(ends[0])) == "through");
  ::close(ends[0]);
  const Fd memory(::memfd_create("trust-test", 0));
  CHECK(::write(memory.get(), "memory", 6) == 6);
  CHECK(fault("/dev/fd/" + std::to_string(memory.get())) == "memory");
  const Fd open(::open(f.file("open", 0666).c_str(), O_RDONLY));
  CHECK(fault("/dev/fd/" + std::to_string(open.get())).find("everybody may write to it") != std::string::npos);
}

TEST_CASE("trust: other owners and groups") {
  if (::geteuid() != 0) return;  // files of several users need root
  const Folder f;
  CHECK(doubt(f.file("theirs", 0644, other)) == "belongs to another user (user 54321), who could change the job");
  CHECK(doubt(f.file("group", 0664, 0, other)) ==
        "the group 54321 may write to it, so its members could change the job");
  CHECK(look_at(f.root / "group").hint == "chmod g-w " + (f.root / "group").string() + ", or --allow-writable");
  CHECK(doubt(f.file("root", 0664, 0, 0)) == "");
  f.folder("sticky", 01777);
  CHECK(doubt(f.file("sticky/theirs", 0644, other)).starts_with("belongs to"));
  fs::create_symlink(f.file("own"), f.root / "sticky/link");
  CHECK(doubt(f.root / "sticky/link") == "");
  CHECK(::lchown((f.root / "sticky/link").c_str(), other, other) == 0);
  CHECK(doubt(f.root / "sticky/link").starts_with("on the way to it, the link "));
  f.folder("kept", 0755, other);
  f.file("kept/program", 0755, other);
  CHECK(doubt(f.root / "kept/program").starts_with("its folder " + f.root.string() + "/kept belongs to another user"));
  CHECK(doubt(f.root / "kept/program", PathUse::file, {false, {other}}) == "");
  CHECK(look_at(f.root / "kept/program", PathUse::file, {true, {}}).software_owner == other);
  CHECK(!look_at("/bin/sh", PathUse::file, {true, {}}).software_owner);
  f.set("kept/program", 0755, third, 0);
  CHECK(doubt(f.root / "kept/program", PathUse::file, {true, {}}).starts_with("belongs to another user"));
  CHECK(doubt(f.root / "kept", PathUse::modules).starts_with("belongs to another user"));
}

TEST_CASE("trust: path variables without the working folder") {
  CHECK(absolute_only(":/a:.:b/c::/d:") == "/a:/d");
  CHECK(absolute_only("") == "");
}
