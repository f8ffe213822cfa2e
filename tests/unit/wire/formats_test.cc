#include <doctest/doctest.h>

#include <cstring>

#include "base/error.h"
#include "base/network/framed_socket.h"
#include "wire/json.h"
#include "wire/manifest/daemon_manifest.h"
#include "wire/manifest/manifest.h"
#include "wire/messages/death.h"
#include "wire/messages/hello.h"
#include "wire/messages/join_offer.h"
#include "wire/messages/link.h"
#include "wire/messages/meeting_message.h"
#include "wire/messages/payload_ready.h"
#include "wire/messages/pmix_message.h"
#include "wire/messages/start_report.h"
#include "wire/messages/stop_request.h"
#include "wire/shared/agreement_finding.h"
#include "wire/shared/failure.h"
#include "wire/shared/mismatched_call.h"
#include "wire/shared/source_frame.h"
#include "wire/shared/stalls.h"
#include "wire/shared/step_record.h"

using namespace hvd;
using namespace hvd::wire;

namespace {

RankManifest sample() {
  RankManifest m;
  m.job = "k3f9";
  m.rank = 3;
  m.size = 4;
  m.local_rank = 1;
  m.local_size = 2;
  m.cross_rank = 1;
  m.cross_size = 2;
  m.host = "node02";
  m.cwd = "/home/émile";
  m.python = "/venv/bin/python";
  m.env = {{"LATIN", "caf\xe9"}, {"EMPTY", ""}, {"WITH_EQ", "a=b=c"}, {"\xff", "odd name"}, {"LINES", "a\nb"}};
  m.payload = {
      PayloadKind::pickle, "train.pkl", {"--lr", "0.1", "\xfe"}, std::string(64, 'a'), 123456789012ull, true, ""};
  m.placement = {true, {4, 5}, 2, "GPU-1", "", 1, true, "own", true};
  m.grace_seconds = 7.5;
  m.collect_results = true;
  m.timeline = true;
  return m;
}

std::string why(const std::string& manifest_text) {
  try {
    manifest_from_json(manifest_text);
  } catch (const Error& e) {
    CHECK(e.code == Code::usage);
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("manifest: comes back as it went, bytes that are no UTF-8 included") {
  const RankManifest m = sample();
  const RankManifest r = manifest_from_json(to_json(m));
  CHECK(r.env == m.env);
  CHECK(r.payload.args == m.payload.args);
  CHECK(r.payload.bytes == m.payload.bytes);
  CHECK(r.payload.kind == PayloadKind::pickle);
  CHECK(r.payload.deliver);
  CHECK(r.placement.cpus == m.placement.cpus);
  CHECK(r.placement.planned);
  CHECK(r.placement.visible_gpus == "");
  CHECK(r.placement.gpu == "GPU-1");
  CHECK(r.placement.gpu_mode == "own");
  CHECK(r.placement.share_gpus);
  CHECK(r.cwd == m.cwd);
  CHECK(r.grace_seconds == 7.5);
  CHECK(to_json(r) == to_json(m));
}

TEST_CASE("manifest: what is wrong is named") {
  CHECK(why("") == "manifest: is not JSON");
  CHECK(why("[]") == "manifest: is not a JSON object");
  CHECK(why("{}") == "manifest.protocol: is missing");
  CHECK(why(std::string(100, '{')) == "manifest: is not JSON");
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":[";
  CHECK(why(deep) == "manifest: nested too deeply");
  CHECK(why(std::string(5 << 20, ' ')) == "manifest: longer than 4 MiB");

  const auto with = [](const char* field, Json value) {
    Json j = Json::parse(to_json(sample()));
    j[Json::json_pointer(field)] = std::move(value);
    return why(j.dump());
  };
  CHECK(with("/rank", 4) == "manifest.rank: is out of range");
  CHECK(with("/rank", -1) == "manifest.rank: is out of range");
  CHECK(with("/rank", 18446744073709551615ull) == "manifest.rank: is too large");
  CHECK(with("/rank", 1.5) == "manifest.rank: is not an integer");
  CHECK(with("/size", "4") == "manifest.size: is not an integer");
  CHECK(with("/protocol", 99) == "manifest.protocol: is another version's");
  CHECK(with("/payload/kind", "virus") == "manifest.payload.kind: is unknown: virus");
  CHECK(with("/payload", 1) == "manifest.payload: is not a JSON object");
  CHECK(with("/placement/cpus", Json::array({-1})) == "manifest.placement.cpus: holds something out of range");
  CHECK(with("/env", Json::array({"NOVALUE"})) == "manifest.env: holds an entry that is not NAME=value");
  CHECK(with("/cwd", Json{{"bytes", "0g"}}) == "manifest.cwd: is not hexadecimal");
  CHECK(with("/cwd", Json{{"bytes", "012"}}) == "manifest.cwd: is not hexadecimal");
  CHECK(with("/grace_seconds", -1) == "manifest.grace_seconds: is out of range");
}

TEST_CASE("death: comes back; text for people is made valid UTF-8") {
  DeathRecord d;
  d.rank = 1;
  d.host = "h";
  d.pid = 77;
  d.time_ns = 123456789;
  d.cause = Cause::oom;
  d.code = 9;
  d.traceback = "Traceback\n caf\xe9";
  d.tail = {"a", "b\xff"};
  CHECK_FALSE(death_from_json(to_json(d)).failure);
  d.failure = Failure{5, 2, "grad caf\xe9"};
  const DeathRecord r = death_from_json(to_json(d));
  REQUIRE(r.failure);
  CHECK(r.failure->code == 5);
  CHECK(r.failure->peer == 2);
  CHECK(r.failure->operation == d.failure->operation);
  CHECK(r.cause == Cause::oom);
  CHECK(r.time_ns == d.time_ns);
  CHECK(r.traceback == "Traceback\n caf\xef\xbf\xbd");
  CHECK(r.tail.size() == 2);
  CHECK_THROWS_AS(death_from_json("{\"rank\":0}"), Error);
}

TEST_CASE("death: exit codes") {
  DeathRecord d;
  CHECK(exit_code(d) == 0);
  d.cause = Cause::exited;
  d.code = 3;
  CHECK(exit_code(d) == 3);
  d.cause = Cause::signalled;
  d.code = 11;
  CHECK(exit_code(d) == 139);
  d.cause = Cause::oom;
  d.code = 9;
  CHECK(exit_code(d) == 137);
  d.cause = Cause::unstarted;
  d.code = 2;
  CHECK(exit_code(d) == 2);
}

TEST_CASE("hello: another protocol is a mismatch that says what to do") {
  Hello h{.protocol = 99, .rank = 1, .pid = 5, .host = "x", .local = true, .version = "9.9", .mono_ns = 1};
  try {
    hello_from_json(to_json(h));
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.code == Code::mismatch);
    CHECK(std::string(e.what()).find("9.9") != std::string::npos);
    CHECK(!e.hint.empty());
  }
  h.protocol = 1;
  CHECK(hello_from_json(to_json(h)).local);
}

TEST_CASE("an offer to join comes back; other protocols and numbers of slots are refused") {
  const JoinOffer o{protocol_version, "1.0", "w-0", 4, "10.0.0.1"};
  const JoinOffer back = join_offer_from_json(to_json(o));
  CHECK(back.host == "w-0");
  CHECK(back.slots == 4);
  CHECK(back.address == "10.0.0.1");
  CHECK_THROWS_AS(join_offer_from_json(to_json(JoinOffer{99, "9", "w", 1, ""})), Error);
  CHECK_THROWS_AS(join_offer_from_json(to_json(JoinOffer{protocol_version, "9", "w", 0, ""})), Error);
  CHECK_THROWS_AS(join_offer_from_json(R"({"protocol": 1, "version": "1"})"), Error);
}

TEST_CASE("small bodies come back") {
  CHECK(stop_request_from_json(to_json(StopRequest{"rank 1 ended", 2.5})).grace_seconds == 2.5);
  CHECK(stop_request_from_json(to_json(StopRequest{"Ctrl-C", 2.5, SIGINT})).signal == SIGINT);
  CHECK(stop_request_from_json(to_json(StopRequest{"", 2.5, SIGSTOP})).signal == SIGTERM);
  CHECK(stop_request_from_json(R"({"reason": "", "grace_seconds": 1})").signal == SIGTERM);
  const StartReport s = start_report_from_json(to_json(StartReport{9, {0, 1}, 2, "", "embedded", "w"}));
  CHECK(s.cpus == std::vector<int>{0, 1});
  CHECK(s.python == "embedded");
  CHECK(start_failure_from_json(to_json(StartFailure{4, "t", "h"})).code == 4);
  CHECK(payload_ready_from_json(to_json(PayloadReady{"/proc/1/fd/3"})).path == "/proc/1/fd/3");
}

TEST_CASE("link: packets hold whole frames; anything else is refused") {
  std::string packet =
      framed(static_cast<std::uint32_t>(Type::phase), "init") + framed(static_cast<std::uint32_t>(Type::result), "");
  std::size_t at = 0;
  link::View v{};
  REQUIRE(link::next(packet.data(), 20, &at, &v));
  CHECK(v.type == Type::phase);
  CHECK(std::string(v.body, v.bytes) == "init");
  REQUIRE(link::next(packet.data(), 20, &at, &v));
  CHECK(v.bytes == 0);
  CHECK(!link::next(packet.data(), 20, &at, &v));
  CHECK(at == 20);

  at = 0;
  CHECK(!link::next(packet.data(), 11, &at, &v));  // the body is cut off
  std::memset(packet.data(), 0xff, 8);
  CHECK(!link::next(packet.data(), 20, &at, &v));
  CHECK(!link::next(packet.data(), 7, &at, &v));
}

TEST_CASE("manifest: no bytes are more than twice as long on the wire") {
  RankManifest m = sample();
  m.env["CONTROLS"] = std::string(720 << 10, '\1');
  m.env["LINES"] = std::string(1000, '\n') + std::string(5000, 'x');
  m.payload.args = {std::string(1 << 20, '\x1b'), std::string(1000, '"')};
  const std::string text = to_json(m);
  CHECK(text.size() < 2 * ((720 << 10) + (1 << 20)) + 20'000);
  const RankManifest back = manifest_from_json(text);
  CHECK(back.env == m.env);
  CHECK(back.payload.args == m.payload.args);
}

TEST_CASE("failure: comes back; what is no failure means none") {
  const Failure back = failure_from(pack({5, 3, "grad"}));
  CHECK(back.code == 5);
  CHECK(back.peer == 3);
  CHECK(back.operation == "grad");
  CHECK(failure_from(pack({5, -1, std::string(5000, 'x')})).operation.size() == 1000);
  CHECK(failure_from("short").code == 0);
  CHECK(failure_from(pack({-5, 3, ""})).code == 0);  // a death record could not carry it
  CHECK(failure_from(pack({5, -7, ""})).code == 0);
}

TEST_CASE("stall: what libhvd writes is what hvdrun reads") {
  const std::vector<Stall> back = stalls_from_json(to_json({{"a\"b\\", 2, 5.5, {0, 2}, 1, 4}}), 4);
  REQUIRE(back.size() == 1);
  CHECK(back[0].tensor == "a\"b\\");
  CHECK(back[0].tensors == 2);
  CHECK(back[0].waited_seconds == 5.5);
  CHECK(back[0].missing == std::vector<int>{0, 2});
  CHECK(back[0].more == 1);
  CHECK(back[0].size == 4);
  CHECK(stalls_from_json(to_json(std::vector<Stall>{}), 4).empty());
}

TEST_CASE("formats: findings of --agreement: what a rank writes is what hvdrun reads, within limits") {
  const AgreementFinding written{AgreementFindingKind::not_finite, "a\"\x1b", 7, {0, 3}, "NaN \"in\"", 99};
  const AgreementFinding back = agreement_finding_from_json(to_json(written), 4);
  CHECK(back.kind == AgreementFindingKind::not_finite);
  CHECK(back.tensor == "a\"?");
  CHECK(back.step == 7);
  CHECK(back.ranks == std::vector<int>{0, 3});
  CHECK(back.text == "NaN \"in\"");
  CHECK(back.time_ns == 99);
  AgreementFinding large{AgreementFindingKind::repaired, std::string(5000, 't'), -1, {}, std::string(5000, 'x'), 0};
  large.ranks.assign(1000, 2);
  const AgreementFinding cut = agreement_finding_from_json(to_json(large), 4);
  CHECK(cut.tensor.size() == most_finding_bytes);
  CHECK(cut.text.size() == most_finding_bytes);
  CHECK(cut.ranks.size() == most_finding_ranks);
  const std::string good = to_json(written);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  CHECK_THROWS_AS(agreement_finding_from_json(with("not_finite", "other"), 4), Error);
  CHECK_THROWS_AS(agreement_finding_from_json(with("[0,3]", "[0,4]"), 4), Error);
  CHECK_THROWS_AS(agreement_finding_from_json(with("\"step\":7", "\"step\":\"7\""), 4), Error);
  CHECK_THROWS_AS(agreement_finding_from_json(with("99}", "99"), 4), Error);
}

TEST_CASE("formats: stalls, which come from the rank itself, are checked") {
  const auto error_of = [](const auto& f) -> std::string {
    try {
      f();
    } catch (const Error& e) { return e.what(); }
    return "";
  };
  const auto read = [](const std::string& text) { return stalls_from_json(text, 3); };
  const auto waits =
      read(R"({"waits":[{"tensor":"a\u001bb","tensors":2,"waited_seconds":5.5,"missing":[2,0],"more":0,"size":3}]})");
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].tensor == "a?b");
  CHECK(waits[0].missing == std::vector<int>{0, 2});
  CHECK(waits[0].waited_seconds == 5.5);
  CHECK(read(R"({"waits":[]})").empty());
  CHECK(error_of([&] {
          read(R"({"waits":[{"tensor":"a","tensors":1,"waited_seconds":5,"missing":[3],"more":0,"size":3}]})");
        }).starts_with("stall.missing"));
  CHECK(error_of([&] { read(R"({"waits":[1]})"); }).starts_with("stall.waits"));
  CHECK(error_of([&] { read(R"({"waits":{}})"); }).starts_with("stall.waits"));
  CHECK(error_of([&] { read("[]"); }).starts_with("stall"));
}

TEST_CASE("daemon manifest: comes back as it went; one without ranks is refused") {
  DaemonManifest m;
  m.job = "k3f9";
  m.pmix_namespace = "hvd-secret";
  m.hosts = {{"a", {0, 2}}, {"b\xff", {1}}};
  m.oversubscribed = true;
  const DaemonManifest r = daemon_manifest_from_json(to_json(m));
  CHECK(r.hosts[0].ranks == std::vector<int>{0, 2});
  CHECK(r.hosts[1].name == "b\xff");
  CHECK(r.pmix_namespace == "hvd-secret");
  CHECK(r.oversubscribed);
  m.hosts[1].ranks.clear();
  CHECK_THROWS_AS(daemon_manifest_from_json(to_json(m)), Error);
}

TEST_CASE("PMIx message: comes back as it went; what is cut short or unknown is refused") {
  const PmixMessage m{.kind = PmixMessage::Kind::fence,
                      .failed = true,
                      .rank = 3,
                      .status = -25,
                      .token = 1ull << 40,
                      .ranks = {1, 3},
                      .data = std::string("a\0b", 3)};
  const std::string bytes = encode(m);
  const PmixMessage r = decode_pmix_message(bytes);
  CHECK(r.kind == m.kind);
  CHECK(r.failed);
  CHECK(r.rank == 3);
  CHECK(r.status == -25);
  CHECK(r.token == m.token);
  CHECK(r.ranks == m.ranks);
  CHECK(r.data == m.data);
  CHECK_THROWS_AS(decode_pmix_message(bytes.substr(0, 10)), Error);
  CHECK_THROWS_AS(decode_pmix_message(bytes.substr(0, 28)), Error);  // declares two ranks, has one
  std::string unknown = bytes;
  unknown[0] = 0;
  CHECK_THROWS_AS(decode_pmix_message(unknown), Error);
}

TEST_CASE("meeting message: comes back as it went; what is cut short, too long or unknown is refused") {
  const MeetingMessage m{.kind = MeetingMessage::Kind::world,
                         .code = 5,
                         .rank = 3,
                         .token = 1ull << 40,
                         .epoch = 9,
                         .ranks = {1, 3},
                         .members = {{1, 0, 7, std::string("a\0b", 3)}, {3, 1, 8, ""}},
                         .text = "why"};
  const std::string bytes = encode(m);
  const MeetingMessage r = decode_meeting_message(bytes);
  CHECK(r.kind == m.kind);
  CHECK(r.code == 5);
  CHECK(r.rank == 3);
  CHECK(r.token == m.token);
  CHECK(r.epoch == 9);
  CHECK(r.ranks == m.ranks);
  REQUIRE(r.members.size() == 2);
  CHECK(r.members[0].text == m.members[0].text);
  CHECK(r.members[1].host == 1);
  CHECK(r.members[1].token == 8);
  CHECK(r.text == "why");
  for (std::size_t n = 0; n < bytes.size(); ++n) CHECK_THROWS_AS(decode_meeting_message(bytes.substr(0, n)), Error);
  CHECK_THROWS_AS(decode_meeting_message(bytes + "x"), Error);
  std::string unknown = bytes;
  unknown[0] = 0;
  CHECK_THROWS_AS(decode_meeting_message(unknown), Error);
  std::string huge = bytes;
  huge.replace(12, 4, "\xff\xff\xff\xff");
  CHECK_THROWS_AS(decode_meeting_message(huge), Error);
  huge.replace(12, 8, std::string(4, 0) + "\xff\xff\xff\xff");
  CHECK_THROWS_AS(decode_meeting_message(huge), Error);
}

TEST_CASE("step records: come back as they went; parts never outgrow their step") {
  const std::vector<StepRecord> sent{
      {.number = 1, .step_ns = 100, .input_ns = 40, .waited_ns = 30, .operations = 2},
      {.number = 2, .epoch = 3, .step_ns = 90, .cpu_ns = 200, .resident_bytes = 1 << 20}};
  const std::vector<StepRecord> came = decode_step_records(encode(sent));
  REQUIRE(came.size() == 2);
  CHECK(encode(came) == encode(sent));
  CHECK_THROWS_AS(decode_step_records(encode(sent).substr(1)), Error);
  CHECK(decode_step_records("").empty());

  const StepRecord nonsense{.number = -1,
                            .step_ns = 100,
                            .input_ns = 90,
                            .waited_ns = -5,
                            .moved_ns = 60,
                            .cpu_ns = INT64_MIN,
                            .made_ns = -1,
                            .operations = -1,
                            .core = -7,
                            .loader = static_cast<Loader>(77)};
  const StepRecord right = decode_step_records(encode({nonsense})).at(0);
  CHECK(right.number == 0);
  CHECK(right.waited_ns == 0);
  CHECK(right.moved_ns == 60);
  CHECK(right.input_ns == 40);
  CHECK(right.cpu_ns == 0);
  CHECK(right.operations == 0);
  CHECK(right.made_ns == 0);
  CHECK(right.core == -1);
  CHECK(right.loader == Loader::none);
}

TEST_CASE("files of our packages are a library's, in a build folder too; programs near them are the user's") {
  for (const char* file :
       {"/v/lib/python3.11/site-packages/torch/nn/f.py", "/w/build/src/python/hvd/torch/_c10d/point.py",
        "/w/build/src/python/hvd/__init__.py", "/w/src/python/hvd/_runtime/collectives.py",
        "/home/me/horovod/horovod/torch/mpi_ops.py", "/t/hvd/numpy.py"})
    CHECK_MESSAGE(is_library(file), file);
  for (const char* file : {"/home/me/horovod/examples/pytorch/train.py", "/home/me/hvd/train.py", "/home/me/train.py",
                           "train.py", "/home/hvd/project/models/torch/net.py"})
    CHECK_MESSAGE(!is_library(file), file);
}

TEST_CASE("mismatched call: the user's line, and the outermost public function that it has called") {
  const auto found = [](const std::vector<std::string>& stack) {
    return mismatched_call_from_stack(Json{{"error", "ranks disagree"}, {"stack", stack}}.dump());
  };
  const std::string torch = "File \"/x/site-packages/torch/distributed/distributed_c10d.py\", line 5, in ";
  const std::string ours = "File \"/x/site-packages/hvd/_runtime/collectives.py\", line 7, in ";
  const std::string group = "File \"/x/hvd/torch/_c10d/group_operations.py\", line 3, in allreduce";
  const std::string user = "File \"/home/u/train.py\", line 12, in step";
  const auto call = found({group, torch + "all_gather", torch + "all_gather_object", torch + "wrapper", user,
                           "File \"/home/u/train.py\", line 90, in <module>"});
  REQUIRE(call);
  CHECK(call->error == "ranks disagree");
  CHECK(call->function == "torch.distributed.all_gather_object");
  CHECK(call->frame.file == "/home/u/train.py");
  CHECK(call->frame.line == 12);
  CHECK(call->frame.function == "step");
  CHECK(found({ours + "_submit", ours + "grouped_allreduce", user})->function == "hvd.grouped_allreduce");
  CHECK(found({ours + "synchronize", "File \"<hvdrun>\", line 1, in allreduce", user})->function == "hvd.allreduce");
  CHECK(found({"File \"/x/hvd/torch/_optimizer/reducer.py\", line 2, in synchronize", user})->function.empty());
  CHECK(found({group, "File \"/x/site-packages/torch/_tensor.py\", line 9, in backward", user})->function.empty());
  CHECK_FALSE(found({group, "File \"/usr/lib/python3.11/threading.py\", line 9, in run"}));  // a thread of a library
  CHECK_FALSE(found({}));
  CHECK_THROWS_AS(mismatched_call_from_stack(R"({"error": "", "stack": []})"), Error);
  CHECK_THROWS_AS(mismatched_call_from_stack(R"({"error": "x"})"), Error);
  DeathRecord d;
  d.mismatched_call = call;
  const DeathRecord r = death_from_json(to_json(d));
  REQUIRE(r.mismatched_call);
  CHECK(r.mismatched_call->error == call->error);
  CHECK(r.mismatched_call->function == call->function);
  CHECK(r.mismatched_call->frame.file == call->frame.file);
  CHECK(r.mismatched_call->frame.line == call->frame.line);
  CHECK_FALSE(death_from_json(to_json(DeathRecord{})).mismatched_call);
}
