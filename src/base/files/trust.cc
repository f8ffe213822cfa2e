#include "base/files/trust.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/magic.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"

namespace hvd {
namespace {

constexpr int most_links = 40;  // the kernel's own limit
constexpr const char* allow = ", or --allow-writable";

std::string through_proc(int fd) { return formatted("/proc/self/fd/{}", fd); }

std::string user_name(uid_t uid) {
  const passwd* user = getpwuid(uid);
  return user ? user->pw_name : formatted("user {}", uid);
}

std::string group_name(gid_t gid) {
  const group* g = getgrgid(gid);
  return g ? g->gr_name : std::to_string(gid);
}

/// True if /etc/passwd lists all accounts.  Only then the file shows whether a group belongs to one user.
bool accounts_are_local() {
  std::ifstream file("/etc/nsswitch.conf");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("passwd:")) continue;
    for (const std::string& source : words(std::string_view(line).substr(7)))
      if (source != "files" && source != "compat" && source != "systemd" && source != "altfiles") return false;
  }
  return true;  // without that file, the C library reads /etc/passwd
}

bool is_anothers_own_group(gid_t gid) {
  std::ifstream file("/etc/passwd");
  std::string line;
  while (std::getline(file, line)) {
    const std::vector<std::string> fields = split(line, ':');
    if (fields.size() < 4 || to_integer(fields[3]) != static_cast<long long>(gid)) continue;
    if (fields[2] != "0" && to_integer(fields[2]) != static_cast<long long>(geteuid())) return true;
  }
  return false;
}

/// True if users other than this user and root may be in a group.  A user private group has the name of its user.
bool is_shared(gid_t gid) {
  const passwd* self = getpwuid(geteuid());
  const std::string me = self ? self->pw_name : "";
  const group* g = getgrgid(gid);
  if (g == nullptr) return true;
  for (char** member = g->gr_mem; *member; ++member)
    if (*member != me && std::strcmp(*member, "root") != 0) return true;
  if (gid == 0 || (!me.empty() && g->gr_name == me)) return false;
  return !accounts_are_local() || is_anothers_own_group(gid);
}

/// The other users who may write to a file or folder, as words: "everybody", "the group lab".  Empty: none.  If the
/// file has an access list, the mode's group bits are the upper limit of all entries.
std::string other_writers(int fd, const struct stat& about) {
  if (about.st_mode & S_IWOTH) return "everybody";
  if (!(about.st_mode & S_IWGRP)) return {};
  if (getxattr(through_proc(fd).c_str(), "system.posix_acl_access", nullptr, 0) > 0)
    return "others, by its access list,";
  return is_shared(about.st_gid) ? "the group " + group_name(about.st_gid) : "";
}

std::string closing(const std::string& writers, const std::string& path) {
  if (writers == "everybody") return "chmod o-w " + path + allow;
  return (writers.starts_with("others") ? "setfacl -b " : "chmod g-w ") + path + allow;
}

std::string could_choose(const std::string& writers) {
  const char* who = writers == "everybody" ? "anybody" : writers.starts_with("others") ? "they" : "its members";
  return std::string("so ") + who + " could change the job";
}

/// Follows one path from / to its end, and checks each part.
class TrustWalk {
 public:
  TrustWalk(PathUse purpose, const SoftwareOwners& software_owners)
      : purpose_(purpose), software_owners_(software_owners), trusted_{0, geteuid()} {
    struct stat about {};
    for (const char* path : {"/", "/proc/self/exe"})
      if (stat(path, &about) == 0) trusted_.push_back(about.st_uid);
    std::error_code ignored;
    std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
    for (; folder.has_relative_path(); folder = folder.parent_path()) {
      if (stat(folder.c_str(), &about) != 0) continue;
      trusted_.push_back(about.st_uid);
      above_program_.emplace_back(about.st_dev, about.st_ino);
    }
  }

  PathCheck to(const std::string& path) {
    static_cast<void>(access(path.c_str(), F_OK));  // unlike O_PATH, access() makes the automounter mount a folder
    at_ = root();
    for (const std::string& name : split(path, '/')) ahead_.push_back(name);
    while (!ahead_.empty()) {
      const std::string name = ahead_.front();
      ahead_.pop_front();
      if (name.empty() || name == ".") continue;
      pass();
      if (!enter(name)) return std::move(found_);
    }
    arrive();
    found_.fd = std::move(at_);
    return std::move(found_);
  }

 private:
  static Fd root() { return Fd(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)); }

  bool fail(int error) {
    found_.error = error;
    return false;
  }

  void doubt(const std::string& what, const std::string& hint) {
    if (found_.doubt.empty()) found_.doubt = what, found_.hint = hint;
  }

  bool is_trusted(uid_t uid) {
    const auto in = [uid](const std::vector<uid_t>& all) {
      return std::find(all.begin(), all.end(), uid) != all.end();
    };
    if (in(trusted_)) return true;
    if (!in(software_owners_.known) && !(software_owners_.anyone && found_.software_owner.value_or(uid) == uid))
      return false;
    found_.software_owner = uid;
    return true;
  }

  /// True if the folder is above this program.  A user with the right to write to it could have replaced this program.
  bool holds_program(const struct stat& folder) const {
    return std::ranges::count(above_program_, std::pair(folder.st_dev, folder.st_ino)) > 0;
  }

  std::string here() const { return PathCheck{Fd(dup(at_.get()))}.real_path(); }

  /// Checks at_, a folder of the path.
  void pass() {
    struct stat about {};
    fstat(at_.get(), &about);
    if (!S_ISDIR(about.st_mode)) return;  // openat() then fails with ENOTDIR
    if (!is_trusted(about.st_uid))
      doubt(formatted("its folder {} belongs to another user ({}), who could change the job", here(),
                      user_name(about.st_uid)),
            std::string("use a folder of your own") + allow);
    const std::string writers = other_writers(at_.get(), about);
    sticky_ = !writers.empty() && (about.st_mode & S_ISVTX);
    if (!writers.empty() && !sticky_ && !holds_program(about))
      doubt(formatted("{} may write to its folder {}, {}", writers, here(), could_choose(writers)),
            closing(writers, here()));
  }

  /// Moves at_ to its entry @p name.  If the entry is a link, the parts of its text come next.  False: found_.error.
  bool enter(const std::string& name) {
    Fd next(openat(at_.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat about {};
    if (!next || fstat(next.get(), &about) != 0) return fail(errno);
    if (!S_ISLNK(about.st_mode)) {
      at_ = std::move(next);
      return true;
    }
    if (sticky_ && !is_trusted(about.st_uid))
      doubt(formatted("on the way to it, the link {}/{} belongs to another user ({}), who could change the job", here(),
                      name, user_name(about.st_uid)),
            std::string("use a folder of your own") + allow);
    struct statfs system {};
    if (fstatfs(at_.get(), &system) == 0 &&
        system.f_type == PROC_SUPER_MAGIC) {  // a link to a descriptor, which may have no path
      at_ = Fd(openat(at_.get(), name.c_str(), O_PATH | O_CLOEXEC));
      handed_ = true;
      return at_ ? true : fail(errno);
    }
    char text[PATH_MAX];
    const ssize_t n = readlinkat(next.get(), "", text, sizeof text);
    if (n <= 0) return fail(n == 0 ? ENOENT : errno);
    if (++links_ > most_links) return fail(ELOOP);
    const std::vector<std::string> names = split(std::string_view(text, static_cast<std::size_t>(n)), '/');
    ahead_.insert(ahead_.begin(), names.begin(), names.end());
    if (text[0] == '/') at_ = root();
    return true;
  }

  void arrive() {
    struct stat about {};
    fstat(at_.get(), &about);
    found_.is_folder = S_ISDIR(about.st_mode);
    found_.is_file = S_ISREG(about.st_mode) || S_ISCHR(about.st_mode) || handed_;
    const bool no_name = handed_ && (!S_ISREG(about.st_mode) || about.st_nlink == 0);
    if (no_name || S_ISCHR(about.st_mode)) return;  // only this process has it; or a device, which only root can make
    if (!is_trusted(about.st_uid))
      doubt("belongs to another user (" + user_name(about.st_uid) + "), who could change the job",
            std::string("copy it to a place of your own") + allow);
    const std::string writers = other_writers(at_.get(), about);
    if (writers.empty() || (found_.is_folder && (purpose_ == PathUse::file || holds_program(about)))) return;
    doubt(writers + " may write to it, " + could_choose(writers), closing(writers, here()));
  }

  const PathUse purpose_;
  const SoftwareOwners& software_owners_;
  std::vector<uid_t> trusted_;
  std::vector<std::pair<dev_t, ino_t>> above_program_;
  std::deque<std::string> ahead_;
  Fd at_;
  bool sticky_ = false;  ///< at_ is a sticky folder that others may write to
  bool handed_ = false;
  int links_ = 0;
  PathCheck found_;
};

}  // namespace

void PathCheck::need_trust(const std::string& path) const {
  if (!doubt.empty()) throw Error(Code::usage, path, doubt, hint);
}

std::string PathCheck::real_path() const {
  std::error_code ignored;
  return std::filesystem::read_symlink(through_proc(fd.get()), ignored);
}

PathCheck look_at(const std::string& path, PathUse purpose, const SoftwareOwners& software_owners) {
  if (path.starts_with('/')) return TrustWalk(purpose, software_owners).to(path);
  std::error_code error;
  const std::string folder = std::filesystem::current_path(error);
  PathCheck nothing;
  nothing.error = error.value();
  return error || path.empty() ? std::move(nothing) : TrustWalk(purpose, software_owners).to(folder + "/" + path);
}

std::string read_found(const PathCheck& found, const std::string& path, std::size_t limit_bytes) {
  if (!found.fd) throw Error(Code::usage, path, errno_text(found.error));
  if (found.is_folder) throw Error(Code::usage, path, "is a folder, not a file");
  if (!found.is_file)
    throw Error(Code::usage, path, "is no regular file", "to read a list from a pipe, write /dev/stdin");
  try {
    return read_file(through_proc(found.fd.get()), limit_bytes);
  } catch (const Error& e) { throw Error(e.code, path, std::string(e.what()).substr(e.where.size() + 2), e.hint); }
}

std::string read_trusted(const std::string& path, std::size_t limit_bytes, bool by_anybody) {
  const PathCheck found = look_at(path);
  if (!by_anybody) found.need_trust(path);
  return read_found(found, path, limit_bytes);
}

std::string absolute_only(const std::string& folders) {
  std::vector<std::string> kept = split(folders, ':');
  std::erase_if(kept, [](const std::string& folder) { return !folder.starts_with('/'); });
  return join(kept, ":");
}

}  // namespace hvd
