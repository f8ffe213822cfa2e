/// @file checkup.h — the questions of hvdrun doctor to a host, and the problems that follow from the answers.  Pure.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace hvd::launcher {

/// The subjects of the questions.
struct Questions {
  std::string rank_program;          ///< hvdrank's path
  std::string mpirun;                ///< path
  std::string python;                ///< interpreter; empty: the job needs none
  std::vector<std::string> modules;  ///< that the job imports
  std::string cwd;
  std::vector<std::string> addresses;   ///< "ip:port" where this hvdrun listens for the test
  std::vector<std::string> peers = {};  ///< other hosts, which each host tries to reach
  std::string script_folder = ".";      ///< relative to cwd, or absolute; Python looks there first for modules
  std::string python_path = {};         ///< PYTHONPATH, which ranks get too
  std::string before = {};              ///< shell text to go before all else
};

/// The path of hvdrun in the folder of hvdrank, as the wheel installs them.
std::string launcher_beside(const std::string& rank_program);

/// Shell text for /bin/sh on the host; prints "key value" lines and ends with "end".
std::string checkup_script(const Questions& questions);

/// One host's answers.
struct Answers {
  std::string host;
  bool local = false;
  std::string unreachable;  ///< why the host gave no answers; empty: it gave some
  std::string hint;         ///< the advice for `unreachable`
  double clock_skew_seconds = 0, clock_error_seconds = 0;
  std::map<std::string, std::string> values;
};

/// The answer to a question; empty: none.
std::string value(const Answers& answers, const char* key);
/// The most frequent answer.  In a tie, this host's answer.  Empty: no host has one.
std::string usual(const std::vector<Answers>& all, const char* key);

/// Reads the output of the script.  False when the output is cut off.
bool read_answers(const std::string& text, Answers& answers);

/// Something that the user has to repair, on one host or between hosts.
struct Problem {
  std::string host, what, hint;
  bool fatal = true;  ///< false: a job runs all the same
};

std::vector<Problem> find_problems(const std::vector<Answers>& all, const Questions& questions);

/// Two lines for each problem: the fault and its host, then the advice.  Hosts with the same problem share its lines.
std::string problem_lines(const std::vector<Problem>& problems);

/// A row for each host.
std::string matrix(const std::vector<Answers>& all, const Questions& questions);

/// Names of the modules that a script imports at its top level; the standard library's too.
std::vector<std::string> imports_of(const std::string& source);

}  // namespace hvd::launcher
