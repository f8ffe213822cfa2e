#include "launcher/doctor/checkup.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "launcher/doctor/differences.h"
#include "launcher/doctor/gpus.h"
#include "launcher/remote/ask_hosts.h"

namespace hvd::launcher {

extern const char host_python_text[];  // made by the build of doctor/host_python.py

std::string value(const Answers& a, const char* key) {
  const auto it = a.values.find(key);
  return it == a.values.end() ? "" : it->second;
}

std::string usual(const std::vector<Answers>& all, const char* key) {
  std::map<std::string, int> votes;
  for (const Answers& a : all)
    if (!value(a, key).empty()) ++votes[value(a, key)];
  std::string best;
  for (const auto& [text, count] : votes)
    if (best.empty() || count > votes[best]) best = text;
  for (const Answers& a : all)  // without a majority: this host's value
    if (a.local && !value(a, key).empty() && votes[value(a, key)] == votes[best]) best = value(a, key);
  return best;
}

namespace {

constexpr double most_skew_seconds = 2;        // make, file times and logs of two hosts
constexpr long long least_shm_kib = 64 << 10;  // Docker's default, too little for torch's workers
constexpr long long least_files = 1024;

long long number_of(const Answers& a, const char* key) { return to_integer(value(a, key)).value_or(0); }

std::string skew_text(const Answers& a) {
  if (std::abs(a.clock_skew_seconds) <= a.clock_error_seconds) return "same";
  return formatted("{:+.1f} s", a.clock_skew_seconds);
}

std::string python_list(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += "'" + word + "',";
  return "[" + list + "]";
}

/// Text for the host's Python: doctor/host_python.py and its call.
std::string python_text(const Questions& q) {
  return formatted("{}{}report({},{},{})\n", nccl_question(), host_python_text, python_list(q.modules),
                   python_list(q.addresses), python_list(q.peers));
}

/// Modules whose package has another name, and that package.  pip finds nothing, or a stranger's package, by the
/// module's name.
constexpr std::pair<std::string_view, std::string_view> package_names[] = {{"Bio", "biopython"},
                                                                           {"Crypto", "pycryptodome"},
                                                                           {"PIL", "pillow"},
                                                                           {"attr", "attrs"},
                                                                           {"bs4", "beautifulsoup4"},
                                                                           {"cv2", "opencv-python"},
                                                                           {"dateutil", "python-dateutil"},
                                                                           {"dotenv", "python-dotenv"},
                                                                           {"faiss", "faiss-cpu"},
                                                                           {"git", "GitPython"},
                                                                           {"skimage", "scikit-image"},
                                                                           {"sklearn", "scikit-learn"},
                                                                           {"umap", "umap-learn"},
                                                                           {"yaml", "pyyaml"},
                                                                           {"zmq", "pyzmq"}};

/// The packages of @p modules, for pip.
std::string packages_of(const std::vector<std::string>& modules) {
  std::vector<std::string> packages;
  for (const std::string& module : modules) {
    const auto* known = std::ranges::find(package_names, std::string_view(module),
                                          &std::pair<std::string_view, std::string_view>::first);
    packages.emplace_back(known == std::end(package_names) ? std::string_view(module) : known->second);
  }
  return join(packages, " ");
}

void check_python(const Answers& a, const std::vector<Answers>& all, const Questions& q, std::vector<Problem>& out) {
  if (q.python.empty()) return;
  if (value(a, "python").empty()) {
    out.push_back(
        {a.host, q.python + " does not run there", "install it there under the same path, or use --python PATH"});
    return;
  }
  if (const std::string usual_python = usual(all, "python"); value(a, "python") != usual_python)
    out.push_back({a.host, formatted("has Python {}, others have {}", value(a, "python"), usual_python),
                   "a .pkl needs the same minor version everywhere: --python PATH"});
  if (!value(a, "hvd_error").empty())
    out.push_back({a.host, "import hvd fails: " + value(a, "hvd_error"),
                   "there: " + q.python + " -m pip install the wheel of hvdrun"});
  else if (const std::string usual_hvd = usual(all, "hvd"); value(a, "hvd") != usual_hvd)
    out.push_back({a.host, formatted("has hvd {}, others have {}", value(a, "hvd"), usual_hvd),
                   "install the same wheel everywhere"});
  if (!value(a, "horovod").empty())  // a file that only Horovod's own package has
    out.push_back({a.host, "has Horovod itself in " + value(a, "horovod") + ", which import horovod may load",
                   "there: " + q.python + " -m pip uninstall horovod, then install the wheel of hvdrun again", false});
  if (!value(a, "absent").empty())
    out.push_back({a.host, "lacks " + join(words(value(a, "absent")), ", "),
                   formatted("there: {} -m pip install {}", q.python, packages_of(words(value(a, "absent"))))});
  if (!a.local && !q.addresses.empty() && value(a, "reached").empty())
    out.push_back({a.host, "cannot reach this host at " + join(q.addresses, " or "),
                   "a firewall? ranks must reach hvdrun and one another by TCP; --network-interfaces chooses the way"});
  if (!value(a, "blind").empty())
    out.push_back({a.host, "cannot reach " + join(words(value(a, "blind")), ", "),
                   "ranks connect to each other by TCP on any port: is the name known there? is there a firewall? "
                   "--network-interfaces chooses the interface",
                   false});
}

}  // namespace

std::string launcher_beside(const std::string& rank_program) {
  return rank_program.substr(0, rank_program.rfind('/') + 1) + "hvdrun";
}

std::string checkup_script(const Questions& q) {
  std::string script = q.before + "cd " + shell_quote(q.cwd) +
                       " 2>/dev/null && echo cwd yes || echo cwd no\n"
                       "echo clock $(date +%s.%N)\n"
                       "echo rank $(" +
                       shell_quote(q.rank_program) +
                       " --version 2>/dev/null)\n"
                       "echo build $(" +
                       shell_quote(launcher_beside(q.rank_program)) +
                       " --version 2>/dev/null </dev/null)\n"
                       "echo libc $(getconf GNU_LIBC_VERSION 2>/dev/null)\n"
                       "echo kernel $(uname -rm)\n"
                       "echo mpi $(" +
                       shell_quote(q.mpirun) +
                       " --version 2>/dev/null | head -n 1)\n"
                       "echo gpus $(ls /proc/driver/nvidia/gpus 2>/dev/null | wc -l)\n" +
                       gpu_question(q.rank_program) + "[ -d /proc/driver/nvidia/gpus ] && " + aware_question(q.mpirun) +
                       "echo shm $(df -Pk /dev/shm 2>/dev/null | awk 'NR==2{print $2, $4}')\n"
                       "echo files $(ulimit -n)\n"
                       "echo tcp $(cat /proc/sys/net/ipv4/tcp_congestion_control 2>/dev/null)\n";
  if (!q.python.empty())
    script += formatted("{}{}{} {} 2>/dev/null <<'END_OF_PYTHON'\n{}END_OF_PYTHON\n",
                        q.python_path.empty() ? "" : "PYTHONPATH=" + shell_quote(q.python_path) + " ",
                        shell_quote(q.python), run_stdin, shell_quote(q.script_folder), python_text(q));
  return script + "echo end\n";
}

bool read_answers(const std::string& text, Answers& answers) {
  for (const std::string& line : split(text, '\n')) {
    const std::size_t blank = line.find(' ');
    if (line == "end") return true;
    answers.values[line.substr(0, blank)] =
        blank == std::string::npos ? "" : std::string(trim(std::string_view(line).substr(blank)));
  }
  return false;
}

std::vector<Problem> find_problems(const std::vector<Answers>& all, const Questions& q) {
  std::vector<Problem> out;
  const std::string usual_mpi = usual(all, "mpi"), usual_rank = usual(all, "rank");
  for (const Answers& a : all) {
    if (!a.unreachable.empty()) {
      out.push_back({a.host, a.unreachable, a.hint});
      continue;
    }
    if (value(a, "rank").empty())
      out.push_back({a.host, q.rank_program + " does not run there", "install hvdrun there under the same path"});
    else if (value(a, "rank") != usual_rank)
      out.push_back({a.host, formatted("has {}, others have {}", value(a, "rank"), usual_rank),
                     "install the same version everywhere"});
    if (value(a, "mpi").empty())
      out.push_back({a.host, q.mpirun + " does not run there", "install the same Open MPI there under the same path"});
    else if (value(a, "mpi") != usual_mpi)
      out.push_back({a.host, formatted("has {}, others have {}", value(a, "mpi"), usual_mpi),
                     "install the same Open MPI everywhere"});
    check_python(a, all, q, out);
    if (std::abs(a.clock_skew_seconds) - a.clock_error_seconds > most_skew_seconds)
      out.push_back(
          {a.host, "its clock is " + skew_text(a) + " from this host's", "is ntp running there? timedatectl", false});
    if (value(a, "cwd") == "no")
      out.push_back(
          {a.host, "has no folder " + q.cwd, "scripts would run in the home folder there; share or copy it", false});
    const std::vector<std::string> shm = words(value(a, "shm"));
    if (!shm.empty() && to_integer(shm[0]).value_or(0) <= least_shm_kib)
      out.push_back({a.host, "/dev/shm holds only " + human_bytes(to_integer(shm[0]).value_or(0) << 10),
                     "mount -o remount,size=8G /dev/shm, or docker run --shm-size=8g", false});
    if (value(a, "files") != "unlimited" && number_of(a, "files") < least_files)
      out.push_back(
          {a.host, "a process may open only " + value(a, "files") + " files", "raise it: ulimit -n 65536", false});
    if (value(a, "gpus") != usual(all, "gpus"))
      out.push_back({a.host,
                     formatted("has {}, others have {}", count_of(number_of(a, "gpus"), "GPU"), usual(all, "gpus")),
                     "if that is not meant: nvidia-smi there", false});
    if (value(a, "driver") != usual(all, "driver") && number_of(a, "gpus") > 0)
      out.push_back({a.host,
                     formatted("has NVIDIA driver {}, others have {}", value(a, "driver"), usual(all, "driver")),
                     "NCCL works best with one version everywhere", false});
    check_gpus(a, usual(all, "nccl"), out);
  }
  for (Problem& p : find_differences(all, q.python)) out.push_back(std::move(p));
  return out;
}

std::string problem_lines(const std::vector<Problem>& problems) {
  std::vector<std::pair<std::string, const Problem*>> lines;  // hosts, and what they share
  for (const Problem& p : problems) {
    const auto same = std::find_if(lines.begin(), lines.end(), [&p](const auto& line) {
      return line.second->what == p.what && line.second->hint == p.hint && line.second->fatal == p.fatal;
    });
    if (same == lines.end())
      lines.emplace_back(printable(p.host), &p);
    else
      same->first += ", " + printable(p.host);
  }
  std::string out;
  for (const auto& [hosts, p] : lines)
    out += formatted("{} {}: {}\n        {}\n", p->fatal ? "problem" : "note   ", hosts, printable(p->what),
                     printable(p->hint));
  return out;
}

std::string matrix(const std::vector<Answers>& all, const Questions& q) {
  std::vector<std::vector<std::string>> rows{
      {"host", "way", "clock", "hvdrank", "Open MPI", "Python", "hvd", "GPUs", "/dev/shm", "files", "TCP"}};
  for (const Answers& a : all) {
    if (!a.unreachable.empty()) {
      rows.push_back({a.host, "none"});
      continue;
    }
    const std::vector<std::string> rank = words(value(a, "rank")), mpi = words(value(a, "mpi")),
                                   shm = words(value(a, "shm"));
    auto last = [](const std::vector<std::string>& w) { return w.empty() ? std::string("none") : w.back(); };
    const std::string python = q.python.empty() ? "-" : value(a, "python").empty() ? "none" : value(a, "python");
    const std::string hvd = q.python.empty() ? "-" : value(a, "hvd").empty() ? "none" : value(a, "hvd");
    rows.push_back(
        {a.host, a.local ? "here" : "yes", a.local ? "same" : skew_text(a), last(rank), last(mpi), python, hvd,
         value(a, "driver").empty() ? value(a, "gpus") : formatted("{} ({})", value(a, "gpus"), value(a, "driver")),
         shm.empty() ? "none" : human_bytes(to_integer(shm[0]).value_or(0) << 10), value(a, "files"), value(a, "tcp")});
  }
  std::vector<std::size_t> width(rows[0].size());
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) line += row[c] + std::string(width[c] - row[c].size() + 2, ' ');
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::vector<std::string> imports_of(const std::string& source) {
  std::vector<std::string> names;
  auto add = [&](std::string_view text) {
    const std::string name(text.substr(0, text.find_first_of(". ,#;\r")));
    const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
    });
    if (plain && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const std::string& line : split(source, '\n')) {
    const std::string_view text(line);
    if (text.starts_with("from ")) {
      if (text.find(" import ") != std::string_view::npos) add(trim(text.substr(5)));
    } else if (text.starts_with("import ")) {
      for (const std::string& part : split(text.substr(7), ',')) add(trim(part));
    }
  }
  return names;
}

}  // namespace hvd::launcher
