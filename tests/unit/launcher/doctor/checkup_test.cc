#include "launcher/doctor/checkup.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "launcher/doctor/as_json.h"
#include "launcher/doctor/differences.h"
#include "launcher/doctor/gpus.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

Answers host(const std::string& name, const std::string& more = "") {
  Answers a;
  a.host = name;
  a.local = name == "a";
  CHECK(
      read_answers("cwd yes\nclock 5.5\nrank hvdrank 0.1.0\nmpi mpirun (Open MPI) 4.1.4\ngpus 8\nshm 8388608 8388608\n"
                   "files 65536\ntcp cubic\npython 3.11.2\nhvd 0.1.0\nabsent\nreached 10.0.0.1:99\n" +
                       more + "end\n",
                   a));
  return a;
}

Questions questions() {
  return {"/opt/hvdrank", "/usr/bin/mpirun", "/usr/bin/python3", {"torch"}, "/work dir", {"10.0.0.1:99"}};
}

std::string problems(const std::vector<Answers>& all) {
  std::string out;
  for (const Problem& p : find_problems(all, questions()))
    out += (p.fatal ? "! " : "- ") + p.host + ": " + p.what + "\n";
  return out;
}

}  // namespace

TEST_CASE("doctor: healthy hosts have no problems") {
  CHECK(problems({host("a"), host("b")}).empty());
  CHECK(matrix({host("a"), host("b")}, questions()) ==
        "host  way   clock  hvdrank  Open MPI  Python  hvd    GPUs  /dev/shm  files  TCP\n"
        "a     here  same   0.1.0    4.1.4     3.11.2  0.1.0  8     8.0 GiB   65536  cubic\n"
        "b     yes   same   0.1.0    4.1.4     3.11.2  0.1.0  8     8.0 GiB   65536  cubic\n");
}

TEST_CASE("doctor: each trouble is one line with its host") {
  CHECK(problems({host("a"), host("b", "python 3.9.1\n")}) == "! b: has Python 3.9.1, others have 3.11.2\n");
  CHECK(problems({host("a"), host("b", "mpi\n"), host("c")}) == "! b: /usr/bin/mpirun does not run there\n");
  CHECK(problems({host("a"), host("b", "rank hvdrank 0.2\n")}) == "! b: has hvdrank 0.2, others have hvdrank 0.1.0\n");
  CHECK(problems({host("a"), host("b", "absent torch yaml\n")}) == "! b: lacks torch, yaml\n");
  CHECK(problems({host("a"), host("b", "hvd\nhvd_error No module named 'hvd'\n")}) ==
        "! b: import hvd fails: No module named 'hvd'\n");
  CHECK(problems({host("a"), host("b", "horovod /venv/horovod\n")}) ==
        "- b: has Horovod itself in /venv/horovod, which import horovod may load\n");
  CHECK(problems({host("a"), host("b", "reached\n")}) == "! b: cannot reach this host at 10.0.0.1:99\n");
  CHECK(problems({host("a"), host("b", "blind c d\n")}) == "- b: cannot reach c, d\n");
  CHECK(problems({host("a"), host("b", "shm 65536 1\n")}) == "- b: /dev/shm holds only 64 MiB\n");
  CHECK(problems({host("a"), host("b", "files 256\n")}) == "- b: a process may open only 256 files\n");
  CHECK(problems({host("a"), host("b", "cwd no\n")}) == "- b: has no folder /work dir\n");
  CHECK(problems({host("a"), host("b", "gpus 7\n"), host("c")}) == "- b: has 7 GPUs, others have 8\n");
  Answers late = host("b");
  late.clock_skew_seconds = -90, late.clock_error_seconds = 0.2;
  CHECK(problems({host("a"), late}) == "- b: its clock is -90.0 s from this host's\n");
  Answers gone;
  gone.host = "b", gone.unreachable = "b does not answer";
  CHECK(problems({host("a"), gone}) == "! b: b does not answer\n");
}

TEST_CASE("doctor: what differs between hosts") {
  CHECK(problems({host("a", "kernel 6.1 x86_64\n"), host("b", "kernel 6.5 x86_64\n")}) ==
        "- b: has Linux 6.5 x86_64, others have 6.1 x86_64\n");
  CHECK(problems({host("a", "libc glibc 2.31\n"), host("b", "libc glibc 2.36\n"), host("c", "libc glibc 2.36\n")}) ==
        "- a: has glibc 2.31, others have glibc 2.36\n");
  CHECK(problems({host("a", "build hvdrun 1 (commit abc)\n"), host("b", "build hvdrun 1 (commit def-dirty)\n")}) ==
        "- b: has hvdrun 1 (commit def-dirty), others have hvdrun 1 (commit abc)\n");
  CHECK(problems({host("a", "interpreter /usr/bin/python3.11\n"), host("b", "interpreter /opt/my python\n")}) ==
        "- b: its Python is /opt/my python, on others it is /usr/bin/python3.11\n");
  CHECK(problems({host("a"), host("b", "tcp bbr\n")}) ==
        "- b: its TCP congestion control is bbr, on others it is cubic\n");
  CHECK(problems({host("a", "kernel 6.1\n"), host("b", "kernel\n"), host("c")}).empty());  // no answer: no difference
}

TEST_CASE("doctor: pip gets the names of packages, not of modules") {
  CHECK(find_problems({host("a", "absent cv2 rich sklearn\n")}, questions()).at(0).hint ==
        "there: /usr/bin/python3 -m pip install opencv-python rich scikit-learn");
}

TEST_CASE("doctor: packages that differ") {
  const std::vector<Answers> all{host("a", "packages numpy==1.26.4 rich==13 torch==2.5.1+cpu\n"),
                                 host("b", "packages numpy==1.24.1 torch==2.5.1+cpu yaml==6\n"), host("c")};
  CHECK(problems(all) ==
        "- b: 3 packages differ: numpy 1.24.1 (others 1.26.4), rich missing (others 13), yaml 6 (others lack it)\n");
  CHECK(find_problems(all, questions()).at(0).hint == "there: /usr/bin/python3 -m pip install numpy==1.26.4 rich==13");
  const std::vector<Answers> outvoted{host("a", "packages numpy==1.24.1\n"), host("b", "packages numpy==2.0\n"),
                                      host("c", "packages numpy==2.0\n")};
  CHECK(problems(outvoted) == "- a: 1 package differs: numpy 1.24.1 (others 2.0)\n");
  const std::vector<Answers> extra{host("a", "packages torch==2\n"), host("b", "packages torch==2 rich==13 x\n")};
  CHECK(find_problems(extra, questions()).at(0).hint == "there: /usr/bin/python3 -m pip uninstall rich");
  std::string many = "packages";
  for (int i = 10; i < 30; ++i) many += " p" + std::to_string(i) + "==1";
  const std::vector<Answers> lacking{host("a", many + "\n"), host("b", "packages p10==1\n")};
  const std::string told = problems(lacking);
  CHECK(told.starts_with("- b: 19 packages differ: p11 missing (others 1), "));
  CHECK(told.ends_with("p18 missing (others 1), and 11 more (--json)\n"));
  const auto json = nlohmann::json::parse(doctor_json(lacking, {}, {}));
  CHECK(!json["hosts"][0].contains("packages_that_differ"));
  CHECK(json["hosts"][1]["packages_that_differ"].size() == 19);
  CHECK(json["hosts"][1]["packages_that_differ"][0] ==
        nlohmann::json::parse(R"({"name": "p11", "version": null, "others": "1"})"));
}

TEST_CASE("doctor: hosts with the same problem share its lines") {
  CHECK(
      problem_lines({{"b", "is old", "update it"}, {"c", "is late", "wait", false}, {"d\n", "is old", "update it"}}) ==
      "problem b, d\\n: is old\n        update it\nnote    c: is late\n        wait\n");
}

TEST_CASE("doctor: as JSON") {
  Answers gone;
  gone.host = "b", gone.unreachable = "b does not answer", gone.hint = "is it on?";
  const std::vector<Answers> all{host("a", "gpus 2\nlinks NV18:1\nnccl 2.30.7\ndriver 580.65.06\naware no\n"), gone};
  const auto found = nlohmann::json::parse(doctor_json(all, find_problems(all, questions()), {"10.0.0.1"}));
  CHECK(found["ready"] == false);
  CHECK(found["reach_us"] == std::vector<std::string>{"10.0.0.1"});
  CHECK(found["problems"] == nlohmann::json::parse(R"([{"host": "b", "fatal": true, "what": "b does not answer",
                                                       "hint": "is it on?"}])"));
  CHECK(found["hosts"] == nlohmann::json::parse(R"([
    {"host": "a", "reached": true, "local": true, "clock_skew_seconds": 0.0, "hvdrank": "0.1.0", "open_mpi": "4.1.4",
     "python": "3.11.2", "hvd": "0.1.0", "tcp_congestion_control": "cubic", "driver": "580.65.06", "nccl": "2.30.7", "gpus": 2,
     "pairs_of_gpus": {"NV18": 1}, "mpi_takes_device_memory": false, "shm_bytes": 8589934592, "open_files": 65536},
    {"host": "b", "reached": false}])"));
  const std::vector<Answers> fine{host("a")};
  CHECK(nlohmann::json::parse(doctor_json(fine, find_problems(fine, questions()), {}))["ready"] == true);
}

TEST_CASE("doctor: how GPUs reach each other, and which NCCL there is") {
  CHECK(gpu_lines({host("a", "gpus 0\ndriver 1.2\n"), host("b", "links\n")}).empty());
  const std::vector<Answers> all{host("a", "links NV18:28\nnccl 2.30.7\ndriver 580.65.06\n"),
                                 host("b", "links NV18:28\nnccl 2.30.7\ndriver 580.65.06\n"),
                                 host("c", "links PIX:1 SYS:2 :x :-1\nnccl 2.27.3\ndriver 580.65.06\naware no\n"),
                                 host("d", "gpus 0\nnccl 2.27.3\ndriver 580.65.06\n")};
  CHECK(gpu_lines(all) ==
        "GPUs of a, b: NVIDIA driver 580.65.06, NCCL 2.30.7; 28 pairs by NVLink, 18 links\n"
        "GPUs of c: NVIDIA driver 580.65.06, NCCL 2.27.3; MPI takes no device memory; 2 pairs by the link between NUMA "
        "nodes; 1 pair by one PCIe switch\n");
  CHECK(gpu_lines({host("a", "aware yes\n")}) == "GPUs of a: MPI takes device memory\n");
  CHECK(problems({all[0], all[1], all[2]}) == "- c: has NCCL 2.27.3, others have 2.30.7\n");
}

namespace {

/// Returns a shell's answer to @p question. In its folder the program @p name prints @p text, and its arguments on
/// stderr.
Answers asked_of(const std::string& name, const std::string& text, const std::string& question) {
  const std::string script = "d=$(mktemp -d) && trap 'rm -r $d' EXIT && printf '#!/bin/sh\\necho \"$1\" >&2; cat " +
                             std::string("<<E\\n%sE\\n' ") + shell_quote(text) + " >$d/" + name + "; chmod +x $d/" +
                             name + "; cd $d\n" + question + "echo end\n";
  std::string answer;
  FILE* pipe = popen(("sh -c " + shell_quote(script)).c_str(), "r");
  REQUIRE(pipe);
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) answer += static_cast<char>(c);
  CHECK(pclose(pipe) == 0);
  Answers a;
  CHECK(read_answers(answer, a));
  return a;
}

}  // namespace

TEST_CASE("doctor: hvdrank is asked about GPUs") {
  const Answers a =
      asked_of("hvdrank", "hvd machine\ncore 0 0\nway a b NV6\nway a c SYS\nway b c SYS\ndriver 580.65.06\n",
               gpu_question("./hvdrank"));
  CHECK(value(a, "driver") == "580.65.06");
  CHECK((value(a, "links") == "NV6:1 SYS:2" || value(a, "links") == "SYS:2 NV6:1"));
}

TEST_CASE("doctor: Open MPI is asked whether it takes device memory") {
  auto aware = [](const std::string& text) {  // a program beside mpirun prints this, under any name
    const Answers a =
        asked_of("ompi_info", text, "touch mpi\\ run; chmod +x mpi\\ run\n" + aware_question("./mpi run"));
    return value(a, "aware");
  };
  const std::string built = "mca:opal:base:param:opal_built_with_cuda_support:",
                    on = "mca:opal:base:param:opal_cuda_support:";
  CHECK(aware(built + "value:true\n" + built + "source:default\n" + on + "value:true\n") == "yes");
  CHECK(aware(built + "value:true\n" + on + "value:false\n") == "no");  // conda's
  CHECK(aware(built + "value:true\n") == "yes");                        // 5
  CHECK(aware(built + "value:false\n" + on + "value:false\n") == "no");
  CHECK(aware("no such thing\n").empty());
}

TEST_CASE("doctor: what is asked, and what came back cut off") {
  const std::string script = checkup_script(questions());
  CHECK(script.find("cd '/work dir' ") == 0);
  CHECK(script.ends_with("END_OF_PYTHON\necho end\n"));
  Questions elsewhere = questions();
  elsewhere.script_folder = "my model's";
  CHECK(checkup_script(elsewhere).find(" 'my model'\\''s' 2>/dev/null <<'END_OF_PYTHON'\n") != std::string::npos);
  Answers a;
  CHECK_FALSE(read_answers("cwd yes\nclock 5", a));
}

TEST_CASE("doctor: imports of a script") {
  CHECK(join(imports_of("import os, torch.nn as nn\nfrom a.b import c\nfrom . import x\n  import inside\nimport "
                        "os\n#import no\n"),
             " ") == "os torch a");
}
