/// The small JSON bodies of messages.  All of these bodies are in one file, because each file that includes the JSON
/// library takes seconds to compile.
#include "base/error.h"
#include "base/format.h"
#include "wire/json.h"
#include "wire/messages/cleanup_result.h"
#include "wire/messages/hello.h"
#include "wire/messages/join_offer.h"
#include "wire/messages/message.h"
#include "wire/messages/payload_ready.h"
#include "wire/messages/stack_picture.h"
#include "wire/messages/start_report.h"
#include "wire/messages/status_report.h"
#include "wire/messages/stop_request.h"

namespace hvd::wire {

/// The sender's protocol.  Throws Error{mismatch} if it is not ours.
static int protocol_of(const Fields& f, const std::string& version, const char* what) {
  const auto protocol = static_cast<int>(f.integer("protocol", 0, INT32_MAX));
  if (protocol != protocol_version)
    throw Error(Code::mismatch, what,
                formatted("the other host's version {} uses protocol {}; this hvdrun uses {}", version, protocol,
                          protocol_version),
                "install the same version on every host");
  return protocol;
}

std::string to_json(const Hello& h) {
  return dump(Json{{"protocol", h.protocol},
                   {"rank", h.rank},
                   {"pid", h.pid},
                   {"host", from_bytes(h.host)},
                   {"local", h.local},
                   {"daemon", h.daemon},
                   {"ports", h.ports},
                   {"version", h.version},
                   {"mono_ns", h.mono_ns}});
}

Hello hello_from_json(const std::string& text) {
  const Json json = parse_object(text, "hello");
  const Fields f(json, "hello");
  Hello h;
  h.version = f.bytes("version");
  h.protocol = protocol_of(f, h.version, "hello");
  h.rank = static_cast<int>(f.integer("rank", 0, INT32_MAX));
  h.pid = f.integer("pid", 0, INT64_MAX);
  h.host = f.bytes("host");
  h.local = f.boolean("local");
  h.daemon = f.boolean("daemon");
  if (f.has("ports")) h.ports = f.integers("ports", 1, 65535);
  h.mono_ns = f.integer("mono_ns", 0, INT64_MAX);
  return h;
}

std::string to_json(const JoinOffer& o) {
  return dump(Json{{"protocol", o.protocol},
                   {"version", o.version},
                   {"host", from_bytes(o.host)},
                   {"slots", o.slots},
                   {"address", o.address}});
}

JoinOffer join_offer_from_json(const std::string& text) {
  const Json json = parse_object(text, "join");
  const Fields f(json, "join");
  JoinOffer o;
  o.version = f.bytes("version");
  o.protocol = protocol_of(f, o.version, "join");
  o.host = f.bytes("host");
  o.slots = static_cast<int>(f.integer("slots", 1, 1 << 20));
  o.address = f.bytes("address");
  return o;
}

std::string to_json(const StopRequest& s) {
  return dump(Json{{"reason", s.reason}, {"grace_seconds", s.grace_seconds}, {"signal", s.signal}});
}

StopRequest stop_request_from_json(const std::string& text) {
  const Json json = parse_object(text, "stop");
  const Fields f(json, "stop");
  StopRequest s{f.bytes("reason"), f.number("grace_seconds", 0, 86400)};
  const std::int64_t signal = f.has("signal") ? f.integer("signal", 0, INT32_MAX) : SIGTERM;
  if (signal == SIGINT || signal == SIGHUP) s.signal = static_cast<int>(signal);
  return s;
}

std::string to_json(const StartReport& s) {
  return dump(Json{{"pid", s.pid},
                   {"cpus", s.cpus},
                   {"threads", s.threads},
                   {"gpu", from_bytes(s.gpu)},
                   {"python", s.python},
                   {"memory_node", s.memory_node},
                   {"warning", s.warning}});
}

StartReport start_report_from_json(const std::string& text) {
  const Json json = parse_object(text, "started");
  const Fields f(json, "started");
  StartReport s;
  s.pid = f.integer("pid", 0, INT64_MAX);
  s.threads = static_cast<int>(f.integer("threads", 0, 1 << 20));
  s.gpu = f.bytes("gpu");
  s.python = f.bytes("python");
  s.warning = f.bytes("warning");
  s.cpus = f.integers("cpus", 0, 1 << 20);
  s.memory_node = static_cast<int>(f.integer("memory_node", -1, 1 << 20));
  return s;
}

std::string to_json(const StartFailure& u) { return dump(Json{{"code", u.code}, {"text", u.text}, {"hint", u.hint}}); }

StartFailure start_failure_from_json(const std::string& text) {
  const Json json = parse_object(text, "unstarted");
  const Fields f(json, "unstarted");
  return {static_cast<int>(f.integer("code", 1, 255)), f.bytes("text"), f.bytes("hint")};
}

std::string to_json(const StackPicture& p) {
  Json json{{"state", p.state},         {"python", from_bytes(p.python)}, {"native", from_bytes(p.native)},
            {"addresses", p.addresses}, {"unanswered", p.unanswered},     {"computing", p.computing}};
  if (p.worker)
    json["worker"] = {{"pid", p.worker->pid},
                      {"state", p.worker->state},
                      {"python", from_bytes(p.worker->python)},
                      {"call", from_bytes(p.worker->call)}};
  return dump(json);
}

StackPicture stack_picture_from_json(const std::string& text) {
  const Json json = parse_object(text, "stack");
  const Fields f(json, "stack");
  StackPicture p{f.bytes("state"), f.bytes("python"), f.bytes("native"), {}, {}};
  if (f.has("addresses")) p.addresses = f.list("addresses");
  if (f.has("unanswered")) p.unanswered = f.list("unanswered");
  if (f.has("computing")) p.computing = static_cast<int>(f.integer("computing", 0, INT32_MAX));
  if (f.has("worker")) {
    const Fields w = f.object("worker");
    p.worker = {static_cast<int>(w.integer("pid", 0, INT32_MAX)), w.bytes("state"), w.bytes("python"), w.bytes("call")};
  }
  return p;
}

std::string to_json(const StatusReport& s) {
  return dump(Json{{"place", static_cast<int>(s.place)},
                   {"place_seconds", s.place_seconds},
                   {"waits_for", from_bytes(s.waits_for)},
                   {"waited_seconds", s.waited_seconds},
                   {"gpu", static_cast<int>(s.gpu)},
                   {"gpu_late", from_bytes(s.gpu_late)},
                   {"waits_what", from_bytes(s.waits_what)},
                   {"idle_seconds", s.idle_seconds}});
}

StatusReport status_report_from_json(const std::string& text) {
  const Json json = parse_object(text, "standing");
  const Fields f(json, "standing");
  return {static_cast<RankPhase>(f.integer("place", 0, static_cast<int>(RankPhase::leaving))),
          f.number("place_seconds", 0, 1e9),
          f.bytes("waits_for"),
          f.number("waited_seconds", 0, 1e9),
          static_cast<GpuProgress>(f.integer("gpu", 0, static_cast<int>(GpuProgress::exchanging))),
          f.bytes("gpu_late"),
          f.bytes("waits_what"),
          f.number("idle_seconds", 0, 1e9)};
}

std::string to_json(const CleanupResult& s) {
  const auto list = [](const std::vector<std::string>& texts) {
    Json json = Json::array();
    for (const std::string& text : texts) json.push_back(from_bytes(text));
    return json;
  };
  return dump(Json{{"ended", list(s.ended)}, {"files", list(s.files)}, {"left", list(s.left)}});
}

CleanupResult cleanup_result_from_json(const std::string& text) {
  const Json json = parse_object(text, "swept");
  const Fields f(json, "swept");
  return {f.list("ended"), f.list("files"), f.list("left")};
}

std::string to_json(const PayloadReady& ready) { return dump(Json{{"path", from_bytes(ready.path)}}); }

PayloadReady payload_ready_from_json(const std::string& text) {
  const Json json = parse_object(text, "payload_ready");
  return {Fields(json, "payload_ready").bytes("path")};
}

}  // namespace hvd::wire
