#include "launcher/options/settings.h"

#include <doctest/doctest.h>

#include <set>

#include "../errors.h"
#include "base/text.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

using Strings = std::vector<std::string>;

CommandLine read(const Strings& args, const std::map<std::string, std::string>& variables = {}) {
  return read_command_line(args, [&](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

std::string error_for(const Strings& args, const std::map<std::string, std::string>& variables = {}) {
  return error_of([&] { read(args, variables); });
}

}  // namespace

TEST_CASE("options: each id and each spelling is there once, with a help line") {
  std::set<std::string> seen;
  for (const Option& row : command_line_options()) {
    CHECK_MESSAGE(seen.insert(std::string(row.id)).second, row.id);
    CHECK_FALSE(row.help.empty());
    for (const std::string& s : split(row.spellings, ','))
      if (s != "--" + std::string(row.id)) CHECK_MESSAGE(seen.insert(s).second, s);
  }
}

TEST_CASE("options: the payload begins at the first word that is none of ours") {
  const CommandLine line = read({"-np", "2", "--verbose", "train.py", "-np", "7", "--grace=1"});
  CHECK(line.settings.integer("num-proc") == 2);
  CHECK(line.settings.flag("verbose"));
  CHECK(line.settings.number("grace") == 5);
  CHECK(line.prefix == PayloadPrefix::plain);
  CHECK(line.payload == Strings{"train.py", "-np", "7", "--grace=1"});

  CHECK(read({"-np", "2", "-m", "pkg.mod", "-x"}).payload == Strings{"pkg.mod", "-x"});
  CHECK(read({"-np", "2", "--", "-odd-name"}).payload == Strings{"-odd-name"});
  CHECK(read({"-np", "2", "--", "a.py"}).prefix == PayloadPrefix::dashes);
  CHECK(read({"--verbose"}).prefix == PayloadPrefix::none);
}

TEST_CASE("options: a further program begins at a colon with -np behind it") {
  const CommandLine line =
      read({"-np", "2", "a.py", ":", "x", ":", "-np", "3", "-m", "b", "-c", ":", "-n4", "--", "c", ":"});
  CHECK(line.payload == Strings{"a.py", ":", "x"});
  CHECK(line.first_np == 2);
  CHECK(line.settings.integer("num-proc") == 9);
  REQUIRE(line.further.size() == 2);
  CHECK(line.further[0].np == 3);
  CHECK(line.further[0].prefix == PayloadPrefix::module);
  CHECK(line.further[0].payload == Strings{"b", "-c"});
  CHECK(line.further[1].np == 4);
  CHECK(line.further[1].payload == Strings{"c", ":"});
  CHECK(read({"-np", "2", "a.py", ":", "b.py"}).further.empty());
  CHECK_THROWS_AS(read({"a.py", ":", "-np", "2", "b.py"}), Error);
  CHECK_THROWS_AS(read({"-np", "1", "a.py", ":", "-np", "2", "--verbose", "b.py"}), Error);
}

TEST_CASE("options: Horovod's spellings") {
  for (const Strings& np :
       {Strings{"-np", "4"}, {"-np=4"}, {"-np4"}, {"-n", "4"}, {"--num-proc", "4"}, {"--num-proc=4"}})
    CHECK(read(np).settings.integer("num-proc") == 4);
  CHECK(read({"-hostfile", "f"}).settings.text("hostfile") == "f");
  CHECK(read({"-p2222"}).settings.integer("ssh-port") == 2222);
  CHECK(read({"-H", "a:1", "-H", "b:1"}).settings.text("hosts") == "b:1");
  CHECK(read({"--mpi-args", "-x A"}).settings.text("mpi-args") == "-x A");
  CHECK(read({"-v"}).settings.flag("version"));
  CHECK(read({"-cb"}).settings.flag("check-build"));
  const Settings last = read({"-np", "2", "--no-autotune", "--autotune", "-np", "3"}).settings;  // the last one wins
  CHECK(last.integer("num-proc") == 3);
  CHECK(last.flag("autotune"));
}

TEST_CASE("options: a value is taken as typed; an empty one is an error") {
  for (const char* value : {"[::1]", "[::1],[::1]", "[localhost]", "{a}", "-x", "a b", "%%", "'a'"}) {
    CAPTURE(value);
    CHECK(read({"-H", value}).settings.text("hosts") == value);
    CHECK(read({std::string("--output-filename=") + value}).settings.text("output-filename") == value);
  }
  CHECK(error_for({"--timeline-filename=", "-np", "2", "p.py"}) == "--timeline-filename: is empty");
  CHECK(error_for({"--output-filename", "", "--dry-run", "p.py"}) == "--output-filename: is empty");
  CHECK(error_for({"--hosts=", "p.py"}) == "--hosts: is empty");
  CHECK(error_for({"-np=", "2"}) == "-np: '' is not a whole number");
  CHECK(error_for({"--blacklist-cooldown-range", "a", "b"}) ==
        "--blacklist-cooldown-range: 'a b' is not two whole numbers");
  CHECK(read({"--blacklist-cooldown-range", "1", "2"}).settings.text("blacklist-cooldown-range") == "1 2");
}

TEST_CASE("options: flags set the ranks' variables in their own units") {
  const auto variables = read({"--fusion-threshold-mb", "2", "--no-stall-check", "--cycle-time-ms", "0.5",
                               "--hierarchical-allreduce", "--no-torus-allreduce", "--no-log-with-timestamp"})
                             .settings.rank_variables();
  const std::map<std::string, std::string> wanted = {
      {"HOROVOD_FUSION_THRESHOLD", "2097152"}, {"HOROVOD_STALL_CHECK_DISABLE", "1"}, {"HOROVOD_CYCLE_TIME", "0.5"},
      {"HOROVOD_HIERARCHICAL_ALLREDUCE", "1"}, {"HOROVOD_TORUS_ALLREDUCE", "0"},     {"HOROVOD_LOG_HIDE_TIME", "1"}};
  CHECK(variables == wanted);
}

TEST_CASE("options: typed flag, then environment, then config file") {
  Settings settings = read({"--grace", "1"}, {{"HVD_GRACE", "2"}, {"HOROVOD_START_TIMEOUT", "3"}}).settings;
  read_config(settings, "hosts: {grace: 7, start_timeout: 8}\nssh: {port: 9}\n", "c.yaml");
  CHECK(settings.number("grace") == 1);
  CHECK(settings.number("start-timeout") == 3);
  CHECK(settings.integer("ssh-port") == 9);
}

TEST_CASE("options: the environment's units are the variable's") {
  const Settings settings =
      read({}, {{"HOROVOD_FUSION_THRESHOLD", "1048576"}, {"HOROVOD_STALL_CHECK_DISABLE", "1"}}).settings;
  CHECK(settings.number("fusion-threshold-mb") == 1);
  CHECK_FALSE(settings.flag("stall-check"));
  CHECK(settings.rank_variables().empty());  // the ranks' environment has them already
}

TEST_CASE("options: mistakes are named with the way out") {
  CHECK(error_for({"--hostfil", "x"}) == "--hostfil: no such option (did you mean --hostfile?)");
  CHECK(error_for({"-np", "two"}) == "-np: 'two' is not a whole number");
  CHECK(error_for({"-np", "99999999999"}) == "-np: '99999999999' is too large");
  CHECK(error_for({"-np", "99999999999999999999999"}) == "-np: '99999999999999999999999' is too large");
  CHECK(error_for({"-np", "-"}) == "-np: '-' is not a whole number");
  CHECK(error_for({"-p", "99999999999"}) == "--ssh-port: '99999999999' is not possible; the most is 65535");
  for (const char* theirs : {"-ppn", "-perhost", "-npernode", "-N"})
    CHECK(error_for({theirs, "2", "true"}) ==
          std::string(theirs) + ": no such option (did you mean -H host:2, which places 2 ranks on that host?)");
  CHECK(error_for({"-nproc", "2"}).starts_with("-nproc: no such option"));
  CHECK(error_for({"-np"}) == "-np: needs a value (-np N)");
  CHECK(error_for({"--verbose=1"}) == "--verbose: takes no value");
  CHECK(error_for({"--grace", "-1"}) == "--grace: '-1' is not possible; the least is 0");
  CHECK(error_for({"-H", "a", "--hostfile", "b"}) == "--hostfile: cannot be given together with -H (keep one of them)");
  CHECK(error_for({"--min-np", "0"}).starts_with("--min-np: "));
  CHECK(error_for({}, {{"HOROVOD_AUTOTUNE", "maybe"}}).starts_with("HOROVOD_AUTOTUNE: 'maybe' is not a boolean"));
}

TEST_CASE("options: mistakes in a config file carry line and column") {
  Settings s;
  CHECK(error_of([&] { read_config(s, "params:\n  cycle_time: 2\n", "c"); }) ==
        "c:2:3: no option is called 'params.cycle_time' (did you mean params.cycle_time_ms?)");
  CHECK(error_of([&] { read_config(s, "np: 2\n", "c"); }) ==
        "c:1:1: no option is called 'np' (did you mean hosts.num_proc?)");
  CHECK(error_of([&] { read_config(s, "hosts:\n  H: a\n", "c"); }) ==
        "c:2:3: no option is called 'hosts.H' (did you mean hosts.hosts?)");
  CHECK(error_of([&] { read_config(s, "wq: 2\n", "c"); }) ==
        "c:1:1: no option is called 'wq' (hvdrun(1) lists the keys)");
  CHECK(error_of([&] { read_config(s, "params:\n  cycle_time_ms: x\n", "c"); }) == "c:2:18: 'x' is not a number");
  CHECK(error_of([&] { read_config(s, "a: [b\n", "c"); }).starts_with("c:2:1: not YAML"));
  CHECK(error_of([&] { read_config(s, "- 1\n", "c"); }).starts_with("c:1:1: not a list"));
  CHECK(error_of([&] { read_config(s, "", "c"); }) == "no error");
  CHECK(error_of([&] { read_config(s, "ssh: {port: 1}\n---\nssh: {port: 2}\n", "c"); }) ==
        "c: has 2 YAML documents (keep one of them)");
  // Aliases of aliases: 4 KB that are 60^6 values.
  std::string maps = "a: &a0 {x: {}}\n";
  for (int level = 1; level < 7; ++level) {
    maps += std::string(1, static_cast<char>('a' + level)) + ": &a" + std::to_string(level) + " {";
    for (int i = 0; i < 60; ++i) maps += (i ? ", k" : "k") + std::to_string(i) + ": *a" + std::to_string(level - 1);
    maps += "}\n";
  }
  CHECK(error_of([&] { read_config(s, maps, "c"); }).find("more than 10000 values") != std::string::npos);
}

TEST_CASE("options: words as a shell sees them") {
  CHECK(shell_words("-x 'a b' \"c\\\"d\" e\\ f ''", "w") == Strings{"-x", "a b", "c\"d", "e f", ""});
  CHECK(error_of([] { shell_words("'a", "--mpi-args"); }) == "--mpi-args: has no closing '");
}
