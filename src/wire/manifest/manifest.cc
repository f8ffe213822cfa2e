#include "manifest.h"

#include "base/error.h"
#include "wire/json.h"
#include "wire/messages/message.h"

namespace hvd::wire {
namespace {

constexpr const char* kind_names[] = {"pickle", "script", "module", "command"};

Json list_to_json(const std::vector<std::string>& list) {
  Json out = Json::array();
  for (const std::string& s : list) out.push_back(from_bytes(s));
  return out;
}

Json payload_to_json(const Payload& p) {
  return {{"kind", kind_names[static_cast<int>(p.kind)]},
          {"name", from_bytes(p.name)},
          {"args", list_to_json(p.args)},
          {"sha256", p.sha256},
          {"bytes", p.bytes},
          {"deliver", p.deliver},
          {"path", from_bytes(p.path)}};
}

PayloadKind kind_from(const Fields& f) {
  const std::string name = f.bytes("kind");
  for (int i = 0; i < 4; ++i)
    if (name == kind_names[i]) return static_cast<PayloadKind>(i);
  f.bad("kind", "is unknown: " + name.substr(0, 40));
}

Payload payload_from(const Fields& f) {
  Payload p;
  p.kind = kind_from(f);
  p.name = f.bytes("name");
  p.args = f.list("args");
  p.sha256 = f.bytes("sha256");
  p.bytes = f.size("bytes");
  p.deliver = f.boolean("deliver");
  p.path = f.bytes("path");
  return p;
}

Json placement_to_json(const Placement& p) {
  Json out{
      {"cpus", p.cpus},         {"threads", p.threads},      {"bind", p.bind}, {"planned", p.planned}, {"gpu", p.gpu},
      {"gpu_mode", p.gpu_mode}, {"share_gpus", p.share_gpus}};
  if (p.visible_gpus) out["visible_gpus"] = from_bytes(*p.visible_gpus);
  if (p.memory_node >= 0) out["memory_node"] = p.memory_node;
  return out;
}

Placement placement_from(const Fields& f) {
  Placement p;
  p.cpus = f.integers("cpus", 0, 1 << 20);
  p.threads = static_cast<int>(f.integer("threads", 0, 1 << 20));
  p.bind = f.boolean("bind");
  p.planned = f.boolean("planned");
  p.gpu = f.bytes("gpu");
  p.gpu_mode = f.bytes("gpu_mode");
  p.share_gpus = f.boolean("share_gpus");
  if (f.has("visible_gpus")) p.visible_gpus = f.bytes("visible_gpus");
  if (f.has("memory_node")) p.memory_node = static_cast<int>(f.integer("memory_node", 0, 1 << 20));
  return p;
}

/// "NAME=value" strings: a name may hold bytes that are no UTF-8, which a JSON key may not.
Json env_to_json(const std::map<std::string, std::string>& env) {
  Json out = Json::array();
  for (const auto& [name, value] : env) out.push_back(from_bytes(name + "=" + value));
  return out;
}

std::map<std::string, std::string> env_from(const Fields& f) {
  std::map<std::string, std::string> out;
  for (const std::string& entry : f.list("env")) {
    const std::size_t eq = entry.find('=');
    if (eq == 0 || eq == std::string::npos) f.bad("env", "holds an entry that is not NAME=value");
    out.emplace(entry.substr(0, eq), entry.substr(eq + 1));
  }
  return out;
}

int count(const Fields& f, const char* field, int lowest, int highest) {
  return static_cast<int>(f.integer(field, lowest, highest));
}

}  // namespace

bool is_python(std::string_view program) {
  const std::string_view name = program.substr(program.rfind('/') + 1);
  return name.starts_with("python") && name.find_first_not_of("0123456789.", 6) == std::string_view::npos;
}

namespace {

/// The program that `python` with these arguments runs: a file, its standard input, or neither (-c, -m, --version).
struct PythonProgram {
  std::string file;
  bool from_input = false;
};

PythonProgram python_program(const std::vector<std::string>& args) {
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    if (word == "-") return {{}, true};
    if (!word.starts_with('-')) return {word};
    if (word == "--check-hash-based-pycs") ++i;
    if (word == "--version" || word.starts_with("--help")) return {};
    if (word.starts_with("--")) continue;
    // One-letter options.  The value of c, m, W and X follows in the word.  If nothing follows, it is the next word.
    const std::size_t at = word.find_first_of("cmWXVh?", 1);
    if (at == std::string::npos) continue;
    if (word[at] != 'W' && word[at] != 'X') return {};
    if (at + 1 == word.size()) ++i;
  }
  return {{}, true};
}

}  // namespace

std::string python_file(const Payload& payload) {
  if (payload.kind == PayloadKind::script) return payload.name;
  return payload.kind == PayloadKind::command && is_python(payload.name) ? python_program(payload.args).file : "";
}

bool is_read_from_input(const Payload& payload) {
  const std::string python = python_file(payload), file = python.empty() ? payload.name : python;
  if (file == "/dev/stdin" || file.starts_with("/dev/fd/") || file.starts_with("/proc/self/fd/")) return true;
  return payload.kind == PayloadKind::command && is_python(payload.name) && python_program(payload.args).from_input;
}

std::string to_json(const RankManifest& m) {
  return dump(Json{{"protocol", protocol_version},
                   {"job", m.job},
                   {"rank", m.rank},
                   {"size", m.size},
                   {"local_rank", m.local_rank},
                   {"local_size", m.local_size},
                   {"cross_rank", m.cross_rank},
                   {"cross_size", m.cross_size},
                   {"host", from_bytes(m.host)},
                   {"cwd", from_bytes(m.cwd)},
                   {"python", from_bytes(m.python)},
                   {"env", env_to_json(m.env)},
                   {"payload", payload_to_json(m.payload)},
                   {"placement", placement_to_json(m.placement)},
                   {"grace_seconds", m.grace_seconds},
                   {"collect_results", m.collect_results},
                   {"timeline", m.timeline},
                   {"input", m.input},
                   {"trusted_only", m.trusted_only},
                   {"software_owners", m.software_owners}});
}

RankManifest manifest_from_json(const std::string& text) {
  const Json json = parse_object(text, "manifest");
  const Fields f(json, "manifest");
  if (f.integer("protocol", 0, INT32_MAX) != protocol_version) f.bad("protocol", "is another version's");
  RankManifest m;
  m.job = f.bytes("job");
  m.size = count(f, "size", 1, most_ranks);
  m.rank = count(f, "rank", 0, m.size - 1);
  m.local_size = count(f, "local_size", 1, m.size);
  m.local_rank = count(f, "local_rank", 0, m.local_size - 1);
  m.cross_size = count(f, "cross_size", 1, m.size);
  m.cross_rank = count(f, "cross_rank", 0, m.cross_size - 1);
  m.host = f.bytes("host");
  m.cwd = f.bytes("cwd");
  m.python = f.bytes("python");
  m.env = env_from(f);
  m.payload = payload_from(f.object("payload"));
  m.placement = placement_from(f.object("placement"));
  m.grace_seconds = f.number("grace_seconds", 0, 86400);
  m.collect_results = f.boolean("collect_results");
  m.timeline = f.boolean("timeline");
  m.input = f.has("input") && f.boolean("input");
  m.trusted_only = f.has("trusted_only") && f.boolean("trusted_only");
  if (f.has("software_owners")) m.software_owners = f.integers("software_owners", INT32_MIN, INT32_MAX);
  return m;
}

}  // namespace hvd::wire
