#include "launcher/options/help.h"

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "launcher/options/spellings.h"
#include "options/table.h"

namespace hvd::launcher {

namespace {

using options::Component;
using options::Effect;
using options::Section;
using options::ValueType;

constexpr std::size_t column = 34;

constexpr std::string_view usage =
    "Usage: hvdrun [options] job.pkl | train.py | -m module | [--] command [args]\n"
    "Runs a function, a Python script or module, or any program on several ranks.\n"
    "\n"
    "  hvdrun -np 2 train.py --epochs 3\n"
    "  hvdrun -np 4 -H node1:2,node2:2 job.pkl\n";

bool in_short_help(Section s) { return s <= Section::life || s == Section::other; }

std::string_view title_of(Section section) {
  switch (section) {
    case Section::where:
      return "Where to run";
    case Section::what:
      return "What to run";
    case Section::output:
      return "Output";
    case Section::life:
      return "Starting and ending";
    case Section::network:
      return "Network and MPI";
    case Section::tuning:
      return "Tuning";
    case Section::autotune:
      return "Autotune";
    case Section::timeline:
      return "Timeline";
    case Section::stall:
      return "Stall check";
    case Section::logging:
      return "Logging";
    case Section::elastic:
      return "Elastic jobs";
    case Section::horovod:
      return "Accepted for horovodrun's sake";
    case Section::other:
      return "Other";
    case Section::runtime:
      return "The runtime";
    case Section::gpu:
      return "Operations on GPUs";
    case Section::frameworks:
      return "The Python packages";
    case Section::files:
      return "Where programs and libraries are";
    case Section::testing:
      return "For tests";
    case Section::job:
      return "What a rank finds";
    case Section::internal:
      return "Between the processes of a job";
  }
  return {};
}

std::string left_side(const Option& o) {
  std::vector<std::string> shown;
  for (std::string s : split(o.spellings, ',')) {
    if (s == "-n" || s == "-hostfile" || s == "--network-interface" || s == "--nics" || s == "--slots") continue;
    if (s.ends_with("-num-proc") && shown.size() && s != "--num-proc") continue;
    if (o.type == ValueType::negatable) s.insert(2, "[no-]");
    shown.push_back(s);
  }
  std::string text = "  " + join(shown, ", ");
  if (!o.metavar.empty()) text += " " + std::string(o.metavar);
  return text;
}

/// Breaks @p text into lines of at most @p columns (0: one line).  Later lines are indented to `column`.
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
  if (!o.fallback.empty() && o.type != ValueType::negatable) help += " (" + std::string(o.fallback) + ")";
  if (o.effect == Effect::refused) help += " [not yet]";
  return text + broken(help, columns) + "\n";
}

const char* name_of(ValueType type) {
  switch (type) {
    case ValueType::flag:
      return "flag";
    case ValueType::negatable:
      return "negatable";
    case ValueType::integer:
      return "integer";
    case ValueType::number:
      return "number";
    case ValueType::text:
      return "text";
    case ValueType::pair:
      return "pair";
  }
  return "";
}

const char* name_of(Effect effect) {
  return effect == Effect::full ? "full" : effect == Effect::none ? "none" : "refused";
}

std::vector<std::string> names_of(Component readers) {
  std::vector<std::string> names;
  const std::pair<Component, const char*> all[] = {{Component::hvdrun, "hvdrun"}, {Component::guard, "guard"},
                                                   {Component::libhvd, "libhvd"}, {Component::python, "python"},
                                                   {Component::tools, "tools"},   {Component::script, "script"}};
  for (const auto& [one, name] : all)
    if (includes(readers, one)) names.emplace_back(name);
  return names;
}

/// For JSON: a limit, or null.
nlohmann::ordered_json limit(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace

std::string help_text(bool all, std::size_t columns) {
  std::string text(usage);
  for (int s = 0; s <= static_cast<int>(Section::other); ++s) {
    const Section section = static_cast<Section>(s);
    if (!all && !in_short_help(section)) continue;
    text += "\n" + std::string(title_of(section)) + "\n";
    for (const Option& o : command_line_options())
      if (o.section == section && !o.hidden && (all || o.effect != Effect::refused)) text += line(o, columns);
  }
  if (!all) text += "\nMore (network, tuning, stall check, Horovod's other flags): hvdrun --help-all; hvdrun(1)\n";
  return text;
}

std::string dump_options() {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Option& o : options::table)
    rows.push_back({{"id", o.id},
                    {"spellings", split(o.spellings, ',')},
                    {"type", name_of(o.type)},
                    {"section", title_of(o.section)},
                    {"metavar", o.metavar},
                    {"variable", o.variable},
                    {"readers", names_of(o.readers)},
                    {"for_ranks", o.for_ranks},
                    {"inverted", o.conversion == options::Conversion::inverted},
                    {"default", o.fallback},
                    {"yaml", o.yaml},
                    {"keywords", split(o.keyword, ',')},
                    {"help", o.help},
                    {"effect", name_of(o.effect)},
                    {"remark", o.remark},
                    {"least", limit(o.least)},
                    {"most", limit(o.most)},
                    {"choices", split(o.choices, ',')},
                    {"hidden", o.hidden || o.section == Section::internal}});
  return rows.dump(2) + "\n";
}

}  // namespace hvd::launcher
