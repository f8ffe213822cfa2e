#include "launcher/remote/sync_list.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_entries = 200'000;
constexpr unsigned long long most_folder_bytes = 16ull << 30;
constexpr const char* too_large_hint = "name the folder of the program, and keep data outside of it";

bool is_left_out(const std::string& name, int depth) {
  return name == ".git" || name == ".venv" || name == "__pycache__" || (depth == 0 && name.starts_with(sync_mark));
}

/// The kind of an entry; 0: it is not copied.
char kind_of(mode_t mode) { return S_ISDIR(mode) ? 'd' : S_ISREG(mode) ? 'f' : S_ISLNK(mode) ? 'l' : 0; }

std::string escaped(const std::string& name) {
  std::string out;
  for (const char c : name) out += c == '%' ? "%25" : c == '\n' ? "%0A" : std::string(1, c);
  return out;
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    const bool is_percent = rest.starts_with("%25");
    if (is_percent || rest.starts_with("%0A"))
      out += is_percent ? '%' : '\n', i += 2;
    else
      out += text[i];
  }
  return out;
}

bool stays_inside(const std::string& name) {
  const std::vector<std::string> parts = split(name, '/');
  return std::none_of(parts.begin(), parts.end(), [](const std::string& p) {
    return p.empty() || p == "." || p == ".." || p.find('\0') != std::string::npos;
  });
}

}  // namespace

SyncList list_folder(const std::string& folder) {
  SyncList list;
  std::error_code error;
  const std::size_t prefix = folder.size() + 1;
  fs::recursive_directory_iterator it(folder, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    const std::string path = it->path();
    if (is_left_out(it->path().filename(), it.depth())) {
      it.disable_recursion_pending();
      continue;
    }
    struct stat s {};
    if (::lstat(path.c_str(), &s) != 0 || !kind_of(s.st_mode)) continue;  // it is gone already, or it is no file
    SyncEntry entry{path.substr(prefix), kind_of(s.st_mode), {}};
    if (entry.kind != 'd') entry.stamp = formatted("{} {}", s.st_size, s.st_mtim.tv_sec);
    if (entry.kind == 'f') list.bytes += static_cast<unsigned long long>(s.st_size);
    list.entries.push_back(std::move(entry));
    if (list.entries.size() > most_entries)
      throw Error(Code::usage, "--sync", formatted("{} has more than {} files", folder, most_entries), too_large_hint);
    if (list.bytes > most_folder_bytes)
      throw Error(Code::usage, "--sync",
                  folder + " has more than " + human_bytes(static_cast<long long>(most_folder_bytes)), too_large_hint);
  }
  if (error) throw Error(Code::usage, "--sync", "cannot read " + folder + ": " + error.message(), "look at its modes");
  std::sort(list.entries.begin(), list.entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return list;
}

std::string mark_text(const std::vector<SyncEntry>& entries) {
  std::string text = std::string(sync_mark_line) + "\n";
  for (const SyncEntry& e : entries)
    text += formatted("{} {} {}\n", std::string(1, e.kind), e.kind == 'd' ? "0 0" : e.stamp, escaped(e.name));
  return text;
}

std::vector<SyncEntry> entries_of_mark(const std::vector<std::string>& lines) {
  std::vector<SyncEntry> entries;
  for (const std::string& line : lines) {
    std::size_t ends[3], from = 0;  // of the kind, the size and the time
    for (std::size_t& end : ends) {
      end = std::min(line.find(' ', from), line.size());
      from = std::min(end + 1, line.size());
    }
    const std::string kind = line.substr(0, ends[0]), name = unescaped(std::string_view(line).substr(from));
    if ((kind != "d" && kind != "f" && kind != "l") || !stays_inside(name)) continue;
    entries.push_back({name, kind[0], kind == "d" ? "" : line.substr(ends[0] + 1, ends[2] - ends[0] - 1)});
  }
  return entries;
}

std::vector<SyncEntry> gone(const std::vector<SyncEntry>& before, const std::vector<SyncEntry>& now) {
  std::map<std::string_view, char> kinds;
  for (const SyncEntry& e : now) kinds.emplace(e.name, e.kind);
  std::vector<SyncEntry> out;
  for (const SyncEntry& e : before)
    if (const auto it = kinds.find(e.name); it == kinds.end() || it->second != e.kind) out.push_back(e);
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name > b.name; });
  return out;
}

}  // namespace hvd::launcher
