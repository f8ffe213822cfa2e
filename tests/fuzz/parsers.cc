#include "parsers.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/network/framed_socket.h"
#include "base/text.h"
#include "launcher/control/session.h"
#include "launcher/doctor/checkup.h"
#include "launcher/doctor/gpus.h"
#include "launcher/hang/hang_text.h"
#include "launcher/hosts/choose_allocation.h"
#include "launcher/hosts/host_manifest.h"
#include "launcher/hosts/parse_hosts.h"
#include "launcher/hosts/resource_manager.h"
#include "launcher/mapping/gpu_ways.h"
#include "launcher/mapping/show_map.h"
#include "launcher/options/settings.h"
#include "launcher/remote/preflight.h"
#include "launcher/verdict/explain.h"
#include "launcher/verdict/verdict_document.h"
#include "placement/gpu_paths.h"
#include "placement/machine_text.h"
#include "placement/rank_resources.h"
#include "rank/diagnostics/death/error_file.h"
#include "rank/diagnostics/death/gpu_death.h"
#include "trace/trace_decoder.h"
#include "wire/channel/relayed_frame.h"
#include "wire/channel/sim_channel.h"
#include "wire/collectives/operation_record.h"
#include "wire/manifest/daemon_manifest.h"
#include "wire/manifest/manifest.h"
#include "wire/messages/death.h"
#include "wire/messages/hello.h"
#include "wire/messages/link.h"
#include "wire/messages/meeting_message.h"
#include "wire/messages/payload_ready.h"
#include "wire/messages/pmix_message.h"
#include "wire/messages/stack_picture.h"
#include "wire/messages/start_report.h"
#include "wire/messages/status_report.h"
#include "wire/messages/stop_request.h"
#include "wire/shared/mismatched_call.h"
#include "wire/shared/step_record.h"

namespace hvd::fuzz {

namespace {

using namespace launcher;
using wire::Type;

void check(const Allocation& a) {
  long long slots = 0;
  for (const HostSlots& h : a.hosts) {
    hold(!h.host.empty() && h.slots > 0);
    slots += h.slots;
  }
  hold(slots == a.total_slots());
}

/// Returns the first line, and the text after it.
std::pair<std::string, std::string> cut(const std::string& text) {
  const std::size_t end = text.find('\n');
  return end == std::string::npos ? std::pair{text, std::string{}}
                                  : std::pair{text.substr(0, end), text.substr(end + 1)};
}

/// Reads, writes and reads again. The second reading is of hvdrun's own text, so it must not refuse it.
template <class Read>
void there_and_back(Read read, const std::string& text) {
  const auto value = read(text);
  const std::string written = to_json(value);
  try {
    hold(to_json(read(written)) == written);
  } catch (const Error&) { std::abort(); }
}

void hostfile(const std::string& s) { check(parse_hostfile(s, "f")); }
void hosts(const std::string& s) { check(parse_hosts(s)); }
void discovery(const std::string& s) { check(parse_discovered(s, 2, "d")); }
void manifest(const std::string& s) { check(parse_manifest(s, "m")); }

void nodelist(const std::string& s) {
  const auto [nodes, tasks] = cut(s);
  check(parse_slurm(nodes, tasks));
}

void managers(const std::string& s) {
  const auto [kind, text] = cut(s);
  if (kind == "lsf") return check(parse_lsf(text));
  if (kind == "sge") return check(parse_grid_engine(text, "g"));
  check(parse_slot_list(text, "p"));
}

void yaml(const std::string& s) {
  Settings settings;
  read_config(settings, s, "c");
  settings.rank_variables();
  settings.remarks();
}

void words_of_a_shell(const std::string& s) { shell_words(s, "w"); }

void pmix(const std::string& s) {
  const std::string bytes = encode(wire::decode_pmix_message(s));
  hold(encode(wire::decode_pmix_message(bytes)) == bytes);
}

void steps(const std::string& s) {
  const auto records = wire::decode_step_records(s);
  for (const wire::StepRecord& r : records)
    hold(r.waited_ns + r.moved_ns + r.input_ns + r.save_ns + r.collect_ns + r.compile_ns <= r.step_ns && r.number >= 0);
  hold(encode(wire::decode_step_records(encode(records))) == encode(records));
}

void operations(const std::string& s) {
  const auto ranks = wire::operations_of_file(s);
  hold(wire::operations_file(wire::operations_of_file(wire::operations_file(ranks))) == wire::operations_file(ranks));
  (void)difference_between(ranks);
  (void)operations_text(ranks, 4);
}

void verdict(const std::string& s) { hold(!explained(s, "v").empty()); }
void death(const std::string& s) { there_and_back(wire::death_from_json, s); }

/// Any message of the channel: the first line is its type.
void bodies(const std::string& s) {
  const auto [kind, text] = cut(s);
  if (kind == "hello") return there_and_back(wire::hello_from_json, text);
  if (kind == "manifest") return there_and_back(wire::manifest_from_json, text);
  if (kind == "stop") return there_and_back(wire::stop_request_from_json, text);
  if (kind == "started") return there_and_back(wire::start_report_from_json, text);
  if (kind == "unstarted") return there_and_back(wire::start_failure_from_json, text);
  if (kind == "stack") return there_and_back(wire::stack_picture_from_json, text);
  if (kind == "standing") return there_and_back(wire::status_report_from_json, text);
  if (kind == "daemon") return there_and_back(wire::daemon_manifest_from_json, text);
  if (kind == "mismatched_call") return static_cast<void>(wire::mismatched_call_from_stack(text));
  if (kind == "finding") return static_cast<void>(wire::agreement_finding_from_json(text, 4));
  if (kind == "stall") return static_cast<void>(wire::stalls_from_json(text, 4));
  wire::payload_ready_from_json(text);
}

/// Two guards send frames to hvdrun's session: u8 guard, u16 type, u16 length, body, and so on.
void frames(const std::string& s) {
  wire::SimNet net(1024);
  std::vector<wire::RankManifest> manifests(2);
  for (int r = 0; r < 2; ++r)
    manifests[static_cast<std::size_t>(r)].rank = r, manifests[static_cast<std::size_t>(r)].size = 2;
  Session session(net.listen(), manifests, PayloadDelivery("payload", "/p"), [](const JobEvent&) {});
  const std::unique_ptr<wire::Connection> guards[] = {net.connect(), net.connect()};
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(s[at]); };
  for (std::size_t at = 0; at + 5 <= s.size();) {
    const auto& guard = guards[byte(at) % 2];
    const auto type = static_cast<std::uint16_t>(byte(at + 1) | byte(at + 2) << 8);
    const std::size_t size =
        std::min<std::size_t>(byte(at + 3) | static_cast<std::size_t>(byte(at + 4)) << 8, s.size() - at - 5);
    guard->send({type, s.substr(at + 5, size)});
    session.pump({});
    while (guard->receive()) {}
    at += 5 + size;
  }
  session.tick();
  session.stop_all("over", 1, SIGTERM);
  session.release_all();
}

void link_packets(const std::string& s) {
  std::size_t offset = 0, bytes = 0;
  wire::link::View view{};
  while (wire::link::next(s.data(), s.size(), &offset, &view)) {
    hold(view.body + view.bytes <= s.data() + s.size() && view.bytes <= wire::link::max_body_bytes);
    bytes += std::string(view.body, view.bytes).size() + wire::link::header_bytes;
  }
  hold(bytes == offset);
}

void answers(const std::string& s) {
  Answers a;
  a.host = "h";
  read_answers(s, a);
  const Questions q;
  find_problems({a, a}, q);
  matrix({a}, q);
  gpu_lines({a, a});
  imports_of(s);
}

void machine(const std::string& s) {
  preflight_problem("h", s);
  const auto first = placement::machine_from_text(s);
  if (!first) return;
  const auto second = placement::machine_from_text(placement::machine_to_text(*first));
  hold(second && placement::machine_to_text(*second) == placement::machine_to_text(*first));
  for (const placement::GpuMode mode : {placement::GpuMode::all, placement::GpuMode::own, placement::GpuMode::none})
    hold(placement::divide_machine(*first, 3, mode, true).size() == 3);
  machine_text(*first);
  ways_text(*first);
  nlohmann::ordered_json host;
  add_gpus(host, *first);
  for (std::size_t i = 0; i < std::min<std::size_t>(first->gpus.size(), 16); ++i) {
    const placement::GpuInfo &a = first->gpus[i], &b = first->gpus.back();
    hold(gpu_path_between(*first, a, b) == gpu_path_between(*first, b, a));
  }
}

/// A user's script: every text is valid, and most texts have no settings.
void error_file(const std::string& s) { hold(rank::recorded_error(s).size() <= s.size()); }

std::vector<std::string> error_file_samples() {
  return {R"({"message": {"message": "E: x", "extraInfo": {"py_callstack": "Traceback", "timestamp": "1"}}})",
          R"({"message": "E: x"})"};
}

/// A rank's last words. The first line has the Xid numbers that the GPU's driver reported.
void gpu_death(const std::string& s) {
  const auto [numbers, last_words] = cut(s);
  rank::GpuFacts facts{8ll << 30, 1ll << 30, {{1, "a", true, 5}, {2, "", false, 1ll << 40}}, {}, 0};
  for (const std::string& word : words(numbers))
    facts.xids.push_back(static_cast<std::uint64_t>(to_integer(word).value_or(-1)));
  facts.lost_words = static_cast<std::int64_t>(facts.xids.size()) - 1;
  const rank::GpuVerdict memory = rank::out_of_gpu_memory(last_words, facts), errors = rank::gpu_errors(facts);
  rank::out_of_gpu_memory(last_words, {});
  hold(memory.text.find('\n') == std::string::npos && memory.text.empty() == memory.hint.empty());
  hold(errors.text.empty() == (facts.xids.empty() && facts.lost_words <= 0));
}

/// The messages of frameworks and of libhvd when a GPU's memory is exhausted.
std::vector<std::string> gpu_death_samples() {
  return {
      "79 48 13 31\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total "
      "capacity of 79.11 GiB of which 3.00 GiB is free. Process 88 has 36.00 GiB memory in use. Including "
      "non-PyTorch memory, this process has 40.11 GiB memory in use. Of the allocated memory 39.00 GiB is allocated",
      "94 95\nRESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.",
      "\nhvd: no device memory for 4 MiB (64 of 1024 MiB are free): out of memory",
      "999\nOOM when allocating tensor with shape[9] on /job:localhost/replica:0/task:0/device:GPU:0 by GPU_0_bfc",
      "\nterminate called\n  what():  CUDA error: out of memory\nncclUnhandledCudaError: Call to CUDA failed\n"};
}

std::vector<std::string> machine_samples() {
  return {placement::machine_to_text({{{{0, 4}, 0}, {{1, 5}, 1}},
                                      {{"0000:34:00.0", "GPU-1", "Tesla V100", 0, 1}, {"", "MIG-2", "", 1, -1}},
                                      {{"mlx5_0", 1, true}, {"eth0", -1, false}}}),
          placement::machine_to_text({{{{0, 4}, 0}},
                                      {{"0000:34:00.0", "GPU-1", "NVIDIA H100", 0, 0},
                                       {"0000:35:00.0", "GPU-2", "NVIDIA H100", 1, 0},
                                       {"0000:9a:00.0", "GPU-3", "NVIDIA H100", 2, 1}},
                                      {},
                                      {{"0000:34:00.0", "0000:35:00.0", "NV18"},
                                       {"0000:34:00.0", "0000:9a:00.0", "SYS"},
                                       {"0000:9a:00.0", "0000:35:00.0", "PXB"}},
                                      "580.65.06",
                                      "2.30.7"}),
          "hvdrun preflight: has v1, this host has v2 | install\n"};
}

void meeting(const std::string& s) {
  const std::string bytes = encode(wire::decode_meeting_message(s));
  hold(encode(wire::decode_meeting_message(bytes)) == bytes);
}

void relayed(const std::string& s) {
  const auto frame = wire::from_relayed(s);
  hold(!frame || wire::relayed(frame->rank, frame->frame).body == s);
}

std::vector<std::string> relayed_samples() {
  return {wire::relayed(3, {2, "\1abc"}).body, wire::relayed(0, {wire::guard_has_ended, {}}).body, "12345"};
}

std::vector<std::string> death_samples() {
  wire::DeathRecord full;
  full.rank = 1, full.pid = 77, full.host = "h\xff", full.cause = wire::Cause::exited, full.code = 3;
  full.steps = 7, full.step_seconds = 0.5, full.gpu_busy_percent = 99, full.gpu_peak_bytes = 1ll << 40,
  full.gpu_bytes_left = 0;
  full.mismatched_call = wire::MismatchedCall{"ValueError", "hvd.allreduce", {"t\xff.py", 3, "f"}};
  full.text = "ValueError: x", full.traceback = "Traceback", full.tail = {"a", "b"}, full.cpu_seconds = 1.5;
  return {to_json(wire::DeathRecord{}), to_json(full)};
}

std::vector<std::string> verdict_samples() {
  const std::vector<wire::DeathRecord> deaths{wire::death_from_json(death_samples()[1])};
  return {verdict_json({"j", "p", 1, 2, 3, true}, judge(deaths, 2, {}), {}, deaths, 2),
          failed_start_json({"", "p", 1, 2, 3, false}, Error(Code::usage, "w", "x", "y"))};
}

std::vector<std::string> steps_samples() {
  return {"", wire::encode(
                  {wire::StepRecord{.number = 7, .step_ns = 100, .input_ns = 40, .waited_ns = -3, .moved_ns = 70}})};
}

std::vector<std::string> operations_samples() {
  wire::OperationRecord o;
  o.sequence = 3, o.name = "grad/a", o.bytes = 400, o.submit_ns = 7;
  const wire::RankOperations one{"h", 9, 4, {o}};
  o.kind = 5, o.end_ns = 8, o.set = 1;
  return {wire::operations_file({{0, one}, {2, {"g", 9, 4, {o}}}})};
}

std::vector<std::string> pmix_samples() {
  return {encode(wire::PmixMessage{}),
          encode(wire::PmixMessage{.rank = 1, .token = 2, .ranks = {0, 1}, .data = "abc"})};
}

std::vector<std::string> meeting_samples() {
  return {encode(wire::MeetingMessage{.ranks = {0, 1}, .text = "abc"}),
          encode(wire::MeetingMessage{
              .kind = wire::MeetingMessage::Kind::world, .epoch = 2, .members = {{0, 0, 1, "ab"}, {1, 0, 2, "c"}}})};
}

std::vector<std::string> body_samples() {
  wire::RankManifest m;
  m.host = "h", m.cwd = "/", m.env = {{"A", "b"}}, m.payload.args = {"x"}, m.placement.cpus = {0, 1};
  return {"hello\n" + to_json(wire::Hello{}),
          "manifest\n" + to_json(m),
          "stop\n" + to_json(wire::StopRequest{"r", 5}),
          "started\n" + to_json(wire::StartReport{1, {0, 1}, 2, "GPU", "exec", "w"}),
          "unstarted\n" + to_json(wire::StartFailure{2, "t", "h"}),
          "stack\n" + to_json(wire::StackPicture{"S", "p", "n"}),
          "stall\n{\"waits\":[{\"tensor\":\"t\",\"tensors\":2,\"waited_seconds\":5,\"missing\":[1,2],\"size\":4,"
          "\"more\":1}]}",
          "daemon\n" + to_json(wire::DaemonManifest{"j", "n", {{"h", {0, 1}}}, false, {}}),
          "standing\n" + to_json(wire::StatusReport{wire::RankPhase::working, 3, "t", 2, wire::GpuProgress::computing,
                                                    "u", "w", 61}),
          "ready\n" + to_json(wire::PayloadReady{"/p"})};
}

std::string frame(int guard, Type type, const std::string& body) {
  const auto t = static_cast<std::uint16_t>(type);
  std::string s{static_cast<char>(guard), static_cast<char>(t & 255), static_cast<char>(t >> 8),
                static_cast<char>(body.size() & 255), static_cast<char>(body.size() >> 8)};
  return s + body;
}

std::vector<std::string> frame_samples() {
  std::string life;
  for (int r = 0; r < 2; ++r) {
    wire::Hello hello;
    hello.rank = r;
    life += frame(r, Type::hello, to_json(hello)) + frame(r, Type::started, to_json(wire::StartReport{})) +
            frame(r, Type::output, "\1text\n") + frame(r, Type::pong, std::string(16, 'x')) +
            frame(r, Type::phase, "python") + frame(r, Type::result, "r") +
            frame(r, Type::stack, to_json(wire::StackPicture{})) + frame(r, Type::death, to_json(wire::DeathRecord{})) +
            frame(r, Type::clean, "");
  }
  return {life};
}

std::vector<std::string> link_samples() {
  std::string packet;
  for (const std::string& body : {std::string("body"), std::string()}) {
    packet += framed(static_cast<std::uint32_t>(Type::phase), body);
  }
  return {packet};
}

std::vector<std::string> answer_samples() {
  return {
      "cwd yes\nclock 1.5\nrank hvdrank 1.0\nmpi mpirun (Open MPI) 4.1.4\ngpus 2\nshm 1000 900\nfiles 1024\n"
      "python 3.11.2\nhvd 1.0\nabsent a b\nreached 10.0.0.1:5\nend\nimport a.b, c\nfrom d import e\n",
      "cwd yes\nclock 1.5\nrank hvdrank 1.0\ngpus 8\ndriver 580.65.06\nlinks NV18:28 PXB:4 SYS:8\naware yes\nnccl "
      "2.30.7\n"
      "end\n",
      "gpus 1\nlinks\naware no\nnccl 2.18\nlinks :3 NV12:99999999999 PIX:\nend\n"};
}

}  // namespace

const std::vector<Parser>& parsers() {
  static const std::vector<Parser> all = [] {
    std::vector<Parser> table = {{"hostfile", hostfile},
                                 {"hosts", hosts},
                                 {"discovery", discovery},
                                 {"manifest", manifest},
                                 {"nodelist", nodelist},
                                 {"managers", managers},
                                 {"yaml", yaml},
                                 {"shell", words_of_a_shell},
                                 {"death", death, death_samples},
                                 {"verdict", verdict, verdict_samples},
                                 {"pmix", pmix, pmix_samples},
                                 {"steps", steps, steps_samples},
                                 {"operations", operations, operations_samples},
                                 {"meeting", meeting, meeting_samples},
                                 {"relayed", relayed, relayed_samples},
                                 {"bodies", bodies, body_samples},
                                 {"frames", frames, frame_samples},
                                 {"link", link_packets, link_samples},
                                 {"answers", answers, answer_samples},
                                 {"machine", machine, machine_samples},
                                 {"gpu-death", gpu_death, gpu_death_samples},
                                 {"error-file", error_file, error_file_samples}};
    for (const auto& more : {runtime_parsers(), stream_parsers(), message_parsers(), meeting_parsers()})
      table.insert(table.end(), more.begin(), more.end());
    return table;
  }();
  return all;
}

const Parser* find_parser(std::string_view name) {
  for (const Parser& p : parsers())
    if (name == p.name) return &p;
  return nullptr;
}

void feed(const Parser& parser, const std::string& bytes) {
  try {
    parser.run(bytes);
  } catch (const Error&) {}
}

}  // namespace hvd::fuzz
