#include "launcher/verdict/verdict_output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/environment.h"
#include "base/file.h"
#include "base/files/own_file.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

constexpr std::string_view mark = "hvdrun: ";  // the beginning of each text of hvdrun

/// The length of other programs' text in @p text: the part before the first line that begins with our mark.
std::size_t others_size(std::string_view text) {
  if (text.starts_with(mark)) return 0;
  const std::size_t at = text.find("\nhvdrun: ");
  return at == text.npos ? text.size() : at + 1;
}

}  // namespace

void write_termination_log_to(const std::string& path, const std::string& text) {
  const Fd file = open_existing_own_file(path);
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0) return;
  if (about.st_size > static_cast<off_t>(most_termination_bytes)) return;
  std::string before(most_termination_bytes, '\0');
  const ssize_t got = ::pread(file.get(), before.data(), before.size(), 0);
  if (got < 0) return;
  before.resize(static_cast<std::size_t>(got));
  std::size_t kept = others_size(before);
  if (text.empty() && kept == before.size()) return;
  const bool open_line = kept > 0 && before[kept - 1] != '\n';
  std::string added = (open_line && !text.empty() ? "\n" : "") + text;
  added.resize(std::min(added.size(), most_termination_bytes - kept));
  if (::ftruncate(file.get(), static_cast<off_t>(kept)) != 0) return;
  for (std::size_t done = 0; done < added.size();) {
    const ssize_t n = ::pwrite(file.get(), added.data() + done, added.size() - done, static_cast<off_t>(kept + done));
    if (n <= 0) return;
    done += static_cast<std::size_t>(n);
  }
}

void write_termination_log(const std::string& text) {
  constexpr const char* variable = "HVD_TERMINATION_LOG";
  const char* named = environment_value(variable);
  write_termination_log_to(named && *named ? named : "/dev/termination-log", text);
}

std::string write_verdict(const std::string& path, const std::string& json) {
  if (path.empty()) return {};
  try {
    replace_own_file(path, json, 0600);
    return {};
  } catch (const Error& e) { return std::string("hvdrun: the verdict is not written: ") + e.what(); }
}

std::string tell_failed_start(const std::string& path, const JudgedJob& job, const Error& error) {
  Verdict verdict;
  verdict.exit_code = static_cast<int>(error.code);
  verdict.lines = {shortened(std::string("hvdrun: ") + error.what(), most_headline_bytes)};
  for (const std::string& line : split(error.hint, '\n'))
    if (!line.empty()) verdict.lines.push_back("        " + line);
  const JobCause cause = cause_of_failed_start(error.code);
  write_termination_log(short_verdict(verdict, cause.advice, most_termination_bytes));
  return write_verdict(path, failed_start_json(job, error));
}

}  // namespace hvd::launcher
