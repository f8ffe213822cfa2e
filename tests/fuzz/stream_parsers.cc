/// Parsers of streams and files: records of a timeline, the local socket, Spark's relay, timelines, topologies.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/network/framed_socket.h"
#include "launcher/mapping/topology.h"
#include "launcher/spark/relay.h"
#include "parsers.h"
#include "placement/machine_text.h"
#include "tools/hvd-timeline/merge.h"
#include "tools/hvd-timeline/timeline_report.h"
#include "trace/timeline.h"
#include "wire/channel/local_socket.h"
#include "wire/messages/link.h"

namespace hvd::fuzz {
namespace {

/// A file that exists only in memory.
class File {
 public:
  explicit File(const std::string& bytes) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    hold(fd_ && write_all(fd_.get(), bytes));
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }

 private:
  Fd fd_;
};

/// Frames of records: u8 rank, u16 length, body, and so on. The output is JSON, whatever the records hold.
void trace(const std::string& s) {
  std::string text(trace::Timeline::opening());
  trace::Timeline timeline(0, [&](std::string_view lines) { return text += lines, true; });
  trace::Timeline packets(
      0, [](std::string_view) { return true; }, trace::TimelineFormat::perfetto);
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(s[at]); };
  for (std::size_t at = 0; at + 3 <= s.size();) {
    const int rank = byte(at) % 3;
    const std::size_t size = std::min<std::size_t>(byte(at + 1) | byte(at + 2) << 8, s.size() - at - 3);
    const auto* body = reinterpret_cast<const std::uint8_t*>(s.data()) + at + 3;
    if (!timeline.feed(rank, {body, size})) timeline.rank_ended(rank, timeline.why(rank), 5);
    packets.feed(rank, {body, size});
    for (trace::Timeline* of : {&timeline, &packets}) of->show_pending(static_cast<std::int64_t>(at) * 1'000'000'000);
    at += 3 + size;
  }
  packets.show_all();
  timeline.show_all();
  timeline.flush();
  hold(nlohmann::json::accept(text + trace::Timeline::ending("end")));
}

std::vector<std::string> trace_samples() {
  std::vector<std::uint8_t> control, engine;
  const auto put = [](std::vector<std::uint8_t>& to, trace::TraceTag tag, std::initializer_list<std::int64_t> values) {
    to.push_back(static_cast<std::uint8_t>(tag));
    for (const std::int64_t v : values) {
      std::uint8_t bytes[trace::varint_max_bytes];
      to.insert(to.end(), bytes, trace::put_varint(bytes, static_cast<std::uint64_t>(v)));
    }
  };
  using enum trace::TraceTag;
  put(control, reset, {});
  put(control, clock, {}), control.insert(control.end(), 16, 1);
  for (int id : {1, 2}) {
    put(control, name, {id, 0, 7, 0, 2, 3, 4, 5}), control.insert(control.end(), {'l', 'a', 'y', '"', 0xff});
  }
  put(engine, reset, {});
  put(engine, submitted, {100, 2}), put(engine, submitted, {10, 2});
  put(engine, batch_begin, {100, 1}), put(engine, batch_tensor, {1}), put(engine, batch_tensor, {2});
  put(engine, phase_begin, {100, 1, 7}), put(engine, phase_end, {100, 1, 7}), put(engine, ran, {100, 1, 8, 50});
  put(engine, batch_end, {100, 1}), put(engine, cycle, {3}), put(engine, failed, {9, 0}), put(engine, lost, {4});
  std::string body{static_cast<char>(trace::trace_version), '\0'};
  for (const int stream : {0, 1}) {
    const auto& bytes = stream ? engine : control;
    body += std::string{static_cast<char>(stream), '\0', static_cast<char>(bytes.size()), '\0', '\0', '\0'};
    body.append(bytes.begin(), bytes.end());
  }
  const std::string framed = std::string{'\0', static_cast<char>(body.size()), '\0'} + body;
  return {framed, framed + framed};
}

/// The messages of a process of the same user to hvdrun's socket: the key, frames.
void local(const std::string& s) {
  int pair[2];
  hold(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
  const Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  Fd mine(pair[0]), other(pair[1]);
  wire::LocalSocket socket(std::move(mine), epoll.get(), 1);
  std::size_t taken = 0;
  for (std::size_t at = 0; at < s.size(); at += 997) {
    if (::send(other.get(), s.data() + at, std::min<std::size_t>(997, s.size() - at), MSG_NOSIGNAL) < 0) break;
    socket.read();
    if (at == 0 && socket.take_key(40)) taken += 40;
    while (const auto frame = socket.take()) taken += wire::link::header_bytes + frame->body.size();
  }
  hold(taken <= s.size());
  other.reset();
  socket.read();
  while (socket.take()) {}
}

std::vector<std::string> local_samples() {
  std::string bytes(40, 'k');
  for (const std::string& body : {std::string("{\"rank\":0}"), std::string(), std::string(3000, 'x')}) {
    bytes += framed(static_cast<std::uint32_t>(wire::Type::hello), body);
  }
  return {bytes};
}

void relay(const std::string& s) {
  std::string waiting;
  std::size_t given = 0;
  for (std::size_t at = 0; at < s.size(); at += 100) {
    waiting += s.substr(at, 100);
    while (const auto body = launcher::take_piece(waiting)) given += body->size() + 4;
  }
  hold(given + waiting.size() == s.size());
}

std::vector<std::string> relay_samples() { return {std::string("\1\5\0\0\0hello\2\0\0\0\0", 15)}; }

void timeline(const std::string& s) {
  const File file(s), joined("");
  const timeline::TimelineReport report = timeline::make_report(file.path());
  to_text(report);
  hold(nlohmann::json::accept(to_json(report)));
  timeline::merge({file.path(), file.path()}, joined.path());
}

std::vector<std::string> timeline_samples() {
  return {
      "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"rank 0\"}},\n"
      "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":1,\"args\":{\"name\":\"grad\"}},\n"
      "{\"ph\":\"X\",\"name\":\"NEGOTIATE_ALLREDUCE\",\"pid\":0,\"tid\":1,\"ts\":1.5,\"dur\":2},\n"
      "{\"ph\":\"B\",\"name\":\"ALLREDUCE\",\"pid\":0,\"tid\":1,\"ts\":4,\"args\":{\"dtype\":\"float32\",\"shape\":\"["
      "2, "
      "3]\"}},\n{\"ph\":\"E\",\"pid\":0,\"tid\":1,\"ts\":9.25},\n{\"ph\":\"i\",\"name\":\"CYCLE_START\",\"pid\":0,"
      "\"tid\":0,\"ts\":10,\"s\":\"g\"}\n]\n"};
}

void topology(const std::string& s) {
  const File file(s);
  const placement::Machine machine = launcher::machine_in_file(file.path());
  for (const placement::Core& core : machine.cores) hold(!core.cpus.empty() && core.node >= 0);
  placement::machine_to_text(machine);
}

std::vector<std::string> topology_samples() {
  return {
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology "
      "version=\"2.0\">\n"
      "<object type=\"Machine\" os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\" allowed_cpuset=\"0x3\" "
      "nodeset=\"0x1\" complete_nodeset=\"0x1\" allowed_nodeset=\"0x1\" gp_index=\"1\">\n<object type=\"NUMANode\" "
      "os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\" nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"2\" "
      "local_memory=\"1000\"/>\n<object type=\"Core\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" "
      "nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"3\"><object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" "
      "complete_cpuset=\"0x1\" nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"4\"/></object>\n<object "
      "type=\"Core\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" nodeset=\"0x1\" complete_nodeset=\"0x1\" "
      "gp_index=\"5\"><object type=\"PU\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" nodeset=\"0x1\" "
      "complete_nodeset=\"0x1\" gp_index=\"6\"/></object>\n</object>\n</topology>\n"};
}

}  // namespace

std::vector<Parser> stream_parsers() {
  return {{"trace", trace, trace_samples},
          {"local", local, local_samples},
          {"relay", relay, relay_samples},
          {"timeline", timeline, timeline_samples},
          {"topology", topology, topology_samples}};
}

}  // namespace hvd::fuzz
