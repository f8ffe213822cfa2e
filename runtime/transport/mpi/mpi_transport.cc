/// @file mpi_transport.cc — libhvd_mpi.so: the transport over MPI.
///
/// The transport uses one duplicate of MPI_COMM_WORLD, which lasts until the process ends.  Each world and each process
/// set has a table of ranks and its own range of tags.  So worlds can have fewer ranks, and a new world can follow a
/// shutdown.  After the first hvd_mpi_open(), all calls are point-to-point.  So a rank that has ended cannot block
/// other ranks.
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/network/listen_filter.h"
#include "transport/mpi/check.h"
#include "transport/mpi/strangers.h"
#include "transport/transport.h"

namespace hvd::transport {
namespace {

/// State that lasts until the process ends.
struct Life {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 1, provided = MPI_THREAD_SINGLE;
  bool ours = false;                  ///< this library called MPI_Init_thread
  int epochs = 0;                     ///< number of opened worlds; equal on all ranks
  int streams = 32, tag_epochs = 64;  ///< division of the tags; MPI guarantees tags up to 32767
  std::vector<int> host;              ///< [size] lowest rank that shares memory with the rank
};
Life life;

/// The first data that ranks exchange.  The layout must be the same in all versions.
struct Introduction {
  std::int32_t host;  ///< lowest rank that shares memory with the sender
  char version[28];   ///< version of this library, cut or padded with zeros
};
static_assert(sizeof HVD_VERSION <= sizeof Introduction::version);
std::string text(const Introduction& one) { return {one.version, ::strnlen(one.version, sizeof one.version)}; }

void start_mpi(bool threads) {
  int done = 0, finalized = 0;
  check(MPI_Initialized(&done), "MPI_Initialized");
  check(MPI_Finalized(&finalized), "MPI_Finalized");
  if (finalized) throw Error(Code::unavailable, "MPI", "was finalized in this process and cannot be started again");
  if (done) {
    check(MPI_Query_thread(&life.provided), "MPI_Query_thread");
    if (life.provided < MPI_THREAD_SERIALIZED)
      throw Error(Code::unavailable, "MPI", "was initialised without thread support",
                  "ask for MPI_THREAD_MULTIPLE where it is initialised");
    return;
  }
  const int wanted = threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED;
  check(MPI_Init_thread(nullptr, nullptr, wanted, &life.provided), "MPI_Init_thread");
  life.ours = true;
}

void begin(bool threads) {
  if (life.comm != MPI_COMM_NULL) return;
  const std::vector<std::uint64_t> listeners_before = open_listeners();
  start_mpi(threads);
  MPI_Comm comm = MPI_COMM_NULL, node = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(comm, &life.rank), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &life.size), "MPI_Comm_size");
  check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, life.rank, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  int lowest = life.rank;
  check(MPI_Bcast(&lowest, 1, MPI_INT, 0, node), "MPI_Bcast");
  check(MPI_Comm_free(&node), "MPI_Comm_free");
  void* most = nullptr;
  int known = 0;
  check(MPI_Comm_get_attr(comm, MPI_TAG_UB, &most, &known), "MPI_Comm_get_attr");
  if (known && *static_cast<int*>(most) >= (1 << 23) - 1) life.streams = 512, life.tag_epochs = 1024;
  std::vector<Introduction> all(static_cast<std::size_t>(life.size));
  const Introduction own{lowest, HVD_VERSION};
  check(MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, comm), "MPI_Allgather");
  for (const Introduction& one : all) {
    if (std::strncmp(one.version, all[0].version, sizeof one.version) != 0)
      throw Error(Code::unavailable, "libhvd",
                  "rank " + std::to_string(&one - all.data()) + " has version " + text(one) + ", rank 0 has " +
                      text(all[0]) + ": install the same wheel on all hosts");
    life.host.push_back(one.host);
  }
  if (std::adjacent_find(life.host.begin(), life.host.end(), std::not_equal_to<>()) != life.host.end())
    keep_strangers_out(comm, life.ours ? &listeners_before : nullptr);
  life.comm = comm;
}

class MpiTransport final : public Transport {
 public:
  MpiTransport(std::vector<int> ranks, int epoch, int stream)
      : world_(std::move(ranks)), epoch_(epoch), stream_(stream) {
    for (std::size_t i = 0; i < world_.size(); ++i) {
      if (world_[i] < 0 || world_[i] >= life.size)
        throw Error(Code::usage, "init", "there is no rank " + std::to_string(world_[i]) + " in this launch");
      if (world_[i] == life.rank) rank_ = static_cast<int>(i);
      host_.push_back(life.host[static_cast<std::size_t>(world_[i])]);
      index_[world_[i]] = static_cast<int>(i);
    }
    if (rank_ < 0)
      throw Error(Code::usage, "init",
                  "rank " + std::to_string(life.rank) + " of the launch is not among the given ranks");
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_.size()); }
  const std::vector<int>& host_of() const override { return host_; }
  bool threads_multiple() const override { return life.provided == MPI_THREAD_MULTIPLE; }

  Ticket isend(int to, Tag tag, const void* data, std::size_t bytes) override {
    MPI_Request r;
    check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, world(to), wire_tag(tag), life.comm, &r), "MPI_Isend");
    return keep(r);
  }
  Ticket irecv(int from, Tag tag, void* data, std::size_t bytes) override {
    MPI_Request r;
    check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, world(from), wire_tag(tag), life.comm, &r), "MPI_Irecv");
    return keep(r);
  }
  bool test(Ticket ticket) override {
    if (ticket == 0) return true;
    MPI_Request& r = requests_[ticket - 1];
    if (r == MPI_REQUEST_NULL) return true;
    int done = 0;
    check(MPI_Test(&r, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done) free_.push_back(ticket);
    return done != 0;
  }
  void abandon(Ticket ticket) override {
    if (ticket == 0 || requests_[ticket - 1] == MPI_REQUEST_NULL) return;
    MPI_Cancel(&requests_[ticket - 1]);
    MPI_Request_free(&requests_[ticket - 1]);
  }
  std::optional<Message> poll(Tag tag) override {
    int there = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, wire_tag(tag), life.comm, &there, &status), "MPI_Iprobe");
    if (!there) return std::nullopt;
    int bytes = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    Message m{index_[status.MPI_SOURCE], std::string(static_cast<std::size_t>(bytes), 0)};
    check(MPI_Recv(m.body.data(), bytes, MPI_BYTE, status.MPI_SOURCE, wire_tag(tag), life.comm, MPI_STATUS_IGNORE),
          "MPI_Recv");
    return m;
  }

  std::unique_ptr<Transport> split(const std::vector<int>& members, int stream) override {
    std::vector<int> ranks;
    for (int m : members) ranks.push_back(world(m));
    return std::make_unique<MpiTransport>(std::move(ranks), epoch_, stream);
  }
  int streams() const override { return life.streams; }

 private:
  static constexpr int tags_a_stream = 16;
  int world(int r) const { return world_[static_cast<std::size_t>(r)]; }
  /// Tags differ between epochs and between process sets.  So a message of an earlier world is not received here.
  int wire_tag(Tag tag) const {
    return ((epoch_ % life.tag_epochs) * life.streams + stream_) * tags_a_stream + static_cast<int>(tag);
  }
  Ticket keep(MPI_Request r) {
    if (free_.empty()) {
      requests_.push_back(r);
      return requests_.size();
    }
    const Ticket t = free_.back();
    free_.pop_back();
    requests_[t - 1] = r;
    return t;
  }
  std::vector<int> world_;  ///< [size] rank of the launch
  const int epoch_, stream_;
  int rank_ = -1;
  std::vector<int> host_;
  std::map<int, int> index_;
  std::vector<MPI_Request> requests_;
  std::vector<Ticket> free_;
};

}  // namespace
}  // namespace hvd::transport

#define HVD_PLUGIN extern "C" __attribute__((visibility("default")))

HVD_PLUGIN hvd::transport::Transport* hvd_mpi_open(const int* ranks, int count, int threads, char* error,
                                                   std::size_t error_bytes) {
  using namespace hvd::transport;
  try {
    begin(threads != 0);
    std::vector<int> all;
    for (int r = 0; r < (ranks ? count : life.size); ++r) all.push_back(ranks ? ranks[r] : r);
    return new MpiTransport(std::move(all), ++life.epochs, 0);
  } catch (const std::exception& e) {
    std::snprintf(error, error_bytes, "%s", e.what());
    return nullptr;
  }
}

HVD_PLUGIN void hvd_mpi_finalize() {
  using hvd::transport::life;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (life.ours && !finalized) MPI_Finalize();
}
