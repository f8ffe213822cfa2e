#include "launcher/options/spellings.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "options/table.h"

namespace hvd::launcher {

namespace {

/// The number of edits (insert, delete, replace) between two words.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const Option> command_line_options() { return {options::table.data(), options::count_options()}; }

const Option& option(std::string_view id) {
  for (const Option& o : command_line_options())
    if (o.id == id) return o;
  throw Error(Code::internal, std::string(id), "no such option in the table");
}

const Option* find_spelling(std::string_view spelling, bool* negated) {
  if (negated) *negated = false;
  for (const Option& o : command_line_options()) {
    for (const std::string& s : split(o.opposites, ',')) {
      if (s.empty()) continue;
      const bool doubled = spelling.starts_with("--no-") && s.substr(2) == spelling.substr(5);
      if (s != spelling && !doubled) continue;
      if (negated) *negated = !doubled;
      return &o;
    }
    for (const std::string& s : split(o.spellings, ',')) {
      if (s == spelling) return &o;
      if (o.type == options::ValueType::negatable && spelling.starts_with("--no-") &&
          s.substr(2) == spelling.substr(5)) {
        if (negated) *negated = true;
        return &o;
      }
    }
  }
  return nullptr;
}

namespace {

/// An option of torchrun, mpirun, srun, accelerate or deepspeed: hvdrun's option for it, or why there is none.  "-"
/// stands for "_" too.
struct ForeignOption {
  std::string_view typed, ours, needless = {};
};
constexpr auto foreign_options = std::to_array<ForeignOption>({
    {"--np", "-np"},
    {"-c", "-np, or python -c before a program's text"},
    {"--ntasks", "-np"},
    {"--nproc", "-np"},
    {"--nproc-per-node", "-np, and -H host:slots for several hosts"},
    {"--num-processes", "-np"},
    {"--num-gpus", "-np"},
    {"-ppn", "-H host:2, which places 2 ranks on that host"},
    {"--ppn", "-H host:2, which places 2 ranks on that host"},
    {"-perhost", "-H host:2, which places 2 ranks on that host"},
    {"-npernode", "-H host:2, which places 2 ranks on that host"},
    {"--npernode", "-H host:2, which places 2 ranks on that host"},
    {"-N", "-H host:2, which places 2 ranks on that host"},
    {"--ntasks-per-node", "-H host:2, which places 2 ranks on that host"},
    {"--nnodes", "-H host:slots,host:slots"},
    {"--num-machines", "-H host:slots,host:slots"},
    {"--num-nodes", "-H host:slots,host:slots"},
    {"--max-restarts", "--min-np, for a script with an elastic state"},
    {"--log-dir", "--output-filename DIR"},
    {"--redirects", "--output-filename DIR"},
    {"--tee", "--output-filename DIR"},
    {"--module", "-m module"},
    {"--no-python", "-- program"},
    {"--host", "-H"},
    {"--machinefile", "--hostfile"},
    {"--oversubscribe", "", "ranks are not limited to cores"},
    {"--bind-to", "--bind or --no-bind"},
    {"--map-by", "-H, in whose order ranks are placed"},
    {"-x", "", "the environment travels to every rank"},
    {"--allow-run-as-root", "", "root may start jobs"},
    {"--mca", "--mpi-args=\"--mca name value\""},
    {"--node-rank", "", "one hvdrun starts the ranks of all hosts"},
    {"--machine-rank", "", "one hvdrun starts the ranks of all hosts"},
    {"--rdzv-backend", "", "ranks find one another"},
    {"--rdzv-conf", "", "ranks find one another"},
    {"--rdzv-endpoint", "", "ranks find one another"},
    {"--rdzv-id", "", "ranks find one another"},
    {"--master-addr", "", "ranks find one another"},
    {"--master-port", "", "ranks find one another"},
    {"--main-process-ip", "", "ranks find one another"},
    {"--main-process-port", "", "ranks find one another"},
    {"--standalone", "", "one host is the default"},
});

/// The nearest of @p names; empty: none is near enough.
std::string nearest(std::string_view typed, const std::vector<std::string>& names) {
  std::string best;
  std::size_t best_distance = typed.size() / 3 + 1;  // with more edits it is another word
  for (const std::string& name : names)
    if (const std::size_t d = distance(typed, name); d < best_distance) best = name, best_distance = d;
  return best;
}

}  // namespace

std::string advice_on(std::string_view typed) {
  std::string dashed(typed);
  std::ranges::replace(dashed, '_', '-');
  for (const ForeignOption& f : foreign_options)
    if (f.typed == dashed)
      return f.ours.empty() ? "not needed here: " + std::string(f.needless)
                            : "did you mean " + std::string(f.ours) + "?";
  std::vector<std::string> names;
  for (const Option& o : command_line_options())
    for (const std::string& s : split(o.spellings, ','))
      if (!o.hidden && s.starts_with("--")) names.push_back(s);
  const std::string near = nearest(typed, names);
  return near.empty() ? near : "did you mean " + near + "?";
}

std::string nearest_key(std::string_view typed) {
  std::vector<std::string> names;
  for (const Option& o : command_line_options())
    if (!o.yaml.empty()) names.emplace_back(o.yaml);
  const std::string near = nearest(typed, names);
  if (!near.empty()) return near;
  const std::string_view word = typed.substr(typed.rfind('.') + 1);
  for (const Option& o : command_line_options())  // the command line's word, or run()'s
    if (!o.yaml.empty())
      for (const std::string& s : split(std::string(o.spellings) + "," + std::string(o.keyword), ','))
        if (!s.empty() && s.substr(std::min(s.find_first_not_of('-'), s.size())) == word) return std::string(o.yaml);
  for (const std::string& name : names)  // the right word in the wrong section, or without one
    if (name.substr(name.rfind('.') + 1) == typed.substr(typed.rfind('.') + 1)) return name;
  return {};
}

}  // namespace hvd::launcher
