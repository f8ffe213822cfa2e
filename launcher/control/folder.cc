#include "launcher/control/folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/error.h"

namespace hvd::launcher {

namespace {

namespace fs = std::filesystem;
constexpr std::string_view prefix = "hvdrun-";
constexpr std::size_t most_socket_path_bytes = 107;  // sockaddr_un

Fd locked(const std::string& folder) {
  Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) fd.reset();
  return fd;
}

void sweep(const std::string& parent) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    if (!entry.path().filename().string().starts_with(prefix)) continue;
    struct stat about {};
    if (::lstat(entry.path().c_str(), &about) != 0 || !S_ISDIR(about.st_mode) || about.st_uid != ::geteuid()) continue;
    if (::time(nullptr) - about.st_mtime < 60) continue;  // perhaps just made and not locked yet
    if (const Fd lock = locked(entry.path())) fs::remove_all(entry.path(), error);
  }
}

}  // namespace

JobFolder::JobFolder() {
  for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR", ""}) {
    const char* parent = *name ? std::getenv(name) : "/tmp";
    if (!parent || parent[0] != '/') continue;
    std::string pattern = std::string(parent) + "/" + std::string(prefix) + "XXXXXX";
    if (pattern.size() + sizeof "/control.sock" > most_socket_path_bytes) continue;
    if (!::mkdtemp(pattern.data())) continue;
    path_ = pattern;
    lock_ = locked(path_);
    sweep(parent);
    return;
  }
  throw Error(Code::unavailable, "/tmp", "no folder for the job can be made there: " + errno_text(errno),
              "set TMPDIR to a folder that can be written");
}

JobFolder::~JobFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace hvd::launcher
