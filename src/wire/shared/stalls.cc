#include "stalls.h"

#include "base/error.h"
#include "status_page.h"
#include "wire/json.h"

namespace hvd::wire {

std::vector<Stall> stalls_from_json(const std::string& text, int ranks) {
  constexpr std::size_t most_name_bytes = sizeof(StatusPage::waits_for) - 1;  // so that the two can be compared
  const Json json = parse_object(text, "stall");
  const Json& waits = Fields(json, "stall").at("waits");
  if (!waits.is_array() || waits.size() > most_stalls) throw Error(Code::usage, "stall.waits", "is no short list");
  std::vector<Stall> found;
  for (const Json& wait : waits) {
    if (!wait.is_object()) throw Error(Code::usage, "stall.waits", "holds what is no object");
    const Fields f(wait, "stall");
    Stall s;
    s.tensor = f.bytes("tensor").substr(0, most_name_bytes);
    for (char& c : s.tensor)
      if (static_cast<unsigned char>(c) < 32) c = '?';  // it goes to a terminal
    s.tensors = static_cast<int>(f.integer("tensors", 1, INT32_MAX));
    s.waited_seconds = f.number("waited_seconds", 0, 1e9);
    s.missing = f.integers("missing", 0, ranks - 1);
    std::sort(s.missing.begin(), s.missing.end());
    s.more = static_cast<int>(f.integer("more", 0, ranks));
    s.size = static_cast<int>(f.integer("size", 1, ranks));
    if (!s.missing.empty()) found.push_back(std::move(s));
  }
  return found;
}

}  // namespace hvd::wire
