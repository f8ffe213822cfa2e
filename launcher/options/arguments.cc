/// argv → Settings and payload.  The table of options tells which words are hvdrun's.  The payload begins at the first
/// other word.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "launcher/options/settings.h"

namespace hvd::launcher {

namespace {

using options::ValueType;

/// An option as typed.  A flag's value is "1" or "0"; a pair's values are joined by a blank.
struct TypedOption {
  const Option* row;
  std::string value;
};

struct ArgumentParts {
  std::vector<TypedOption> ours;
  PayloadPrefix prefix = PayloadPrefix::none;
  std::vector<std::string> payload;
};

int values_of(const Option& row) {
  return row.type == ValueType::flag || row.type == ValueType::negatable ? 0 : row.type == ValueType::pair ? 2 : 1;
}

bool begins_number(char c) { return (c >= '0' && c <= '9') || c == '-' || c == '+'; }

/// Splits "-p2222" or "-np4" into the option and the rest.  Null: another word.  MPICH's "-ppn" is no port.
const Option* find_attached(const std::string& word, std::string* rest) {
  if (word.size() < 3 || word[1] == '-') return nullptr;
  for (const std::size_t length : {std::size_t{3}, std::size_t{2}}) {
    if (word.size() <= length) continue;
    const Option* row = find_spelling(word.substr(0, length));
    if (!row || values_of(*row) != 1) continue;
    if (row->type == ValueType::integer && !begins_number(word[length])) continue;
    *rest = word.substr(length);
    return row;
  }
  return nullptr;
}

[[noreturn]] void unknown(const std::string& word) {
  const std::string advice = advice_on(word);
  throw Error(Code::usage, word, "no such option",
              advice.empty() ? "hvdrun --help lists the options; options of your program go after its name" : advice);
}

/// The option's name in messages.
std::string name_of(const Option& row) {
  return split(row.spellings, ',').back() == "--num-proc" ? "-np" : "--" + std::string(row.id);
}

ArgumentParts divide(const std::vector<std::string>& args) {
  ArgumentParts parts;
  std::size_t i = 0;
  for (; i < args.size(); ++i) {
    const std::string& word = args[i];
    if (word == "--" || word == "-m") {
      parts.prefix = word == "--" ? PayloadPrefix::dashes : PayloadPrefix::module;
      ++i;
      break;
    }
    if (word.size() < 2 || word[0] != '-') {
      parts.prefix = PayloadPrefix::plain;
      break;
    }
    const std::size_t equals = word.find('=');
    bool negated = false;
    std::string value;
    const Option* row = find_spelling(word.substr(0, equals), &negated);
    bool has_value = row && equals != std::string::npos;
    if (has_value) value = word.substr(equals + 1);
    if (!row) row = find_attached(word, &value), has_value = row;
    if (!row) unknown(word.substr(0, equals));
    const int wanted = values_of(*row);
    if (has_value && wanted == 0) throw Error(Code::usage, word.substr(0, equals), "takes no value");
    if (has_value && wanted == 2)
      throw Error(Code::usage, word.substr(0, equals), "needs two values",
                  word.substr(0, equals) + " " + std::string(row->metavar));
    if (!has_value && i + static_cast<std::size_t>(wanted) >= args.size() && wanted)
      throw Error(Code::usage, word, "needs " + std::string(wanted == 1 ? "a value" : "two values"),
                  word + " " + std::string(row->metavar));
    if (wanted == 0) value = negated ? "0" : "1";
    if (!has_value)
      for (int k = 0; k < wanted; ++k) value += (k ? " " : "") + args[++i];
    parts.ours.push_back({row, std::move(value)});
  }
  parts.payload.assign(args.begin() + static_cast<std::ptrdiff_t>(std::min(i, args.size())), args.end());
  return parts;
}

bool is_num_proc(const std::string& word) {
  std::string rest;
  const Option* row = find_spelling(word.substr(0, word.find('=')));
  if (!row) row = find_attached(word, &rest);
  return row && row->id == "num-proc";
}

/// The begin of the next program: a ":" followed by -np.  Any other ":" is an argument.
std::size_t next_program(const std::vector<std::string>& payload) {
  for (std::size_t i = 0; i + 1 < payload.size(); ++i)
    if (payload[i] == ":" && is_num_proc(payload[i + 1])) return i;
  return payload.size();
}

/// One of several programs has this number of ranks.
int ranks_of_program(const Settings& own) {
  const int np = *own.integer("num-proc");
  if (np < 1)
    throw Error(Code::usage, "-np", "each program needs at least 1 rank, not " + std::to_string(np),
                "hvdrun -np 2 learner.py : -np 6 actor.py");
  return np;
}

/// Takes one program from the front of @p words: "-np 6 actor.py --quick : …".
ProgramWords take_program(std::vector<std::string>* words) {
  const ArgumentParts parts = divide(*words);
  Settings own;
  for (const TypedOption& typed : parts.ours) {
    if (typed.row->id != "num-proc")
      throw Error(Code::usage, name_of(*typed.row), "cannot be an option of one of several programs",
                  "a further program has only -np; the job's options stand before the first one");
    own.set(*typed.row, {typed.value, SettingSource::flag, "-np"});
  }
  const int np = ranks_of_program(own);
  const std::size_t end = next_program(parts.payload);
  const auto at = parts.payload.begin() + static_cast<std::ptrdiff_t>(end);
  ProgramWords program{np, parts.prefix, {parts.payload.begin(), at}};
  words->assign(at + (end < parts.payload.size() ? 1 : 0), parts.payload.end());
  return program;
}

/// Takes the programs behind ":" out of the payload.
void divide_programs(CommandLine& line) {
  const std::size_t end = next_program(line.payload);
  if (end == line.payload.size()) return;
  const Setting* np = line.settings.find("num-proc");
  if (!np)
    throw Error(Code::usage, ":", "stands between two programs, but the first has no -np",
                "hvdrun -np 2 learner.py : -np 6 actor.py");
  line.first_np = ranks_of_program(line.settings);
  const auto at = line.payload.begin() + static_cast<std::ptrdiff_t>(end);
  std::vector<std::string> words(at + 1, line.payload.end());
  line.payload.erase(at, line.payload.end());
  long long sum = line.first_np;
  while (!words.empty()) sum += line.further.emplace_back(take_program(&words)).np;
  line.settings.set(option("num-proc"), {std::to_string(sum), SettingSource::flag, np->where});
}

}  // namespace

CommandLine parse_arguments(const std::vector<std::string>& args) {
  ArgumentParts parts = divide(args);
  CommandLine line;
  for (TypedOption& typed : parts.ours)
    line.settings.set(*typed.row, {std::move(typed.value), SettingSource::flag, name_of(*typed.row)});
  std::string first;
  for (const char* id : {"hosts", "hostfile", "manifest", "host-discovery-script"}) {
    const Setting* given = line.settings.find(id);
    if (!given) continue;
    if (!first.empty())
      throw Error(Code::usage, "--" + std::string(id), "cannot be given together with " + first, "keep one of them");
    first = std::string(id) == "hosts" ? "-H" : "--" + std::string(id);
  }
  line.prefix = parts.prefix;
  line.payload = std::move(parts.payload);
  divide_programs(line);
  return line;
}

}  // namespace hvd::launcher
