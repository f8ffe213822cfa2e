#include "launcher/control/timeline/timeline_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "../temp_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "base/files/gzip.h"
#include "base/format.h"
#include "collect.h"
#include "launcher/control/clock.h"
#include "launcher/control/timeline/pacer.h"
#include "recorder/trace/file_sink.h"
#include "trace/perfetto/perfetto_packets.h"
#include "trace/timeline.h"
#include "trace/trace_file.h"

using namespace hvd;
using namespace hvd::launcher;
using std::chrono::milliseconds;

namespace {

/// Waits until a file that is being written holds @p part, half a minute at most. @p text gets its whole lines.
void wait_for(const std::string& path, std::string_view part, std::string& text) {
  for (int i = 0; i < 1500; ++i) {
    text = read_file(path, 1u << 24);
    text.resize(text.rfind("},\n") == text.npos ? 0 : text.rfind("},\n") + 3);  // a reader may see half a write
    if (text.find(part) != std::string::npos) return;
    std::this_thread::sleep_for(milliseconds(20));
  }
}

/// Returns a rank's frames for @p operations allreduces, of one tensor or of a tensor each.
test::Frames recording(int operations, bool named = false) {
  test::MemorySink::Store store;
  trace::Tracer tracer(trace::Tracer::Options{4u << 20, 10});
  tracer.start(std::make_unique<test::MemorySink>(store), false);
  std::vector<trace::Track> tracks(named ? static_cast<std::size_t>(operations) : 1);
  for (int i = 0; i < operations; ++i) {
    const std::string name = named ? "tensor " + std::to_string(i) : "a";
    trace::Track& track = tracks[named ? static_cast<std::size_t>(i) : 0];
    tracer.submitted(track, {name, trace::TraceOp::allreduce, 7, {}, 0});
    tracer.batch_begin(1);
    tracer.batch_tensor(track);
    tracer.batch_end(1);
  }
  tracer.stop();
  return store.frames;
}

std::string body(const std::vector<std::uint8_t>& frame) { return {frame.begin(), frame.end()}; }

}  // namespace

TEST_CASE("timeline file: all ranks in one valid array") {
  const test::TempFolder folder;
  const std::string path = folder.path + "/t.json";
  TimelineFile file({.path = path});
  for (int rank = 0; rank < 2; ++rank) {
    file.rank_started(rank, "host", true);
    for (const auto& frame : recording(10)) file.append(rank, body(frame));
    file.rank_ended(rank, rank == 0 ? "" : "killed by SIGKILL");
  }
  CHECK(file.close(milliseconds(60000)) == "");
  int operations[2] = {0, 0}, marks = 0;
  for (const auto& event : nlohmann::json::parse(read_file(path, 1u << 24))) {
    if (event.value("name", "") == "ALLREDUCE") ++operations[event["pid"].get<int>()];
    if (event.value("name", "") == "killed by SIGKILL") ++marks;
  }
  CHECK(operations[0] == 10);
  CHECK(operations[1] == 10);
  CHECK(marks == 1);
}

TEST_CASE("timeline file: readable while the job runs, without a close") {
  const test::TempFolder folder;
  const std::string path = folder.path + "/t.json";
  TimelineFile file({.path = path});
  file.rank_started(0, "host", true);
  for (const auto& frame : recording(10)) file.append(0, body(frame));
  std::string text;
  wait_for(path, "\"ALLREDUCE\"", text);
  REQUIRE(text.ends_with("},\n"));
  CHECK(nlohmann::json::accept(text.substr(0, text.size() - 2) + "]"));
  CHECK(text.find("\"ALLREDUCE\"") != std::string::npos);
}

TEST_CASE("timeline file: at half its limit another begins, the last two are kept, and each can be read") {
  const test::TempFolder folder;
  const std::string path = folder.path + "/t.json", older = folder.path + "/t.older.json";
  TimelineFile file({.path = path, .max_bytes = 500'000});
  file.rank_started(0, "host", true);
  for (const auto& frame : recording(10'000)) file.append(0, body(frame));
  CHECK(file.close(milliseconds(60000)).find("--timeline-max-mb") != std::string::npos);
  const std::string text = read_file(path, 1u << 24), before = read_file(older, 1u << 24);
  CHECK(text.size() + before.size() <= 500'000);
  const auto events = nlohmann::json::parse(text), first = nlohmann::json::parse(before);
  CHECK(events.back()["args"]["text"] == "end");
  CHECK(first.back()["args"]["text"] == "continued in " + path);
  const auto named = [](const auto& file_events, std::string_view name) {
    return std::any_of(file_events.begin(), file_events.end(),
                       [&](const auto& event) { return event["name"] == name; });
  };
  for (const char* name : {"process_name", "thread_name", "hvd_clock"}) CHECK(named(events, name));
  const auto last = [](const auto& file_events) {
    double us = 0;
    for (const auto& event : file_events) us = event.value("ts", us);
    return us;
  };
  const bool just_begun = last(events) == 0;  // the older one became full with the last event
  CHECK((just_begun || last(first) <= last(events)));
}

namespace {

/// Returns the packets of a file that may stop anywhere, without an incomplete last one.
std::size_t whole_packets(const std::string& bytes) {
  std::size_t at = 0, end = 0;
  while (at < bytes.size()) {
    REQUIRE(bytes[at] == trace::packet_tag);
    std::size_t length = 0;
    for (unsigned shift = 0; ++at < bytes.size(); shift += 7) {
      length |= (static_cast<std::size_t>(bytes[at]) & 0x7f) << shift;
      if ((bytes[at] & 0x80) == 0) break;
    }
    at += 1 + length;
    if (at <= bytes.size()) end = at;
  }
  return end;
}

}  // namespace

TEST_CASE("timeline file: packets, whole ones only, on a full disk too and after a change of files") {
  const test::TempFolder folder;
  const std::string path = folder.path + "/t.pftrace";
  {
    TimelineFile file({.path = path, .max_bytes = 400'000});
    for (int rank = 0; rank < 2; ++rank) file.rank_started(rank, "host", true);
    for (const auto& frame : recording(10'000)) file.append(0, body(frame));
    CHECK(file.close(milliseconds(60000)).find("--timeline-max-mb") != std::string::npos);
    for (const std::string& name : {path, folder.path + "/t.older.pftrace"}) {
      const std::string bytes = read_file(name, 1u << 24);
      CHECK(bytes.size() <= 200'000);
      CHECK(whole_packets(bytes) == bytes.size());
      CHECK(bytes.find("rank 0 (host)") != bytes.npos);
    }
  }
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t room : {20'000, 20'001, 20'017}) {
    TimelineFile file({.path = path});
    file.rank_started(0, "host", true);
    const struct rlimit limit { room, before.rlim_max };
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    for (const auto& frame : recording(1000)) file.append(0, body(frame));
    CHECK(file.close(milliseconds(60000)).ends_with(" did not fit; the others can be read"));
    setrlimit(RLIMIT_FSIZE, &before);
    const std::string bytes = read_file(path, 1u << 24);
    CHECK(bytes.size() > room - 2000);
    CHECK(whole_packets(bytes) == bytes.size());
    CHECK(bytes.find(" did not fit\"") != bytes.npos);
  }
  signal(SIGXFSZ, handler);
}

TEST_CASE("timeline file: cannot be written") {
  try {
    TimelineFile file({.path = "/nonexistent/folder/t.json"});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code == Code::usage);
    CHECK(std::string(error.what()).find("/nonexistent/folder/t.json") != std::string::npos);
  }
  CHECK_THROWS_AS(TimelineFile({.path = "/dev/full"}), Error);
}

TEST_CASE("timeline file: another process that writes it keeps it") {
  const test::TempFolder folder;
  const std::string path = folder.path + "/t.json";
  int ready[2], done[2];
  REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
  REQUIRE(::pipe2(done, O_CLOEXEC) == 0);
  const pid_t writer = ::fork();
  REQUIRE(writer >= 0);
  if (writer == 0) {
    ::alarm(60);
    trace::TraceFile file(path, 100'000, "");
    char byte = 0;
    if (::write(ready[1], &byte, 1) != 1 || ::read(done[0], &byte, 1) != 1) ::_exit(1);
    const std::string line = "{\"ph\":\"i\",\"name\":\"" + std::string(900, 'x') + "\"},\n";
    for (int i = 0; i < 60; ++i) file.write(line);  // the second half goes to another file, locked as well
    file.write_end("end");
    if (::write(ready[1], &byte, 1) != 1 || ::read(done[0], &byte, 1) != 1) ::_exit(1);
    ::_exit(0);
  }
  const auto refused = [&] {
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    try {
      TimelineFile file({.path = path});
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.code == Code::usage);
      CHECK(std::string(error.what())
                .find(formatted("another job writes '{}' (process {})", path, static_cast<int>(writer))) !=
            std::string::npos);
    }
    REQUIRE(::write(done[1], &byte, 1) == 1);
  };
  refused();
  refused();
  int status = 1;
  REQUIRE(::waitpid(writer, &status, 0) == writer);
  CHECK(status == 0);
  for (const std::string& name : {path, folder.path + "/t.older.json"})
    CHECK(nlohmann::json::parse(read_file(name, 1u << 24)).back()["name"] == "hvd_end");
  TimelineFile file({.path = path});  // it has ended
}

TEST_CASE("timeline file: one that cannot get its older name goes on to its limit") {
  const test::TempFolder folder;
  const std::string path = folder.path + "/t.json";
  REQUIRE(std::filesystem::create_directories(trace::TraceFile::older_path(path) + "/full"));
  trace::TraceFile file(path, 100'000, "");
  for (int i = 0; i < 120; ++i) file.write("{\"ph\":\"i\",\"name\":\"" + std::string(900, 'x') + "\"},\n");
  file.write_end("end");
  CHECK(file.warning().find("the timeline stops at") != std::string::npos);
  const auto events = nlohmann::json::parse(read_file(path, 1u << 24));
  CHECK(events.size() > 100);
  CHECK(std::count_if(events.begin(), events.end(), [](const auto& e) { return e["name"] == "hvd_end"; }) == 1);
}

TEST_CASE("timeline file: on a full disk whole events are left out, and the end is there") {
  const test::TempFolder folder;
  const std::string path = folder.path + "/t.json";
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto allow = [&](rlim_t bytes) {
    const struct rlimit limit { bytes, before.rlim_max };
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  };
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t room : {20'000, 20'480, 20'481, 70'007}) {  // a full disk: bytes beyond it cannot be written
    CAPTURE(room);
    TimelineFile file({.path = path});
    file.rank_started(0, "host", true);
    allow(room);
    for (const auto& frame : recording(1000)) file.append(0, body(frame));
    const std::string warning = file.close(milliseconds(60000));
    allow(before.rlim_cur);
    CHECK(warning.find("File too large (see ulimit -f): ") != std::string::npos);
    CHECK(warning.ends_with(" events did not fit; the others can be read"));
    const std::string text = read_file(path, 1u << 24);
    CHECK(text.size() > room - 2000);
    CHECK(nlohmann::json::parse(text).back()["name"] == "hvd_end");
  }
  trace::TraceFile file(path, 1u << 30, "");
  allow(20'000);
  const std::string line = "{\"ph\":\"i\",\"name\":\"" + std::string(9000, 'x') + "\"},\n";
  for (int i = 0; i < 4; ++i) file.write(line);
  CHECK(file.usable());
  allow(before.rlim_cur);
  file.write(line);  // there is room again
  file.write_end("end");
  CHECK(file.warning() == path + ": File too large (see ulimit -f): 2 events did not fit; the others can be read");
  CHECK(nlohmann::json::parse(read_file(path, 1u << 24)).size() == 4);
  const std::string packed = folder.path + "/t.json.gz";
  trace::TraceFile members(packed, 1u << 30, "");
  allow(2000);
  std::mt19937 random(1);
  const auto noise = [&random] {
    std::string text;
    for (int i = 0; i < 600; ++i) text += static_cast<char>('a' + random() % 26);
    return "{\"ph\":\"i\",\"name\":\"" + text + "\"},\n";
  };
  for (int i = 0; i < 8; ++i) members.write(noise());
  members.write_end("end");
  CHECK(members.warning().find(" events did not fit; the others can be read") != std::string::npos);
  allow(before.rlim_cur);
  const Fd from(::open(packed.c_str(), O_RDONLY | O_CLOEXEC)), to(::memfd_create("content", MFD_CLOEXEC));
  gunzip(from.get(), to.get());
  const auto events = nlohmann::json::parse(read_file(formatted("/proc/self/fd/{}", to.get()), 1u << 24));
  CHECK(events.size() >= 2);
  CHECK(events.back()["name"] == "hvd_end");
  CHECK(trace::TraceFile::older_path(packed) == folder.path + "/t.older.json.gz");
  signal(SIGXFSZ, handler);
}

TEST_CASE("timeline file: on a full disk each event is tried and counted once, however many names there are") {
  const test::TempFolder folder;
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  for (const char* name : {"/t.json", "/t.json.gz", "/t.pftrace"}) {
    CAPTURE(std::string(name));
    trace::TraceFile file(folder.path + name, 1u << 30, "");
    int writes = 0;
    trace::Timeline timeline(
        0, [&](std::string_view events) { return ++writes, file.write(events); }, file.format());
    const struct rlimit limit { 20'000, before.rlim_max };
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    timeline.name_rank(0, "host");
    for (const auto& frame : recording(6000, true)) CHECK(timeline.feed(0, frame));
    timeline.show_all();
    file.write_end("end");
    REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
    std::string warning = file.warning();
    REQUIRE(warning.ends_with(" events did not fit; the others can be read"));
    warning.erase(0, warning.find("-f): ") + 5);
    CHECK(std::stoull(warning) > 6000);
    const unsigned packets = file.format() == trace::TimelineFormat::perfetto ? 2 : 1;  // a beginning and an end
    CHECK(std::stoull(warning) <= packets * timeline.events());
    CHECK(writes < 100);
  }
  signal(SIGXFSZ, handler);
}

TEST_CASE("timeline file: bad records cost one rank, not the file") {
  const test::TempFolder folder;
  const std::string path = folder.path + "/t.json";
  TimelineFile file({.path = path});
  file.append(0, "nonsense");
  file.append(7, "nobody");
  for (const auto& frame : recording(3)) file.append(1, body(frame));
  CHECK(file.close(milliseconds(60000)).find("rank 0") != std::string::npos);
  CHECK(read_file(path, 1u << 24).find("\"ALLREDUCE\"") != std::string::npos);
}

TEST_CASE("clock: the fastest round trip counts, and grows old") {
  ClockEstimate clock;
  CHECK_FALSE(clock.known());
  CHECK(clock.add(1000, 3000, 52'000));
  CHECK(clock.offset_ns() == 50'000);
  CHECK(clock.uncertainty_at(3000) == 1000);
  CHECK_FALSE(clock.add(4000, 8000, 60'000));
  CHECK(clock.add(10'000, 10'200, 60'100));
  CHECK(clock.uncertainty_at(10'200) == 100);
  CHECK(clock.uncertainty_at(10'200 + 2'000'000'000) == 100'100);
  CHECK_FALSE(clock.add(5000, 4000, 0));
  ClockEstimate same = ClockEstimate::same_clock();
  CHECK_FALSE(same.add(0, 10, 7777));
  CHECK(same.offset_ns() == 0);
  CHECK(same.uncertainty_at(INT64_MAX / 2) == 0);
}

TEST_CASE("pacer: idle processors may be used, busy ones hardly") {
  const auto times =
      parse_cpu_times("cpu  100 0 50 800 10 0 5 0 0 0\ncpu0 50 0 25 400 5 0 0 0 0 0\ncpu1 1 1\nintr 5\n");
  REQUIRE(times);
  CHECK(times->idle == 810);
  CHECK(times->total == 965);
  CHECK(times->processors == 2);
  CHECK_FALSE(parse_cpu_times("").has_value());
  CHECK_FALSE(parse_cpu_times("cpu  1 2").has_value());
  CHECK(allowed_share({0, 0, 2}, {0, 100, 2}) < 0.05);
  CHECK(allowed_share({0, 0, 2}, {50, 100, 2}) == 1);
  CHECK(allowed_share({0, 0, 2}, {0, 0, 2}) == 1);
  CHECK(allowed_share({0, 0, 64}, {1, 100, 64}) == 1);
}

TEST_CASE("file sink: a rank alone writes its own file, which may be cut anywhere") {
  const test::TempFolder folder;
  trace::Tracer tracer(trace::Tracer::Options{1u << 16, 10});
  tracer.start(trace::make_file_sink({folder.path + "/t.json", 1, 2, "host"}), false);
  trace::Track track;
  tracer.submitted(track, {"a", trace::TraceOp::broadcast, 7, {}, 0});
  const std::string path = folder.path + "/t.rank1.json";
  std::string text;
  wait_for(path, "thread_name\",\"pid\":1,\"tid\":1", text);
  REQUIRE(text.ends_with("},\n"));
  CHECK(nlohmann::json::accept(text.substr(0, text.size() - 2) + "]"));
  wait_for(path, "NEGOTIATE_BROADCAST", text);  // it hangs: shown
  CHECK(text.find("NEGOTIATE_BROADCAST") != std::string::npos);
  tracer.stop();
  const auto events = nlohmann::json::parse(read_file(path, 1u << 24));
  CHECK(events[0]["name"] == "hvd_file");
  CHECK(events[0]["args"]["host"] == "host");
  CHECK(std::any_of(events.begin(), events.end(),
                    [](const auto& event) { return event["name"] == "NEGOTIATE_BROADCAST"; }));
  CHECK_THROWS_AS(trace::make_file_sink({"/nonexistent/t.json", 0, 1, "host"}), Error);
}
