#include "base/files/own_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <optional>

#include "base/environment.h"
#include "base/error.h"
#include "base/files/trust.h"
#include "base/format.h"
#include "base/process/maker.h"
#include "base/random.h"
#include "base/text.h"

namespace hvd {
namespace {

constexpr const char* mark_name = ".owner";
constexpr std::size_t name_letters = 8;
constexpr int most_depth = 100;

bool is_name(std::string_view name, std::string_view prefix) {
  return name.size() == prefix.size() + name_letters && name.starts_with(prefix) &&
         name.find_first_not_of(random_alphabet, prefix.size()) == std::string_view::npos;
}

std::string in_proc(int fd) { return formatted("/proc/self/fd/{}", fd); }

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return *name ? name : "-";
}

/// The number of the mount, which also differs between bind mounts of one file system; 0: not known.
long long mount_of(int fd) {
  const std::string text = read_file(formatted("/proc/self/fdinfo/{}", fd), 1u << 16);
  constexpr std::string_view key = "mnt_id:";
  const std::size_t at = text.find(key);
  if (at == std::string::npos) return 0;
  return to_integer(trim(std::string_view(text).substr(at + key.size(), text.find('\n', at) - at - key.size())))
      .value_or(0);
}

/// Opens the folder @p name in @p parent.  Empty unless it belongs to this user and is on the same mount.
/// @param unlock  first restores the owner's missing rights (mode 0700)
Fd enter(int parent, const char* name, bool unlock) {
  Fd entry(::openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about {};
  if (!entry || ::fstat(entry.get(), &about) != 0 || about.st_uid != ::geteuid()) return {};
  const long long mount = mount_of(entry.get());
  if (mount == 0 || mount != mount_of(parent)) return {};
  if (unlock && (about.st_mode & S_IRWXU) != S_IRWXU) ::chmod(in_proc(entry.get()).c_str(), S_IRWXU);
  return Fd(::openat(entry.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

std::vector<std::string> names_in(int folder) {
  std::vector<std::string> names;
  DIR* const all = ::fdopendir(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!all) return names;
  while (const dirent* entry = ::readdir(all))
    if (const std::string_view name = entry->d_name; name != "." && name != "..") names.emplace_back(name);
  ::closedir(all);
  return names;
}

/// Removes all entries of the folder except @p keep.  False if another entry remains.
bool remove_all_in(int folder, int depth, std::string_view keep) {
  bool all = true;
  for (const std::string& name : names_in(folder)) {
    if (name == keep || ::unlinkat(folder, name.c_str(), 0) == 0 || errno == ENOENT) continue;
    const Fd below = enter(folder, name.c_str(), true);
    const bool empty = below && depth < most_depth && remove_all_in(below.get(), depth + 1, "");
    all = empty && ::unlinkat(folder, name.c_str(), AT_REMOVEDIR) == 0 && all;
  }
  return all;
}

/// The owner, boot and host of a mark.  The link's text is "OWNER INODE BOOT HOST".
struct OwnerMark {
  Maker owner;
  std::string boot, host;
};

std::optional<OwnerMark> mark_in(int folder) {
  char text[PATH_MAX];
  const ssize_t size = ::readlinkat(folder, mark_name, text, sizeof text);
  struct stat about {
  }, link{};
  if (size <= 0 || ::fstat(folder, &about) != 0 || ::fstatat(folder, mark_name, &link, AT_SYMLINK_NOFOLLOW) != 0)
    return std::nullopt;
  const std::vector<std::string> parts = words({text, static_cast<std::size_t>(size)});
  if (parts.size() != 4 || link.st_uid != ::geteuid() || parts[1] != std::to_string(about.st_ino)) return std::nullopt;
  const auto owner = maker_from(parts[0]);
  if (!owner) return std::nullopt;
  return OwnerMark{*owner, parts[2], parts[3]};
}

/// For a mark of another boot, the host's name must be the same and the folder's lock must be free.  The lock is needed
/// because two hosts of one name may share the file system.  On NFS flock() of a folder fails, and the folder stays.
bool owner_is_gone(int folder, const OwnerMark& mark) {
  if (mark.boot == boot_id()) return is_gone(mark.owner);
  return mark.host == host_name() && ::flock(folder, LOCK_EX | LOCK_NB) == 0;
}

struct FolderEntry {
  Fd parent;
  std::string name;
};

FolderEntry entry_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string parent = slash == 0 ? "/" : slash == std::string::npos ? "." : path.substr(0, slash);
  return {Fd(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
          slash == std::string::npos ? path : path.substr(slash + 1)};
}

bool remove_marked(const FolderEntry& entry, int folder) {
  // The mark is removed last: after an interrupted removal, a later sweep still recognises the folder.
  return remove_all_in(folder, 1, mark_name) && ::unlinkat(folder, mark_name, 0) == 0 &&
         ::unlinkat(entry.parent.get(), entry.name.c_str(), AT_REMOVEDIR) == 0;
}

/// Calls what(entry, folder, mark) for each folder PARENT/PREFIX… of this user that has a mark.
template <class F>
void each_marked(const std::string& parent, std::string_view prefix, F what) {
  FolderEntry entry{Fd(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)), ""};
  if (!entry.parent) return;
  for (const std::string& name : names_in(entry.parent.get())) {
    if (!is_name(name, prefix)) continue;
    const Fd folder = enter(entry.parent.get(), name.c_str(), false);
    const auto mark = folder ? mark_in(folder.get()) : std::nullopt;
    entry.name = name;
    if (mark) what(entry, folder.get(), *mark);
  }
}

}  // namespace

OwnFolder::OwnFolder(const std::string& parent, std::string_view prefix, pid_t owner) {
  const auto maker = maker_of(owner);
  if (!maker) throw Error(Code::unavailable, "/proc", formatted("process {} is not there", owner));
  std::string path;
  int made = -1;
  for (int tries = 0; made != 0 && tries < 100; ++tries) {
    path = formatted("{}/{}{}", parent, prefix, random_letters(name_letters));
    made = ::mkdir(path.c_str(), S_IRWXU);
    if (made != 0 && errno != EEXIST) break;
  }
  if (made != 0) throw Error(Code::unavailable, parent, "no folder can be made there: " + errno_text(errno));
  if (const PathCheck found = look_at(path); !found.doubt.empty()) {
    ::rmdir(path.c_str());
    throw Error(Code::unavailable, parent, "others could exchange a folder made there: " + found.doubt, found.hint);
  }
  path_ = path;
  const FolderEntry entry = entry_of(path);
  lock_ = enter(entry.parent.get(), entry.name.c_str(), true);
  struct stat about {};
  const bool entered = lock_ && ::fstat(lock_.get(), &about) == 0;
  const std::string mark = formatted("{} {} {} {}", to_text(*maker), about.st_ino, boot_id(), host_name());
  if (!entered || ::symlinkat(mark.c_str(), lock_.get(), mark_name) != 0) {
    const int number = errno;
    ::rmdir(path_.c_str());
    throw Error(Code::unavailable, path_, "cannot be entered: " + errno_text(number));
  }
  ::flock(lock_.get(), LOCK_EX | LOCK_NB);
}

OwnFolder::~OwnFolder() {
  try {
    if (!path_.empty()) remove_marked(entry_of(path_), lock_.get());
  } catch (const std::exception&) {}  // the next sweep removes the folder
}

std::string OwnFolder::release() {
  lock_.reset();
  return std::exchange(path_, {});
}

std::string place_for_own_folder() {
  const char* const named = environment_value("TMPDIR");
  if (named == nullptr || *named != '/') return "/tmp";
  try {
    const OwnFolder trial(named, "hvd-trial-", ::getpid());
    return named;
  } catch (const Error&) { return "/tmp"; }
}

bool remove_own_folder(const std::string& path) {
  const FolderEntry entry = entry_of(path);
  const Fd folder = entry.parent ? enter(entry.parent.get(), entry.name.c_str(), false) : Fd();
  return folder && mark_in(folder.get()) && remove_marked(entry, folder.get());
}

void sweep_own_folders(const std::string& parent, std::string_view prefix) {
  each_marked(parent, prefix, [](const FolderEntry& entry, int folder, const OwnerMark& mark) {
    if (owner_is_gone(folder, mark)) remove_marked(entry, folder);
  });
}

std::vector<LivingFolder> living_folders(const std::string& parent, std::string_view prefix) {
  std::vector<LivingFolder> found;
  each_marked(parent, prefix, [&](const FolderEntry& entry, int, const OwnerMark& mark) {
    if (mark.boot == boot_id() && !is_gone(mark.owner)) found.push_back({parent + "/" + entry.name, mark.owner});
  });
  return found;
}

}  // namespace hvd
