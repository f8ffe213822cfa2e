/// @file gather.h — everybody's bytes to everybody, on all nodes, lengths known.
///
/// A rank sends its data to one rank of every other node; that one takes it in
/// where it belongs in its own result, and pours it into its node's ring.
#pragma once
#include <memory>
#include <vector>

#include "ops/hierarchical/links.h"
#include "ops/shm/gather.h"

namespace hvd::ops {

class CrossGather final : public Stage {
 public:
  /// @param bytes  [size] length of each rank's data
  /// @param out    [size] where each rank's data goes
  CrossGather(Rings& rings, const Nodes& nodes, transport::Transport& transport, const void* in,
              std::vector<std::size_t> bytes, std::vector<unsigned char*> out)
      : rings_(rings), nodes_(nodes), in_(in), bytes_(std::move(bytes)), out_(std::move(out)), messages_(transport) {
    sources_.resize(static_cast<std::size_t>(rings.ranks));
    for (int l = 0; l < rings.ranks; ++l) sources_[static_cast<std::size_t>(l)].push_back(nodes.rank(nodes.node, l));
    const int me = nodes.rank(nodes.node, nodes.local);
    for (int n = 0; n < nodes.count(); ++n) {
      if (n == nodes.node) continue;
      for (int l = 0; l < nodes.local_size(n); ++l) take_in(nodes.rank(n, l));
      messages_.send(nodes.rank(n, nodes.pourer(me, n)), static_cast<const unsigned char*>(in), length(me));
    }
    for (const auto& s : sources_) rounds_ = std::max(rounds_, s.size());
  }

  bool step() override {
    bool moved = false;
    if (!exchanged_) moved = exchanged_ = messages_.done();
    if (round_ == rounds_) return moved;
    if (!local_) {
      if (round_ > 0 && !exchanged_) return moved;
      begin_round();
    }
    moved |= local_->step();
    if (!local_->done()) return moved;
    local_.reset();
    ++round_;
    return true;
  }
  bool done() const override { return round_ == rounds_ && exchanged_; }

 private:
  std::size_t length(int rank) const { return bytes_[static_cast<std::size_t>(rank)]; }
  unsigned char* place(int rank) const { return out_[static_cast<std::size_t>(rank)]; }

  void take_in(int rank) {
    const int pourer = nodes_.pourer(rank, nodes_.node);
    sources_[static_cast<std::size_t>(pourer)].push_back(rank);
    if (pourer == nodes_.local) messages_.receive(rank, place(rank), length(rank));
  }
  /// Each local rank pours its next source: first its own data, then what it has taken in.
  void begin_round() {
    std::vector<std::size_t> bytes;
    std::vector<unsigned char*> out;
    const void* mine = in_;
    for (std::size_t l = 0; l < sources_.size(); ++l) {
      const bool any = round_ < sources_[l].size();
      bytes.push_back(any ? length(sources_[l][round_]) : 0);
      out.push_back(any ? place(sources_[l][round_]) : nullptr);
      if (static_cast<int>(l) == nodes_.local && round_ > 0) mine = out.back();
    }
    local_ = std::make_unique<ShmGather>(rings_, mine, std::move(bytes), std::move(out));
  }

  Rings& rings_;
  const Nodes& nodes_;
  const void* in_;
  std::vector<std::size_t> bytes_;
  std::vector<unsigned char*> out_;
  std::vector<std::vector<int>> sources_;  ///< [local ranks]: whose data each pours
  std::size_t round_ = 0, rounds_ = 0;
  bool exchanged_ = false;
  Messages messages_;
  std::unique_ptr<ShmGather> local_;
};

}  // namespace hvd::ops
