/// @file cluster.h — a simulated cluster that negotiates with the runtime's own code.
///
/// Every node has its leader: a Gather over real boards, a TreeNode, and on node 0 the Coordinator. Their messages and
/// commands are the bytes of a real job. Only the network, the clock and the members are simulated. Members submit in a
/// given order at given times.
#pragma once
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "memory/node.h"
#include "negotiate/coordinator.h"
#include "negotiate/gather.h"
#include "negotiate/tree.h"
#include "simulate/network.h"

namespace hvd::simulate {

struct Shape {
  int ranks = 64, per_node = 6, arity = 4;
  int tensors = 1000;
  double bytes = 100e6;  ///< of all tensors
  int nodes() const { return (ranks + per_node - 1) / per_node; }
};

/// The costs of a step.
struct Cost {
  int most_messages = 0;       ///< sent and received, at the busiest node
  std::size_t most_bytes = 0;  ///< of these, at the node with most
  long messages = 0;           ///< sent by all
  int batches = 0;
  Time last_submitted = 0, last_published = 0, last_finished = 0;
};

class Cluster {
 public:
  /// When rank r submits its i-th tensor; ascending in i.
  using Schedule = std::function<Time(int rank, int tensor)>;

  Cluster(const Shape& shape, const Network& network);
  /// All ranks submit all tensors once.  The first step goes by records, later ones by bits.
  /// @param carry  time that the data of a batch takes
  Cost step(const Schedule& schedule, const std::function<Time(double bytes)>& carry);

 private:
  using Body = std::shared_ptr<const std::string>;
  struct Event {
    Time at;
    std::uint64_t order;
    int node, from;  ///< from: -1 wake-up, else the sender
    Body body;
    bool operator>(const Event& e) const { return at != e.at ? at > e.at : order > e.order; }
  };
  struct Leader {
    std::unique_ptr<memory::Node> board;
    std::unique_ptr<negotiate::Gather> gather;
    std::unique_ptr<negotiate::TreeNode> tree;
    Time free_at = 0, sent_at = -1e9;  ///< processor; last message
    Time wakes_at = 0;                 ///< the earliest pending wake-up
    std::vector<int> submitted;        ///< [local ranks] number of tensors submitted in this step
    std::vector<Time> next;            ///< [local ranks] the time of the next tensor
    std::uint64_t arrived = 0;         ///< number of batch commands that have arrived
    int messages = 0;
    std::size_t bytes = 0;
  };
  struct Batch {
    std::uint64_t number;  ///< the number of its command
    double bytes;
    int arrived = 0;
    Time last = 0, ends = 0;
  };

  void wake(int n, Time at);
  void handle(const Event& e);
  void submit(int n, Time now);
  void send(int from, int to, Body body);
  void work(int n, Time now);
  void take_command(int n, negotiate::Command type, std::string_view body, Time now);
  void command(negotiate::Command type, std::string_view body);
  void arrived(std::size_t batch, Time now);
  void finish(Time now);
  int ranks_of(int n) const { return std::min(shape_.per_node, shape_.ranks - n * shape_.per_node); }

  const Shape shape_;
  const Network net_;
  std::vector<Leader> leaders_;
  std::unique_ptr<negotiate::Coordinator> coordinator_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t events_made_ = 0;
  std::vector<negotiate::Record> records_;  ///< [tensors]
  std::vector<std::uint32_t> id_of_;        ///< [tensors]
  std::vector<std::uint32_t> tensor_of_;    ///< [ids] its tensor
  bool known_ = false;                      ///< every tensor has an id
  const Schedule* schedule_ = nullptr;
  const std::function<Time(double)>* carry_ = nullptr;
  std::string down_;
  std::uint64_t published_ = 0;
  std::vector<Batch> batches_;  ///< the batches of this step
  std::uint64_t first_batch_ = 0, batches_made_ = 0;
  std::uint64_t finished_command_ = 0;
  int tensors_done_ = 0;
  Time now_ = 0, begin_ = 0, data_free_ = 0, cost_end_ = 0;
  Cost cost_;
};

}  // namespace hvd::simulate
