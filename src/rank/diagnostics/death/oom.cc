#include "rank/diagnostics/death/oom.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/format.h"
#include "base/text.h"
#include "rank/diagnostics/death/death_facts.h"

namespace hvd::rank {
namespace {

/// The number in the line "key number" of a file; -1 if there is no such line.
std::int64_t value_of(const std::string& path, const std::string& key) {
  for (const std::string& line : split(whole_text(path), '\n'))
    if (line.starts_with(key + " ")) return to_integer(trim(std::string_view(line).substr(key.size()))).value_or(-1);
  return -1;
}

std::int64_t limit_of(const std::string& path) {
  const std::int64_t n = to_integer(trim(whole_text(path))).value_or(0);
  return n >= (std::int64_t{1} << 60) ? 0 : n;  // cgroup v1's value for "no limit"
}

bool exists(const std::string& path) { return access(path.c_str(), R_OK) == 0; }

/// The memory group at @p directory.  The result's directory is empty if the group does not count memory.
MemoryGroup read_directory(const std::string& directory) {
  struct Files {
    const char *counter, *limit;
  };
  for (const Files& files : {Files{"/memory.oom_control", "/memory.limit_in_bytes"},  // cgroup v1
                             Files{"/memory.events", "/memory.max"}}) {               // cgroup v2
    if (directory.empty() || !exists(directory + files.counter)) continue;
    return {directory, value_of(directory + files.counter, "oom_kill"), limit_of(directory + files.limit)};
  }
  return {};
}

/// In a container, /proc/PID/cgroup may contain the host's path.  Then the mounted folder is the group itself.
MemoryGroup read_group(const std::string& mount, const std::string& path) {
  MemoryGroup group = read_directory(mount + path);
  return group.directory.empty() ? read_directory(mount) : group;
}

/// The time, in µs of the kernel's log, of the record that @p pid was killed; -1: there is no such record, or this user
/// may not read the log.
std::int64_t time_in_log(pid_t pid) {
  const Fd log(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!log) return -1;
  const std::string wanted = formatted("Killed process {} (", pid);
  char record[8192];
  for (int i = 0; i < 100000; ++i) {
    const ssize_t n = read(log.get(), record, sizeof record);
    if (n < 0 && errno == EPIPE) continue;  // the kernel has overwritten the next record
    if (n <= 0) return -1;
    const std::string_view text(record, static_cast<std::size_t>(n));
    if (text.find(wanted) == std::string_view::npos) continue;
    const std::vector<std::string> head =
        split(text.substr(0, text.find(';')), ',');  // fields: priority, number, time, …
    return head.size() < 3 ? -1 : to_integer(head[2]).value_or(-1);
  }
  return -1;
}

}  // namespace

MemoryGroup memory_group(pid_t pid) {
  MemoryGroup found;
  for (const std::string& line : split(whole_text(formatted("/proc/{}/cgroup", pid)), '\n')) {
    const std::vector<std::string> part = split(line, ':');  // fields: id:controllers:path
    if (part.size() < 3) continue;
    const std::string path = part[2] == "/" ? "" : part[2];
    if (part[1] == "memory") return read_group("/sys/fs/cgroup/memory", path);
    if (part[1].empty()) found = read_group("/sys/fs/cgroup", path);
  }
  return found;
}

std::string killed_workers(const MemoryGroup& before) {
  const MemoryGroup now = read_directory(before.directory);
  if (before.kills < 0 || now.kills <= before.kills) return {};
  std::string text = "meanwhile the kernel's out-of-memory killer ended " +
                     count_of(now.kills - before.kills, "process") + " of its cgroup";
  if (now.limit_bytes > 0) text += ", which may hold " + human_bytes(now.limit_bytes);
  return text + ": perhaps its data loader's workers; give it fewer, or more memory";
}

OomKill oom_verdict(pid_t pid, const MemoryGroup& before, std::int64_t peak_bytes) {
  const MemoryGroup now = read_directory(before.directory);
  const std::int64_t at_us = time_in_log(pid);
  if (now.kills <= before.kills && at_us < 0) return {};
  std::string text = "killed by the kernel's out-of-memory killer";
  if (peak_bytes > 0) text += " when it held " + human_bytes(peak_bytes);
  if (now.limit_bytes > 0) text += "; its cgroup may hold " + human_bytes(now.limit_bytes);
  return {text, at_us};
}

}  // namespace hvd::rank
