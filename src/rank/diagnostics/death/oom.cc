#include "rank/diagnostics/death/oom.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

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

/// The inode of the first process namespace (the kernel's PROC_PID_INIT_INO).  The log has its numbers.
constexpr ino_t first_process_namespace = 0xEFFFFFFC;

bool in_first_process_namespace() {
  struct stat about {};
  return stat("/proc/self/ns/pid", &about) == 0 && about.st_ino == first_process_namespace;
}

/// The time in the head of a record: "priority,number,time,…;text".
std::optional<std::int64_t> time_of(std::string_view record) {
  const std::vector<std::string> head = split(record.substr(0, record.find(';')), ',');
  return head.size() < 3 ? std::nullopt : to_integer(head[2]);
}

/// The time of the kill of @p pid.  If the group's counter has risen, the record may follow within some milliseconds.
std::optional<std::int64_t> time_of_kill(pid_t pid, KernelLog& log, bool counted) {
  for (int i = 0; i < 10; ++i) {
    if (const auto at_us = log.time_of_kill(pid)) return at_us;
    if (!counted || !log.complete()) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return std::nullopt;
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

KernelLog::KernelLog()
    : file_(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)), same_numbers_(in_first_process_namespace()) {
  if (file_ && lseek(file_.get(), 0, SEEK_END) < 0) file_.reset();
}

std::optional<std::int64_t> KernelLog::time_of_kill(pid_t pid) {
  if (!readable() || !same_numbers_) return std::nullopt;
  const std::string wanted = formatted("Killed process {} (", pid);
  char record[8192];
  for (int i = 0; i < 100000; ++i) {
    const ssize_t n = read(file_.get(), record, sizeof record);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EPIPE) {
      lost_records_ = true;
      continue;
    }
    if (n <= 0) return std::nullopt;
    const std::string_view text(record, static_cast<std::size_t>(n));
    if (text.find(wanted) != std::string_view::npos) return time_of(text);
  }
  lost_records_ = true;
  return std::nullopt;
}

OomKill oom_verdict(pid_t pid, const MemoryGroup& before, KernelLog& log, std::int64_t peak_bytes) {
  const MemoryGroup now = read_directory(before.directory);
  const bool counted = now.kills > before.kills;
  const std::optional<std::int64_t> at_us = time_of_kill(pid, log, counted);
  if (!at_us && (!counted || log.complete())) return {};
  std::string text = "killed by the kernel's out-of-memory killer";
  if (peak_bytes > 0) text += " when it held " + human_bytes(peak_bytes);
  if (now.limit_bytes > 0) text += "; its cgroup may hold " + human_bytes(now.limit_bytes);
  return {text, at_us.value_or(-1)};
}

}  // namespace hvd::rank
