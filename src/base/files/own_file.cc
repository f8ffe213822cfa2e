#include "base/files/own_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/random.h"
#include "base/text.h"

namespace hvd {
namespace {

constexpr int most_tries = 100;
constexpr int write_flags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY;
constexpr int first_reader_within_ms = 5000, reader_within_ms = 1000, fifo_look_ms = 10;

/// True if @p owner is this user or root.  In a container that does not map root, the owner of / is root.
bool is_trusted(uid_t owner) {
  struct stat root {};
  return owner == ::geteuid() || owner == 0 || (::stat("/", &root) == 0 && owner == root.st_uid);
}

/// The end of a path, as open descriptors: no other process can exchange it any more.
struct PathEnd {
  Fd folder;  ///< O_PATH
  std::string name;
  Fd there;                ///< O_PATH, never a link; empty if there is no entry `name`
  bool inherited = false;  ///< the path leads through /proc/…/fd, to a file that was opened for this process
};

struct stat about(const Fd& fd, const std::string& path) {
  struct stat found {};
  if (::fstat(fd.get(), &found) != 0) throw Error(Code::unavailable, path, errno_text(errno));
  return found;
}

bool is_in_proc(const Fd& fd) {
  struct statfs system {};
  return ::fstatfs(fd.get(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
}

/// Walks a path part by part.  The remaining parts are a stack with the next part on top.
class OwnPathWalk {
 public:
  explicit OwnPathWalk(const std::string& path) : path_(path) {
    if (path.empty()) fail(ENOENT);
    push(path);
  }

  /// @param make_folders  also makes missing folders, the last one with mode 0700
  PathEnd run(bool make_folders) {
    for (;;) {
      const std::string name = std::move(left_.back());
      left_.pop_back();
      const bool last = left_.empty();
      Fd there(::openat(folder_.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
      if (!there && errno == ENOENT && make_folders) {
        if (::mkdirat(folder_.get(), name.c_str(), last ? 0700 : 0777) != 0 && errno != EEXIST) fail(errno);
        there = Fd(::openat(folder_.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
      }
      if (!there && !(errno == ENOENT && last)) fail(errno);
      bool inherited = false;
      if (there && S_ISLNK(about(there, path_).st_mode)) {
        inherited = is_in_proc(there);
        if (!inherited) {
          follow(there);
          continue;
        }
        there = Fd(::openat(folder_.get(), name.c_str(), O_PATH | O_CLOEXEC));  // only the kernel makes links in /proc
        if (!there) fail(errno);
      }
      if (last) return {std::move(folder_), name, std::move(there), inherited};
      folder_ = std::move(there);
    }
  }

  [[noreturn]] void fail(int number) const { throw Error(Code::unavailable, path_, errno_text(number)); }

 private:
  void push(const std::string& path) {
    const std::size_t before = left_.size();
    const std::vector<std::string> parts = split(path, '/');
    for (auto part = parts.rbegin(); part != parts.rend(); ++part)
      if (!part->empty()) left_.push_back(*part);
    if (left_.size() == before) left_.emplace_back(".");
    if (path[0] == '/' || !folder_) folder_ = Fd(::open(path[0] == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder_) fail(errno);
  }

  void follow(const Fd& link) {
    if (const uid_t owner = about(link, path_).st_uid; !is_trusted(owner))
      throw Error(Code::unavailable, path_, formatted("leads through a link of another user's (uid {})", owner),
                  "name the place that is meant, without the link");
    char target[PATH_MAX];
    const ssize_t size = ::readlinkat(link.get(), "", target, sizeof target);
    if (size <= 0) fail(size < 0 ? errno : ENOENT);
    if (++links_ > most_links) fail(ELOOP);
    push(std::string(target, static_cast<std::size_t>(size)));
  }

  const std::string& path_;
  Fd folder_;
  std::vector<std::string> left_;
  int links_ = 0;
  static constexpr int most_links = 40;  ///< the kernel's own limit
};

/// Refuses a folder and another user's file.  Refuses a file with a second name, if others may write to the folder.
void check(const PathEnd& spot, const std::string& path) {
  const struct stat file = about(spot.there, path);
  if (S_ISDIR(file.st_mode)) throw Error(Code::unavailable, path, "is a folder, not a file");
  if (spot.inherited || S_ISCHR(file.st_mode)) return;
  const char* const hint = "remove it, or name another file";
  if (!is_trusted(file.st_uid))
    throw Error(Code::unavailable, path, formatted("belongs to another user (uid {})", file.st_uid), hint);
  const struct stat folder = about(spot.folder, path);
  const bool shared = !is_trusted(folder.st_uid) || (folder.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (S_ISREG(file.st_mode) && file.st_nlink > 1 && shared)
    throw Error(Code::unavailable, path, "has another name too (a hard link), in a folder where others may write",
                hint);
}

/// A duplicate of the inherited descriptor that the path names.  Empty if the path must be opened anew.  Cases: a pipe
/// (its flags must not be shared), a terminal, a read-only descriptor, another process's descriptor.
Fd duplicate(const PathEnd& spot, const std::string& path) {
  const auto number = to_integer(spot.name);
  const struct stat file = about(spot.there, path);
  struct stat own {};
  if (!number || *number > INT_MAX || (!S_ISREG(file.st_mode) && !S_ISSOCK(file.st_mode))) return {};
  const int fd = static_cast<int>(*number), flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || ::fstat(fd, &own) != 0) return {};
  if (own.st_dev != file.st_dev || own.st_ino != file.st_ino) return {};
  return Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
}

/// Opens a FIFO in non-blocking mode.  Empty: that failed, and errno has the reason.
Fd open_fifo(const std::string& link, int flags, const std::string& path, int limit_ms) {
  for (int waited_ms = 0;; waited_ms += fifo_look_ms) {
    Fd file(::open(link.c_str(), flags | O_NONBLOCK));
    if (file || errno != ENXIO) return file;
    if (waited_ms >= limit_ms)
      throw Error(Code::unavailable, path, "is a pipe that no process reads", "start its reader first");
    ::poll(nullptr, 0, fifo_look_ms);
  }
}

/// Opens the existing file at @p spot for writing.  Empty: that failed, and errno has the reason.
Fd open_there(const PathEnd& spot, const std::string& path, WriteMode mode_of_writing, int limit_ms) {
  if (spot.inherited)
    if (Fd own = duplicate(spot, path)) return own;
  const std::string link = formatted("/proc/self/fd/{}", spot.there.get());
  if (S_ISFIFO(about(spot.there, path).st_mode)) return open_fifo(link, write_flags, path, limit_ms);
  return Fd(::open(link.c_str(), write_flags | (mode_of_writing == WriteMode::truncate ? O_TRUNC : 0)));
}

}  // namespace

Fd open_own_file(const std::string& path, WriteMode mode_of_writing, mode_t mode) {
  for (int tries = 0;; ++tries) {
    OwnPathWalk walk(path);
    const PathEnd spot = walk.run(false);
    if (spot.there) check(spot, path);
    Fd file =
        spot.there
            ? open_there(spot, path, mode_of_writing, first_reader_within_ms)
            : Fd(::openat(spot.folder.get(), spot.name.c_str(), write_flags | O_CREAT | O_EXCL | O_NOFOLLOW, mode));
    if (file) return file;
    if (spot.there || errno != EEXIST || tries == most_tries) walk.fail(errno);
  }
}

void need_own_path(const std::string& path) {
  const PathEnd spot = OwnPathWalk(path).run(false);
  if (spot.there) check(spot, path);
}

Fd hold_fifo(const std::string& path) {
  OwnPathWalk walk(path);
  const PathEnd spot = walk.run(false);
  if (!spot.there || spot.inherited || !S_ISFIFO(about(spot.there, path).st_mode)) return {};
  check(spot, path);
  Fd file = open_there(spot, path, WriteMode::append, reader_within_ms);
  if (!file) walk.fail(errno);
  return file;
}

bool is_inherited_file(const std::string& path) {
  try {
    return OwnPathWalk(path).run(false).inherited;
  } catch (const Error&) { return false; }
}

Fd open_existing_own_file(const std::string& path) {
  try {
    struct stat name {};
    if (::lstat(path.c_str(), &name) != 0 || S_ISLNK(name.st_mode)) return {};
    const PathEnd spot = OwnPathWalk(path).run(false);
    if (!spot.there || spot.inherited || !S_ISREG(about(spot.there, path).st_mode)) return {};
    check(spot, path);
    return Fd(::open(formatted("/proc/self/fd/{}", spot.there.get()).c_str(), O_RDWR | O_CLOEXEC));
  } catch (const Error&) { return {}; }
}

void replace_own_file(const std::string& path, std::string_view text, mode_t mode) {
  OwnPathWalk walk(path);
  const PathEnd spot = walk.run(false);
  if (spot.there) {
    check(spot, path);
    if (spot.inherited || !S_ISREG(about(spot.there, path).st_mode)) {
      const Fd file = open_there(spot, path, WriteMode::truncate, reader_within_ms);
      if (!file || !write_all(file.get(), text, reader_within_ms)) walk.fail(errno);
      return;
    }
  }
  const std::string fresh = ".hvd-" + random_letters(16);
  const Fd file(::openat(spot.folder.get(), fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file) walk.fail(errno);
  if (write_all(file.get(), text) &&
      ::renameat(spot.folder.get(), fresh.c_str(), spot.folder.get(), spot.name.c_str()) == 0)
    return;
  const int number = errno;
  ::unlinkat(spot.folder.get(), fresh.c_str(), 0);
  walk.fail(number);
}

void make_own_folder(const std::string& path) {
  OwnPathWalk walk(path);
  const PathEnd spot = walk.run(true);
  if (!S_ISDIR(about(spot.there, path).st_mode)) walk.fail(ENOTDIR);
}

}  // namespace hvd
