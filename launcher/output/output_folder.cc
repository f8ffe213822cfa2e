#include "launcher/output/output_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "base/files/own_file.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

constexpr const char* list_name = ".hvdrun";
constexpr std::size_t most_list_bytes = 1u << 20;

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// "rank." and digits.  No other name in the list is believed.
bool is_rank_folder(std::string_view name) {
  constexpr std::string_view begin = "rank.";
  return name.starts_with(begin) && name.size() > begin.size() &&
         name.find_first_not_of("0123456789", begin.size()) == name.npos;
}

std::vector<std::string> read_list(const Fd& list) {
  std::string text(most_list_bytes, '\0');
  const ssize_t size = ::pread(list.get(), text.data(), text.size(), 0);
  text.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  std::vector<std::string> names = split(text, '\n');
  std::erase_if(names, [](const std::string& name) { return !is_rank_folder(name); });
  return names;
}

bool is_own(int folder, const char* name, mode_t type) {
  struct stat about {};
  return ::fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) == 0 && (about.st_mode & S_IFMT) == type &&
         about.st_uid == ::geteuid();
}

/// Removes stdout and stderr of the rank folder, then the folder if it is empty.  Returns whether the folder is gone.
bool remove_rank(const Fd& folder, const std::string& name) {
  errno = 0;
  if (!is_own(folder.get(), name.c_str(), S_IFDIR)) return errno == ENOENT;
  const Fd rank(::openat(folder.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!rank) return errno == ENOENT;
  for (const char* file : {"stdout", "stderr"})
    if (is_own(rank.get(), file, S_IFREG)) ::unlinkat(rank.get(), file, 0);
  return ::unlinkat(folder.get(), name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT;
}

/// The folder that has this list.  Another user may exchange a part of @p path after it was checked; so the list is
/// compared.  Empty: it is another folder, or cannot be read.
Fd folder_of(const std::string& path, const Fd& list) {
  Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat here {
  }, locked{};
  if (!folder || ::fstatat(folder.get(), list_name, &here, AT_SYMLINK_NOFOLLOW) != 0 ||
      ::fstat(list.get(), &locked) != 0 || here.st_dev != locked.st_dev || here.st_ino != locked.st_ino)
    return {};
  return folder;
}

std::vector<std::string> rank_folders(const std::string& path) {
  std::vector<std::string> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(path.c_str()), ::closedir);
  while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr)
    if (is_rank_folder(entry->d_name)) found.emplace_back(entry->d_name);
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

OutputFolder::OutputFolder(const std::string& path, const std::vector<std::string>& names) : path_(path) {
  make_own_folder(path);
  const std::string file = path + "/" + list_name;
  open_own_file(file, WriteMode::append, 0600).reset();
  list_ = open_existing_own_file(file);
  if (!list_) throw Error(Code::unavailable, file, "cannot be read, or is a link", "remove it, or name another folder");
  if (::flock(list_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw Error(Code::unavailable, path, "another job writes its output there", "name another folder");

  const std::vector<std::string> listed = read_list(list_);
  for (const std::string& name : rank_folders(path))
    if (!has(listed, name) && !has(names, name))
      throw Error(Code::unavailable, path, "has " + name + ", which is of no rank of this job",
                  "name another folder, or remove " + name + " (hvdrun removes only what it made itself)");
  names_ = names;
  const Fd folder = folder_of(path, list_);
  for (const std::string& name : listed)
    if (!has(names_, name) && !(folder && remove_rank(folder, name))) names_.push_back(name);
  write_list();
}

void OutputFolder::add(const std::string& name) {
  if (has(names_, name)) return;
  names_.push_back(name);
  write_list();
}

void OutputFolder::write_list() {
  const std::string text = join(names_, "\n") + "\n";
  if (::pwrite(list_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      ::ftruncate(list_.get(), static_cast<off_t>(text.size())) != 0)
    throw Error(Code::unavailable, path_, errno_text(errno));
}

}  // namespace hvd::launcher
