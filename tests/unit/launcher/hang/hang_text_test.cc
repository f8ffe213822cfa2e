#include "launcher/hang/hang_text.h"

#include <doctest/doctest.h>

#include "../errors.h"
#include "base/text.h"
#include "launcher/hang/rank_place.h"
#include "launcher/hosts/parse_hosts.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

const std::string python =
    "Thread 0x00007f01 (most recent call first):\n"
    "  File \"/usr/lib/python3.11/threading.py\", line 324 in wait\n"
    "\n"
    "Current thread 0x00007f00 (most recent call first):\n"
    "  File \"/opt/venv/lib/python3.11/site-packages/torch/nn/functional.py\", line 5 in relu\n"
    "  File \"/home/u/my loss.py\", line 88 in forward\n"
    "  File \"/home/u/train.py\", line 3 in <module>\n";

JobMap map() { return map_ranks(parse_hosts("a:2,b:2"), {false, false}, 4); }

std::string told(const Incident& incident, double seconds, const Pictures& pictures,
                 const std::vector<int>& ended = {}) {
  return join(hang_lines(incident, seconds, map(), pictures, ended), "\n");
}

wire::StackPicture seen(const std::string& state, const std::string& text = "") { return {state, text, ""}; }

constexpr auto operation = IncidentKind::operation;

}  // namespace

TEST_CASE("hang: the user's own line, not a library's") {
  CHECK(user_line(python) == "my loss.py:88 (forward)");
  CHECK(user_line("Current thread 0x1 (most recent call first):\n  File \"/x/t.py\", line 3 in <module>\n") ==
        "t.py:3");
  CHECK(user_line("Current thread 0x1 (most recent call first):\n  File \"/usr/lib/python3.11/a.py\", line 3 in f\n") ==
        "a.py:3 (f)");
  CHECK(user_line("Thread 0x1 (most recent call first):\n  File \"/x/t.py\", line 3 in f\n").empty());
  CHECK(user_line("").empty());
  CHECK(user_line("Current thread\n  File \"x\n  File \"x\", line 3\n").empty());
}

TEST_CASE("hang: what is known to take long") {
  const auto in = [](const std::string& frame) {
    return long_work("Current thread 0x1 (most recent call first):\n" + frame +
                         "\n  File \"/x/t.py\", line 3 in f\n  File \"<frozen importlib._bootstrap>\", line 1 in g\n",
                     "S");
  };
  const std::string torch = "  File \"/v/lib/python3.11/site-packages/torch/";
  CHECK(in(torch + "utils/data/dataloader.py\", line 3 in _try_get_data") == "waiting for a DataLoader worker");
  CHECK(in(torch + "_inductor/codecache.py\", line 3 in x") == "compiling (torch.compile)");
  CHECK(in("  File \"/v/lib/python3.11/site-packages/jax/_src/compiler.py\", line 3 in f") == "compiling (jax.jit)");
  CHECK(in("  File \"/v/lib/python3.11/site-packages/tensorflow/python/framework/func_graph.py\", line 3 in "
           "func_graph_from_py_func") == "compiling (tf.function)");
  CHECK(in("  File \"/usr/lib/python3.11/threading.py\", line 1583 in _shutdown") ==
        "waiting for its threads, since its script has ended");
  CHECK(!ends_by_itself("waiting for its threads, since its script has ended", "S"));
  CHECK(in(torch + "serialization.py\", line 3 in save") == "saving a checkpoint");
  const std::string imports = "  File \"<frozen importlib._bootstrap>\", line 241 in _call";
  CHECK(in(imports) == "importing");
  CHECK(in(torch + "nn/x.py\", line 3 in save").empty());
  const std::string checkpoint = torch + "distributed/checkpoint/state_dict_saver.py\", line 3 in save";
  CHECK(in(checkpoint) == "in a checkpoint");
  CHECK(in(torch + "distributed/distributed_c10d.py\", line 3 in all_gather\n" + checkpoint).empty());
  CHECK(in("  File \"/v/lib/python3.11/site-packages/hvd/torch/_c10d/group_work.py\", line 3 in wait\n" + checkpoint)
            .empty());
  CHECK(in(torch + "distributed/distributed_c10d.py\", line 3 in <module>\n" + imports) == "importing");
  CHECK(ends_by_itself("importing", "S"));
  CHECK(!ends_by_itself("waiting for a DataLoader worker", "S"));
  CHECK(!ends_by_itself("", "R"));
  const std::string evaluates =
      "Current thread 0x1 (most recent call first):\n  File \"/x/lib/python3/site-packages/torch/nn/f.py\", line 3 in "
      "relu\n"
      "  File \"/x/t.py\", line 3 in loss\n  File \"/x/t.py\", line 9 in evaluate\n";
  CHECK(long_work(evaluates, "R") == "evaluating");
  CHECK(long_work(evaluates, "S").empty());
  CHECK(ends_by_itself("evaluating", "R"));
  const Incident i{operation, {1}, 0, 1, 0, "a", 1};
  CHECK(all_at_work(i, {{1, seen("R", evaluates)}}));
  CHECK(!all_at_work(i, {{1, seen("S", evaluates)}}));
  CHECK(!all_at_work(i, {}));
  CHECK(told(i, 6, {{1, seen("R", evaluates)}}) ==
        "hvdrun: rank 1 on a is in t.py:3 (loss), evaluating, which ends by itself; 1 rank has waited 6 s for a");
  CHECK(put_off_line(i, 600, map()) ==
        "hvdrun: rank 1 on a does not hang: --stall-check-shutdown-time-seconds waits, 600 s more at most");
}

TEST_CASE("hang: a headline in place of a rank, and details") {
  Incident i{operation, {1}, 0, 2, 0, "it", 1};
  i.headline = "the ranks differ at collective 3";
  i.details = {"more"};
  CHECK(told(i, 6, {{1, seen("S", python)}}) ==
        "hvdrun: the ranks differ at collective 3; 2 ranks have waited 6 s for it\n"
        "        rank 1 on a is in my loss.py:88 (forward)\n        more");
}

TEST_CASE("hang: a DataLoader worker has a line, or without frames a process id, a state and a system call") {
  const std::string loader =
      "Current thread 0x1 (most recent call first):\n"
      "  File \"/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py\", line 9 in _try_get_data\n"
      "  File \"/home/me/train.py\", line 12 in <module>\n";
  const std::string fetch =
      "Current thread 0x1 (most recent call first):\n"
      "  File \"/v/lib/python3.11/site-packages/PIL/Image.py\", line 3 in load\n"
      "  File \"/home/me/data.py\", line 41 in __getitem__\n"
      "  File \"/v/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py\", line 5 in fetch\n"
      "  File \"/home/me/train.py\", line 12 in <module>\n";
  wire::StackPicture picture = seen("S", loader);
  const auto line = [&] { return told({operation, {1}, 0, 1, 0, "x", 1}, 6, {{1, picture}}); };
  const std::string before = "hvdrun: rank 1 on a is in train.py:12, waiting for a DataLoader worker";
  const std::string after = "; 1 rank has waited 6 s for x";
  CHECK(line() == before + after);
  picture.worker = {{77, "S", fetch, "sleeps"}};
  CHECK(line() == before + ", which is in data.py:41 (__getitem__)" + after);
  const Incident i{operation, {1}, 0, 1, 0, "x", 1};
  CHECK(!all_at_work(i, {{1, picture}}));
  picture.worker->state = "R";
  CHECK(line() == before + ", which computes in data.py:41 (__getitem__)" + after);
  CHECK(all_at_work(i, {{1, picture}}));
  picture.worker = {{77, "S", "", "reads from /data/part-3"}};
  CHECK(line() == before + ", which has process id 77 and reads from /data/part-3" + after);
  picture.worker = {{77, "D", "", ""}};
  CHECK(line() == before + ", which has process id 77 and waits for a disk or a device" + after);
}

TEST_CASE("hang: child processes that compute, and the threads that keep a rank whose script has ended") {
  wire::StackPicture picture =
      seen("S", "Current thread 0x1 (most recent call first):\n  File \"/x/t.py\", line 3 in f\n");
  const auto line = [&] { return told({operation, {1}, 0, 1, 0, "x", 1}, 6, {{1, picture}}); };
  const std::string after = "; 1 rank has waited 6 s for x";
  picture.computing = 1;
  CHECK(line() == "hvdrun: rank 1 on a is in t.py:3 (f), while 1 of its child processes computes" + after);
  picture.computing = 2;
  CHECK(line() == "hvdrun: rank 1 on a is in t.py:3 (f), while 2 of its child processes compute" + after);
  picture.state = "R";
  CHECK(line() == "hvdrun: rank 1 on a is in t.py:3 (f)" + after);
  picture = seen("S",
                 "Thread 0x2 (most recent call first):\n  File \"/usr/lib/python3.11/threading.py\", line 1 in wait\n\n"
                 "Thread 0x3 (most recent call first):\n  File \"/usr/lib/python3.11/queue.py\", line 1 in put\n"
                 "  File \"/x/data.py\", line 18 in fill\n\n"
                 "Current thread 0x1 (most recent call first):\n"
                 "  File \"/usr/lib/python3.11/threading.py\", line 1583 in _shutdown\n");
  CHECK(line() ==
        "hvdrun: rank 1 on a is in threading.py:1583 (_shutdown), waiting for its threads, since its script has ended, "
        "and a thread is in data.py:18 (fill)" +
            after);
}

TEST_CASE("hang: who is missing, where, and who waits") {
  CHECK(told({operation, {3}, 0, 3, 0, "grad/layer3", 1}, 5.2, {{3, seen("R", python)}}) ==
        "hvdrun: rank 3 on b is in my loss.py:88 (forward); 3 ranks have waited 5 s for grad/layer3");
  Incident nameless{operation, {3}, 0, 3, 0, "c10d/world #28", 1};
  nameless.what = "allreduce of [16] float32";
  CHECK(told(nameless, 5.2, {{3, seen("R", python)}}) ==
        "hvdrun: rank 3 on b is in my loss.py:88 (forward); 3 ranks have waited 5 s for c10d/world #28 (allreduce of "
        "[16] float32)");
  CHECK(told({operation, {2, 3}, 0, 2, 0, "x", 300}, 7, {{2, seen("T")}, {3, seen("T")}}) ==
        "hvdrun: ranks 2-3 on b are stopped (kill -CONT lets it go on); 2 ranks have waited 7 s for x and 299 more "
        "tensors");
  CHECK(told({operation, {0, 1, 3}, 0, 1, 0, "x", 1}, 7, {{0, seen("S")}, {1, seen("")}}, {3}) ==
        "hvdrun: rank 0 on a waits; 1 rank has waited 7 s for x\n        ranks 1,3 have ended");
  CHECK(told({operation, {1}, 2, 1, 0, "x", 1}, 7, {}) ==
        "hvdrun: rank 1 on a does not answer; 1 rank has waited 7 s for x\n        and 2 more ranks");
}

TEST_CASE("hang: torch's function, and the line of a rank that waits over backend hvd") {
  const std::string wait =
      "Current thread 0x1 (most recent call first):\n  File \"/w/hvd/torch/_c10d/group_work.py\", line 9 in wait\n";
  const std::string torch = "  File \"/v/lib/python3.11/site-packages/torch/distributed/";
  const std::string gather =
      torch + "distributed_c10d.py\", line 4 in all_gather\n" + torch + "c10d_logger.py\", line 83 in wrapper\n";
  const std::string user = "  File \"/x/t.py\", line 3 in step\n" + gather;  // frames beyond the user's do not count
  Incident i{operation, {3}, 0, 1, 0, "c10d/world #2", 1};
  const auto text = [&](const std::string& frames) {
    return told(i, 5, {{0, seen("S", frames)}, {3, seen("R", python)}});
  };
  const std::string missing =
      "hvdrun: rank 3 on b is in my loss.py:88 (forward); 1 rank has waited 5 s for c10d/world #2";
  CHECK(text(wait + gather + user) == missing);
  i.waiter = 0;
  CHECK(text(wait + gather + user) == missing + "\n        rank 0 is in all_gather at t.py:3 (step)");
  CHECK(text(wait + user) == missing + "\n        rank 0 is at t.py:3 (step)");
  CHECK(text("") == missing);
}

TEST_CASE("hang: whose GPU is late") {
  Incident i{IncidentKind::late_gpu, {3}, 0, 3, 0, "grad/1", 1};
  i.gpu_late = {{3, "grad/3"}};
  CHECK(
      told(i, 5.2, {{3, seen("S", python)}}) ==
      "hvdrun: rank 3 on b: its GPU is still computing grad/3, its main thread is in my loss.py:88 (forward); 3 ranks "
      "have waited 5 s for grad/1");
  CHECK(given_up(i, 63, map()) == "3 ranks have waited 63 s for grad/1, which the GPU of rank 3 on b has not computed");
  CHECK(hang_data(i, map(), {}).gpu_is_late);
  i.missing = {2, 3};
  i.gpu_late = {{2, "grad/3"}, {3, "grad/3"}};
  CHECK(told(i, 5.2, {{2, seen("S", python)}, {3, seen("S", python)}}) ==
        "hvdrun: ranks 2-3 on b: their GPUs are still computing grad/3, their main threads are in my loss.py:88 "
        "(forward); 3 ranks have waited 5 s for grad/1");
  i = {operation, {3}, 0, 3, 0, "x", 1};
  i.gpu_late = {{3, "grad/3"}};
  CHECK(told(i, 5.2, {{3, seen("S")}}) ==
        "hvdrun: rank 3 on b: its GPU is still computing grad/3, its main thread waits; 3 ranks have waited 5 s for x");
}

TEST_CASE("hang: from the beginning to the end") {
  CHECK(told({IncidentKind::init, {3}, 0, 3, 0, "", 0}, 30, {{3, seen("R", python)}}) ==
        "hvdrun: rank 3 on b is in my loss.py:88 (forward); 3 ranks have waited 30 s in hvd.init()");
  CHECK(told({IncidentKind::end, {3}, 0, 0, 0, "", 0}, 60, {{3, seen("S")}}) ==
        "hvdrun: rank 3 on b waits; the others are through since 60 s");
  CHECK(told({IncidentKind::end, {3}, 0, 2, 0, "", 0}, 60, {{3, seen("S")}}) ==
        "hvdrun: rank 3 on b waits; 2 ranks have waited 60 s at the end of the job");
  CHECK(told({IncidentKind::leaving, {3}, 0, 0, 0, "", 0}, 60, {{3, seen("S")}}) ==
        "hvdrun: rank 3 on b waits; its script has ended 60 s ago");
  CHECK(told({IncidentKind::stopped, {3}, 0, 0, 0, "", 0}, 7, {{3, seen("T")}}) ==
        "hvdrun: rank 3 on b is stopped (kill -CONT lets it go on); it has not run for 7 s");
  CHECK(closed_line({operation, {0, 3}, 0, 2, 0, "x", 1}, 12, map()) == "hvdrun: ranks 0,3 go on after 12 s");
  CHECK(closed_line({IncidentKind::stuck, {}, 0, 4, 0, "x", 1}, 12, map()) == "hvdrun: the job goes on after 12 s");
  CHECK(given_up({IncidentKind::init, {3}, 0, 3, 0, "", 0}, 93, map()) ==
        "3 ranks have waited 93 s in hvd.init(), but not rank 3 on b");
}

TEST_CASE("hang: a job in which no rank computes") {
  const Incident idle{IncidentKind::idle, {0, 1, 2, 3}, 0, 0, 0, "", 0};
  const Pictures pictures{{0, seen("S", python)}, {1, seen("S", python)}, {2, seen("S", python)}, {3, seen("S")}};
  CHECK(told(idle, 60, pictures) ==
        "hvdrun: no rank has computed or printed for 60 s:\n"
        "        ranks 0-2 are in my loss.py:88 (forward)\n"
        "        rank 3 on b waits");
  CHECK(is_worth_telling(idle, pictures));
  CHECK_FALSE(is_worth_telling(idle, {{3, seen("S")}}));
  const OpenHang data = hang_data(idle, map(), pictures);
  CHECK(data.rank == -1);
  CHECK(data.operation == "no rank computes");
}

TEST_CASE("hang: hosts that do not hear each other") {
  Pictures pictures{{0, seen("S")}, {2, seen("S")}};
  pictures[0].addresses = {"10.0.0.1"}, pictures[2].addresses = {"10.0.0.2", "fe80::1"};
  const Incident stuck{IncidentKind::stuck, {}, 0, 4, 0, "x", 1};
  CHECK(
      told(stuck, 20, pictures) ==
      "hvdrun: 4 ranks have waited 20 s for x, and all have submitted it\n        hvdrun stacks shows where they are");
  pictures[2].unanswered = {"10.0.0.1"};
  CHECK(told(stuck, 20, pictures) ==
        "hvdrun: 4 ranks have waited 20 s for x, and all have submitted it\n"
        "        b gets no answer from a: the network between them is down");
  pictures[2].unanswered = {"10.0.0.9"};
  CHECK(broken_link(map(), pictures) == "b gets no answer from 10.0.0.9");
}
