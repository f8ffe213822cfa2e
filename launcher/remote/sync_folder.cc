#include "launcher/remote/sync_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/files/own_file.h"
#include "base/files/own_folder.h"
#include "base/files/trust.h"
#include "base/format.h"
#include "base/process/capture.h"
#include "base/text.h"
#include "launcher/process/find_program.h"
#include "launcher/remote/ask_hosts.h"
#include "launcher/remote/preflight.h"
#include "launcher/remote/shell_talk.h"
#include "launcher/remote/start_failure.h"
#include "launcher/remote/sync_list.h"
#include "launcher/remote/sync_script.h"

namespace hvd::launcher {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto most_time_to_pack = 600s, most_time_in_all = 3600s, most_time_for_uv = 1800s;
constexpr auto most_silence = 60s;
constexpr auto between_lines_of_progress = 5s;
constexpr std::string_view archive_prefix = "hvdrun-sync-";
constexpr int most_attempts = 3;  ///< to read a folder that changes meanwhile

/// The folder's content at one moment, as a file that ends with this object.
struct Archive {
  OwnFolder room{place_for_own_folder(), archive_prefix, ::getpid()};
  SyncList list{};
  Fd file{};
  std::uint64_t bytes = 0;
  std::string changed{};  ///< a file that changed while it was read; empty: none
};

void put(const std::string& path, const std::string& text) {
  const Fd file = open_own_file(path, WriteMode::truncate, 0600);
  if (!write_all(file.get(), text)) throw Error(Code::unavailable, path, errno_text(errno), "is there room in TMPDIR?");
}

void pack(Archive& archive, const std::string& folder, const std::string& tar) {
  const std::string& room = archive.room.path();
  const std::string names = room + "/names", packed = room + "/packed", mark = std::string(sync_mark) + ".new";
  const std::vector<std::string> command{"/usr/bin/env",
                                         "-u",
                                         "TAR_OPTIONS",
                                         "LC_ALL=C",
                                         tar,
                                         "--create",
                                         "--format=gnu",
                                         "--no-recursion",
                                         "--hard-dereference",
                                         "--numeric-owner",
                                         "--force-local",
                                         "--null",
                                         "--file",
                                         packed,
                                         "--directory",
                                         folder,
                                         "--files-from",
                                         names,
                                         "--directory",
                                         room,
                                         "./" + mark};
  for (int attempt = 1;; ++attempt) {
    archive.list = list_folder(folder);
    std::string text;
    for (const SyncEntry& e : archive.list.entries) (text += "./" + e.name) += '\0';
    put(names, text);
    put(room + "/" + mark, mark_text(archive.list.entries));
    const CaptureResult done = capture(command, "", most_time_to_pack);
    archive.changed = done.ok() ? "" : split(done.err, '\n')[0];
    if (done.ok() || (done.code == 1 && attempt == most_attempts)) break;
    if (attempt == most_attempts || done.timed_out)
      throw Error(done.timed_out ? Code::timeout : Code::usage, "--sync",
                  "cannot read " + folder + ": " + (done.timed_out ? "not within 10 minutes" : archive.changed),
                  "look at the modes of that file, and at the room in TMPDIR");
  }
  archive.file = Fd(::open(packed.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat s {};
  if (!archive.file || ::fstat(archive.file.get(), &s) != 0) throw Error(Code::unavailable, packed, errno_text(errno));
  archive.bytes = static_cast<std::uint64_t>(s.st_size);
}

SyncSource source_of(const Job& job) {
  const std::string typed = job.settings.text("sync");
  std::error_code error;
  SyncSource source;
  source.folder = std::filesystem::canonical(typed, error);
  struct stat s {};
  if (error || ::stat(source.folder.c_str(), &s) != 0 || !S_ISDIR(s.st_mode))
    throw Error(Code::usage, "--sync", "there is no folder " + typed, "name the folder of your program, such as .");
  if (source.folder == "/" || printable(source.folder) != source.folder)
    throw Error(Code::usage, "--sync", "cannot copy the folder " + printable(source.folder),
                "name the folder of your program, such as .");
  source.mode = (s.st_mode & 0755) | 0700;
  if (!job.settings.flag("allow-writable")) source.software_owners = job.software_owners;
  return source;
}

/// Asked late: a file that is made in the folder changes it.
std::string identity_of(const std::string& folder) {
  struct stat s {};
  return ::stat(folder.c_str(), &s) == 0 ? formatted("{} {}", s.st_ino, s.st_ctim.tv_sec) : "";
}

/// Throws for jobs that --sync cannot serve.
void need_ssh(const Job& job) {
  if (!job.launch_agent.empty())
    throw Error(Code::usage, "--sync", "copies by ssh, and this job's hosts are reached by " + job.launch_agent[0],
                "--ssh-program ssh, if ssh reaches them, too; else share the folder");
  if (job.settings.has("host-discovery-script"))
    throw Error(Code::usage, "--sync", "hosts that come later would lack the folder",
                "share the folder, or name all hosts with -H");
}

Error no_copy(const MappedHost& host, const std::string& folder, ShellTalk& talk) {
  const bool silent = talk.timed_out();
  const int status = talk.finish();
  if (auto problem = preflight_problem(host.name, talk.errors())) return *problem;
  const std::string what = formatted("{} has no copy of {}: ", host.name, folder);
  if (silent)
    return {Code::timeout, "--sync", what + "no progress", "look at its disk and the network: ssh " + host.name};
  return {Code::unavailable, "--sync", what + why_no_daemon(host.name, talk.errors(), status),
          "try: ssh " + host.name + " true"};
}

/// Copies to one host.  False: it shares the folder.
bool copy_to(const MappedHost& host, const Job& job, const SyncSource& source, const Archive& archive) {
  ShellTalk talk(way_to(host, job), Clock::now() + most_time_in_all);
  const auto fail = [&] { return no_copy(host, source.folder, talk); };
  if (!talk.say(sync_opening(source), most_time_to_answer)) throw fail();
  std::vector<std::string> lines;
  for (;;) {
    std::optional<std::string> line = talk.line(most_silence);
    if (!line) throw fail();
    if (*line == sync_same) return false;
    if (*line == sync_end) break;
    lines.push_back(std::move(*line));
  }
  const std::vector<SyncEntry>& now = archive.list.entries;
  if (!talk.say(sync_unpacking(gone(entries_of_mark(lines), now), now), most_silence)) throw fail();
  std::optional<std::string> line;
  while ((line = talk.line(most_silence)) && *line != sync_go) {}
  auto next = Clock::now() + between_lines_of_progress;
  const auto tell = [&](std::uint64_t sent) {
    if (Clock::now() < next) return;
    next += between_lines_of_progress;
    std::fprintf(stderr, "hvdrun: %s has %d %% of %s\n", printable(host.name).c_str(),
                 static_cast<int>(100 * sent / archive.bytes), source.folder.c_str());
  };
  if (!line || !talk.send_file(archive.file.get(), archive.bytes, most_silence, tell)) throw fail();
  auto patience = most_silence;
  while ((line = talk.line(patience)) && *line != sync_done)
    if (*line == sync_uv) patience = most_time_for_uv;
  if (!line) throw fail();
  return true;
}

}  // namespace

std::vector<Error> sync_folder(Job& job, const Environment& environment) {
  SyncSource source = source_of(job);
  if (job.map.all_local()) return {};
  need_ssh(job);
  const char* path = environment("PATH");
  const std::string tar = find_program("tar", absolute_only(path ? path : ""));
  if (tar.empty()) throw Error(Code::unavailable, "tar", "is not in PATH", "--sync needs it here and on all hosts");
  need_trusted_program(job, tar, "tar");
  const auto begin = Clock::now();
  sweep_own_folders(place_for_own_folder(), archive_prefix);
  Archive archive;
  pack(archive, source.folder, tar);
  if (!archive.changed.empty())
    std::fprintf(stderr, "hvdrun: a file changes all the time; all hosts get the same state of it (%s)\n",
                 printable(archive.changed).c_str());
  source.identity = identity_of(source.folder);
  std::vector<std::optional<Error>> failures(job.map.hosts.size());
  std::atomic<int> copies{0};
  for_each_host(job, [&](std::size_t i) {
    if (job.map.hosts[i].local) return;
    try {
      copies += copy_to(job.map.hosts[i], job, source, archive);
    } catch (const Error& e) { failures[i].emplace(e); }
  });
  std::vector<Error> told;
  for (const auto& failure : failures)
    if (failure) told.push_back(*failure);
  if (!told.empty()) return told;
  if (copies == 0) std::fprintf(stderr, "hvdrun: all hosts share %s\n", source.folder.c_str());
  if (copies == 0) return {};
  const auto files = std::count_if(archive.list.entries.begin(), archive.list.entries.end(),
                                   [](const SyncEntry& e) { return e.kind != 'd'; });
  std::fprintf(stderr, "hvdrun: copied %s to %s: %s, %s, %.1f s\n", source.folder.c_str(),
               count_of(copies.load(), "host").c_str(), count_of(files, "file").c_str(),
               human_bytes(static_cast<std::int64_t>(archive.list.bytes)).c_str(),
               std::chrono::duration<double>(Clock::now() - begin).count());
  return {};
}

}  // namespace hvd::launcher
