/// The table as people read it (--help) and as programs read it (--dump-options).
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "launcher/options/table.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t column = 34;

constexpr std::string_view usage =
    "Usage: hvdrun [options] job.pkl | train.py | -m module | [--] command [args]\n"
    "Runs a function, a Python script or module, or any program on several ranks.\n"
    "\n"
    "  hvdrun -np 2 train.py --epochs 3\n"
    "  hvdrun -np 4 -H node1:2,node2:2 job.pkl\n";

bool is_short_group(Group g) { return g <= Group::life || g == Group::other; }

std::string left_side(const Option& o) {
  std::vector<std::string> shown;
  for (std::string s : split(o.spellings, ',')) {
    if (s == "-n" || s == "-hostfile" || s == "--network-interface" || s == "--nics" || s == "--slots") continue;
    if (s.ends_with("-num-proc") && shown.size() && s != "--num-proc") continue;
    if (o.kind == Kind::negatable) s.insert(2, "[no-]");
    shown.push_back(s);
  }
  std::string text = "  " + join(shown, ", ");
  if (!o.metavar.empty()) text += " " + std::string(o.metavar);
  return text;
}

/// @p text in lines that end before @p columns (0: one line), those after the first indented to `column`.
std::string broken(const std::string& text, std::size_t columns) {
  constexpr std::size_t narrowest = 24;
  if (columns == 0) return text;
  const std::size_t width = columns > column + narrowest ? columns - column - 1 : narrowest;
  std::string out;
  std::size_t used = 0;
  for (const std::string& word : words(text)) {
    const bool fits = used == 0 || used + 1 + word.size() <= width;
    if (used) out += fits ? " " : "\n" + std::string(column, ' ');
    used = fits && used ? used + 1 + word.size() : word.size();
    out += word;
  }
  return out;
}

std::string line(const Option& o, std::size_t columns) {
  std::string text = left_side(o), help(o.help);
  text += text.size() + 2 > column ? "\n" + std::string(column, ' ') : std::string(column - text.size(), ' ');
  if (!o.fallback.empty() && o.kind != Kind::negatable) help += " (" + std::string(o.fallback) + ")";
  if (o.support == Support::later) help += " [not yet]";
  return text + broken(help, columns) + "\n";
}

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::flag:
      return "flag";
    case Kind::negatable:
      return "negatable";
    case Kind::integer:
      return "integer";
    case Kind::number:
      return "number";
    case Kind::text:
      return "text";
    case Kind::pair:
      return "pair";
  }
  return "";
}

const char* support_name(Support support) {
  return support == Support::yes ? "yes" : support == Support::note ? "note" : "later";
}

}  // namespace

std::string help_text(bool all, std::size_t columns) {
  std::string text(usage);
  for (int g = 0; g <= static_cast<int>(Group::other); ++g) {
    const Group group = static_cast<Group>(g);
    if (!all && !is_short_group(group)) continue;
    text += "\n" + std::string(group_title(group)) + "\n";
    for (const Option& o : option_table())
      if (o.group == group && !o.hidden && (all || o.support != Support::later)) text += line(o, columns);
  }
  if (!all) text += "\nMore (network, tuning, stall check, Horovod's other flags): hvdrun --help-all; hvdrun(1)\n";
  return text;
}

std::string dump_options() {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Option& o : option_table())
    rows.push_back({{"id", o.id},
                    {"spellings", split(o.spellings, ',')},
                    {"kind", kind_name(o.kind)},
                    {"group", group_title(o.group)},
                    {"metavar", o.metavar},
                    {"variable", o.variable},
                    {"for_ranks", o.for_ranks},
                    {"default", o.fallback},
                    {"yaml", o.yaml},
                    {"help", o.help},
                    {"support", support_name(o.support)},
                    {"remark", o.remark},
                    {"hidden", o.hidden}});
  return rows.dump(2) + "\n";
}

}  // namespace hvd::launcher
