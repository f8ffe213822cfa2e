#include "launcher/verdict/verdict_document.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "launcher/verdict/cause_class.h"
#include "launcher/verdict/explain.h"
#include "launcher/verdict/verdict_output.h"

using namespace hvd;
using namespace hvd::launcher;
using wire::Cause;
using wire::DeathFact;

namespace {

wire::DeathRecord death(int rank, Cause cause, int code, const std::string& traceback = "") {
  wire::DeathRecord d;
  d.rank = rank, d.host = "h", d.cause = cause, d.code = code, d.time_ns = 5'000'000'000 + rank;
  if (!traceback.empty())
    d.traceback =
        "Traceback (most recent call last):\n  File \"/a/train.py\", line 7, in step\n    f()\n"
        "  File \"/x/site-packages/lib.py\", line 1, in f\n    g()\n" +
        traceback + "\n";
  return d;
}

JudgedJob job(bool elastic = false) { return {"abc", "train.py", 1000, 1010.25, 6'000'000'000, elastic, {}}; }

nlohmann::json written(const std::vector<wire::DeathRecord>& deaths, int size, const EndReason& ended = {},
                       bool elastic = false) {
  return nlohmann::json::parse(verdict_json(job(elastic), judge(deaths, size, ended), ended, deaths, size));
}

/// "exception FIX_CODE".
std::string cause_and_advice(const wire::DeathRecord& d) {
  const JobCause cause = cause_of_death(d);
  return std::string(cause_words[static_cast<std::size_t>(cause.kind)]) + " " +
         advice_words[static_cast<std::size_t>(cause.advice.kind)];
}

}  // namespace

TEST_CASE("verdict as data: an exception, with place, time and the others' ends") {
  const auto v = written({death(1, Cause::exited, 1, "m.Boom: x\xff"), death(0, Cause::stopped, 143)}, 3);
  CHECK(v["outcome"] == "failed");
  CHECK(v["cause"] == "exception");
  CHECK(v["rank"] == 1);
  CHECK(v["frame"] == nlohmann::json{{"file", "/a/train.py"}, {"line", 7}, {"function", "step"}});
  CHECK(v["time"] == "1970-01-01T00:16:49.250Z");
  CHECK(v["advice"]["action"] == "FIX_CODE");
  CHECK(v["others"].dump() ==
        R"([{"count":1,"end":"stopped","ranks":"0"},{"count":1,"end":"not_started","ranks":""}])");
  CHECK(v["incidents"].size() == 1);
  CHECK(v["headline"].get<std::string>().starts_with("rank 1 on h ended with exit code 1 (m.Boom: x"));
}

TEST_CASE("verdict as data: a headline has a limit, and the evidence another one") {
  const std::string text(200'000, 'x');
  for (const bool elastic : {false, true}) {
    const auto v = written({death(0, Cause::exited, 1, "ValueError: " + text)}, 1, {}, elastic);
    for (const auto& headline : {v["headline"], v["incidents"][0]["headline"]}) {
      CHECK(headline.get<std::string>().size() <= most_headline_bytes);
      CHECK(headline.get<std::string>().starts_with("rank 0 on h ended with exit code 1 (ValueError: xxx"));
      CHECK(headline.get<std::string>().ends_with("xxx…)"));
    }
    CHECK(v["evidence"].back().get<std::string>().size() == 2000);
  }
  wire::DeathRecord wordy = death(0, Cause::unstarted, 4);
  wordy.text = text, wordy.hint = text;
  for (const std::string& line : judge({wordy}, 1, {}).lines) CHECK(line.size() <= most_headline_bytes);
  const Error error(Code::unavailable, "", text);
  CHECK(nlohmann::json::parse(failed_start_json(job(), error))["headline"].get<std::string>().size() ==
        most_headline_bytes);
}

TEST_CASE("verdict as data: the program's own timer ended it") {
  for (const int number : {SIGALRM, SIGVTALRM, SIGPROF})
    CHECK(cause_and_advice(death(0, Cause::signalled, number)) == "crash FIX_CODE");
  CHECK(judge({death(0, Cause::signalled, SIGALRM)}, 1, {}).lines[0] ==
        "hvdrun: rank 0 on h was killed by signal 14 (SIGALRM), a timer of the program itself");
  CHECK(cause_and_advice(death(0, Cause::signalled, SIGUSR1)) == "killed RESTART");
}

TEST_CASE("verdict as data: a service's refusal is no lost connection") {
  const auto advice = [](const std::string& line) { return cause_and_advice(death(0, Cause::exited, 1, line)); };
  for (const char* line :
       {"urllib.error.HTTPError: HTTP Error 404: Not Found", "urllib.error.HTTPError: HTTP Error 401: Unauthorized",
        "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://x.org/500/",
        "huggingface_hub.errors.HfHubHTTPError: 404 Client Error: Not Found for url: https://x.org/429",
        "httpx.HTTPStatusError: Client error '410 Gone' for url 'https://x.org/'"})
    CHECK_MESSAGE(advice(line) == "exception FIX_CODE", line);
  for (const char* line :
       {"urllib.error.HTTPError: HTTP Error 503: Service Unavailable", "urllib.error.HTTPError: HTTP Error 408: Late",
        "requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://x.org/404",
        "requests.exceptions.HTTPError: no status, of https://x.org/404", "requests.exceptions.HTTPError",
        "httpx.HTTPStatusError: Server error '502 Bad Gateway' for url 'https://x.org/404'",
        "urllib.error.URLError: <urlopen error [Errno 111] Connection refused>"})
    CHECK_MESSAGE(advice(line) == "exception RESTART", line);
  CHECK(advice("ValueError: HTTP Error 503") == "exception FIX_CODE");
}

TEST_CASE("verdict as data: a good end has no cause; an elastic job lists what it has survived") {
  const auto good = written({death(0, Cause::finished, 0)}, 1);
  CHECK(good["outcome"] == "finished");
  CHECK(good["cause"] == "none");
  CHECK(good["advice"]["action"] == "NONE");
  CHECK(good["incidents"].empty());
  const std::vector<wire::DeathRecord> all{death(2, Cause::signalled, SIGKILL), death(1, Cause::exited, 3),
                                           death(0, Cause::finished, 0)};
  const EndReason ended;
  const auto survived = nlohmann::json::parse(verdict_json(job(true), judge({all[2]}, 1, ended), ended, all, 3));
  CHECK(survived["outcome"] == "finished");
  REQUIRE(survived["incidents"].size() == 2);
  CHECK(survived["incidents"][0]["rank"] == 1);
  CHECK(survived["incidents"][1]["cause"] == "killed");
}

TEST_CASE("verdict as data: causes and advice") {
  CHECK(cause_and_advice(death(0, Cause::exited, 3)) == "exit_code FIX_CODE");
  CHECK(cause_and_advice(death(0, Cause::exited, 1, "ModuleNotFoundError: No module named 'x'")) ==
        "missing_module FIX_CODE");
  CHECK(cause_and_advice(death(0, Cause::exited, 1, "numpy._core._exceptions._ArrayMemoryError: Unable")) ==
        "out_of_memory MORE_MEMORY");
  CHECK(cause_and_advice(death(0, Cause::exited, 1,
                               "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
                               "allocate memory: you tried to allocate 4000000000000000 bytes.")) ==
        "out_of_memory MORE_MEMORY");
  CHECK(cause_and_advice(death(0, Cause::exited, 1, "OSError: 1000000 requested and 131056 written")) ==
        "disk_full STOP");
  CHECK(cause_and_advice(death(0, Cause::exited, 1, "OSError: [Errno 28] No space left on device")) ==
        "disk_full STOP");
  CHECK(cause_and_advice(death(0, Cause::exited, 1, "OSError: [Errno 24] Too many open files: 'a'")) == "limit STOP");
  CHECK(cause_and_advice(death(0, Cause::exited, 1, "requests.exceptions.ConnectTimeout: x")) == "exception RESTART");
  CHECK(cause_and_advice(death(0, Cause::signalled, SIGSEGV)) == "crash FIX_CODE");
  CHECK(cause_and_advice(death(0, Cause::signalled, SIGTERM)) == "killed RESTART");
  CHECK(cause_and_advice(death(0, Cause::signalled, SIGXCPU)) == "limit STOP");
  CHECK(cause_and_advice(death(0, Cause::oom, SIGKILL)) == "out_of_memory MORE_MEMORY");
  CHECK(cause_and_advice(death(0, Cause::vanished, 0)) == "launcher_lost RESTART");
  CHECK(cause_and_advice(death(0, Cause::unstarted, 2)) == "not_started STOP");
  wire::DeathRecord d = death(0, Cause::exited, 1, "torch.OutOfMemoryError: CUDA out of memory");
  d.fact = DeathFact::gpu_memory;
  CHECK(cause_and_advice(d) == "gpu_out_of_memory MORE_MEMORY");
  d.fact = DeathFact::gpu_program;
  CHECK(cause_and_advice(d) == "gpu_fault FIX_CODE");
  d.fact = DeathFact::gpu_error;
  CHECK(cause_and_advice(d) == "gpu_fault RESTART_ELSEWHERE");
  d = death(0, Cause::signalled, SIGABRT);
  d.tail = {"terminate called after throwing an instance of 'std::bad_alloc'"};
  CHECK(cause_and_advice(d) == "out_of_memory MORE_MEMORY");
  d = death(0, Cause::vanished, 0);
  d.fact = DeathFact::host_lost;
  CHECK(cause_and_advice(d) == "host_lost RESTART_ELSEWHERE");
  CHECK(std::set<std::string>(cause_words.begin(), cause_words.end()).size() == cause_words.size());
}

TEST_CASE("verdict as data: a hang names the rank, whoever ends the job") {
  EndReason ended;
  ended.signal = SIGINT;
  CHECK(written({}, 2, ended)["cause"] == "interrupted");
  ended.open_hang = OpenHang{1, "h2", "grad", wire::SourceFrame{"/a/loss.py", 3, "f"}};
  const auto v = written({}, 2, ended);
  CHECK(v["outcome"] == "interrupted");
  CHECK(v["cause"] == "hang");
  CHECK(v["rank"] == 1);
  CHECK(v["operation"] == "grad");
  CHECK(v["advice"]["action"] == "FIX_CODE");
  ended.open_hang->gpu_is_late = true;
  CHECK(written({}, 2, ended)["advice"]["action"] == "FIX_CODE");
  CHECK(written({}, 2, ended)["advice"]["reason"] != v["advice"]["reason"]);
  ended.open_hang->is_stopped = true;
  CHECK(written({}, 2, ended)["advice"]["action"] == "RESTART");
  ended.open_hang->link_is_broken = true;
  CHECK(written({}, 2, ended)["advice"]["action"] == "RESTART_ELSEWHERE");
  EndReason limit;
  limit.time_limit_seconds = 3;
  CHECK(written({}, 2, limit)["advice"]["action"] == "STOP");
}

TEST_CASE("verdict as data: the calls of ranks that disagree") {
  wire::DeathRecord d = death(1, Cause::exited, 1, "m.HorovodInternalError: ranks disagree on shape");
  CHECK(written({d}, 2)["calls"] == nlohmann::json::array());
  d.mismatched_call = wire::MismatchedCall{"ranks disagree on shape", "", {"/a/train.py", 7, "step"}};
  const auto v = written({d}, 2);
  CHECK(v["cause"] == "mismatch");
  CHECK(v["advice"]["action"] == "FIX_CODE");
  CHECK(v["calls"].dump() ==
        R"([{"frame":{"file":"/a/train.py","function":"step","line":7},"function":null,"ranks":"1"}])");
  CHECK(v["evidence"][0] == "rank 1 was at train.py:7 (step)");
  d.mismatched_call->function = "hvd.barrier";
  auto whole = written({d}, 2);
  CHECK(explained(whole.dump(), "v").find("\ncalls\n  rank 1  hvd.barrier  /a/train.py:7 (step)\n") !=
        std::string::npos);
  whole.erase("calls");  // of an earlier hvdrun
  CHECK(explained(whole.dump(), "v").find("calls") == std::string::npos);
}

TEST_CASE("verdict as data: long evidence keeps its beginning and its end") {
  wire::DeathRecord d = death(0, Cause::exited, 3);
  for (int i = 0; i < 500; ++i) d.tail.push_back("line " + std::to_string(i) + std::string(3000, 'x'));
  const auto evidence = written({d}, 1)["evidence"];
  CHECK(evidence.size() == 60);
  CHECK(evidence.back().get<std::string>().starts_with("line 499"));
  CHECK(evidence.back().get<std::string>().size() == 2000);
}

TEST_CASE("verdict as data: what --agreement has found, also in a job that ends well") {
  JudgedJob well = job();
  well.findings.push_back(
      {1001.5, {wire::AgreementFindingKind::result_differs, "grad", 7, {1, 2}, "the result \x1b", 9}});
  well.findings.push_back({1002, {wire::AgreementFindingKind::repaired, "", -1, {}, "rank 1 has got \xff", 9}});
  const std::vector<wire::DeathRecord> deaths{death(0, Cause::finished, 0)};
  const std::string json = verdict_json(well, judge(deaths, 1, {}), {}, deaths, 1);
  auto v = nlohmann::json::parse(json);
  CHECK(v["cause"] == "none");
  CHECK(v["findings"].size() == 2);
  CHECK(v["findings"][0] == nlohmann::json{{"time", "1970-01-01T00:16:41.500Z"},
                                           {"kind", "result_differs"},
                                           {"tensor", "grad"},
                                           {"step", 7},
                                           {"ranks", {1, 2}},
                                           {"text", "the result \x1b"}});
  CHECK(v["findings"][1]["step"].is_null());
  const std::string text = explained(json, "v.json");
  CHECK(text.find("findings\n  1970-01-01T00:16:41.500Z  the result ") != std::string::npos);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find("more") == std::string::npos);
  const auto explained_now = [&] {
    return explained(verdict_json(well, judge(deaths, 1, {}), {}, deaths, 1), "v.json");
  };
  well.findings.assign(25, well.findings[0]);
  CHECK(explained_now().find(" (and 24 more about it)\n") != std::string::npos);
  for (std::size_t i = 0; i < 25; ++i) well.findings[i].found.tensor = std::to_string(i);
  CHECK(explained_now().find("\n  and findings about 5 more\n") != std::string::npos);
  v.erase("findings");  // of an earlier hvdrun
  CHECK(explained(v.dump(), "v.json").find("findings") == std::string::npos);
}

TEST_CASE("explain: prints a verdict; other files are refused") {
  const std::vector<wire::DeathRecord> deaths{death(1, Cause::exited, 1, "Boom: \x1b[2J"),
                                              death(0, Cause::stopped, 143)};
  const std::string json = verdict_json(job(), judge(deaths, 2, {}), {}, deaths, 2);
  const std::string text = explained(json, "v.json");
  CHECK(text.find("where     rank 1 on h, /a/train.py:7 (step)\n") != std::string::npos);
  CHECK(text.find("advice    FIX_CODE: ") != std::string::npos);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK_NOTHROW(explained(failed_start_json(job(), Error(Code::unavailable, "h", "x", "y")), "v.json"));
  const auto refused = [](const std::string& wrong) {
    try {
      explained(wrong, "v.json");
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string();
  };
  for (std::size_t size = 0; size + 2 < json.size(); size += 7)
    CHECK(refused(json.substr(0, size)) == "v.json: is incomplete, or is not JSON");
  CHECK(refused("[]") == "v.json: is no object");
  CHECK(refused("{}") == "v.json: has no field \"schema\"");
  CHECK(refused(R"({"schema": "other"})") == "v.json: is no verdict of hvdrun");
  CHECK(refused(R"({"schema": "hvdrun-verdict", "version": 2, "hvdrun": "9.1"})").find("is of version 2; hvdrun ") !=
        std::string::npos);
  CHECK(refused(R"({"schema": "hvdrun-verdict", "version": 0})").find("has version 0") != std::string::npos);
  const auto whole = nlohmann::json::parse(json);
  for (const auto& field : whole.items()) {
    auto wrong = whole;
    wrong[field.key()] = nlohmann::json{{"a", 1}};
    if (field.key() != "started" && field.key() != "ended" && field.key() != "hvdrun")
      CHECK_MESSAGE(!refused(wrong.dump()).empty(), field.key());
  }
}

TEST_CASE("termination log: only an existing regular file, bounded, others' text stays") {
  const std::string folder = std::filesystem::temp_directory_path() / ("hvd-log-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::string file = folder + "/log", link = folder + "/link";
  const auto text = [&] { return read_file(file, 1 << 20); };
  write_termination_log_to(file, "hvdrun: a\n");
  CHECK_FALSE(std::filesystem::exists(file));
  std::ofstream(file) << "theirs";
  write_termination_log_to(file, "hvdrun: a\n");
  CHECK(text() == "theirs\nhvdrun: a\n");
  write_termination_log_to(file, "hvdrun: b\n        c\n");
  CHECK(text() == "theirs\nhvdrun: b\n        c\n");
  write_termination_log_to(file, "");
  CHECK(text() == "theirs\n");
  write_termination_log_to(file, "hvdrun: " + std::string(9000, 'x'));
  CHECK(text().size() == most_termination_bytes);
  std::filesystem::create_symlink(file, link);
  write_termination_log_to(link, "hvdrun: through a link\n");
  CHECK(text().find("link") == std::string::npos);
  REQUIRE(::mkfifo((folder + "/fifo").c_str(), 0600) == 0);
  write_termination_log_to(folder + "/fifo", "hvdrun: x\n");  // must not wait for a reader
  std::ofstream(file, std::ios::trunc) << std::string(5000, 'y');
  write_termination_log_to(file, "hvdrun: x\n");
  CHECK(text() == std::string(5000, 'y'));
  std::filesystem::remove_all(folder);
  const Verdict verdict = judge({death(0, Cause::exited, 3)}, 1, {});
  CHECK(short_verdict(verdict, {AdviceKind::stop, "why"}, 4096) ==
        "hvdrun: rank 0 on h ended with exit code 3\n        advice: STOP: why\n");
}
