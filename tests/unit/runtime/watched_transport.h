/// @file watched_transport.h — transports around another one, for tests.
#pragma once
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "transport/transport.h"

namespace hvd::testing {

/// Forwards each call to the transport inside.
class ForwardingTransport : public transport::Transport {
 public:
  explicit ForwardingTransport(std::unique_ptr<transport::Transport> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::vector<int>& host_of() const override { return inner_->host_of(); }
  bool threads_multiple() const override { return inner_->threads_multiple(); }
  transport::Ticket isend(int to, transport::Tag tag, const void* data, std::size_t bytes) override {
    return inner_->isend(to, tag, data, bytes);
  }
  transport::Ticket irecv(int from, transport::Tag tag, void* data, std::size_t bytes) override {
    return inner_->irecv(from, tag, data, bytes);
  }
  bool test(transport::Ticket ticket) override { return inner_->test(ticket); }
  void abandon(transport::Ticket ticket) override { inner_->abandon(ticket); }
  std::optional<transport::Message> poll(transport::Tag tag) override { return inner_->poll(tag); }
  std::unique_ptr<transport::Transport> split(const std::vector<int>& members, int stream) override {
    return inner_->split(members, stream);
  }
  int streams() const override { return inner_->streams(); }
  std::shared_ptr<void> share_in_process(const std::vector<int>& members, std::size_t bytes) override {
    return inner_->share_in_process(members, bytes);
  }

 private:
  std::unique_ptr<transport::Transport> inner_;
};

/// Shows each message to a test before it is sent.
class WatchedTransport final : public ForwardingTransport {
 public:
  /// Sees the messages that this rank sends, on the rank's threads.
  using Watch = std::function<void(transport::Tag, std::string_view)>;
  WatchedTransport(std::unique_ptr<transport::Transport> inner, Watch watch)
      : ForwardingTransport(std::move(inner)), watch_(std::move(watch)) {}
  transport::Ticket isend(int to, transport::Tag tag, const void* data, std::size_t bytes) override {
    watch_(tag, {static_cast<const char*>(data), bytes});
    return ForwardingTransport::isend(to, tag, data, bytes);
  }

 private:
  Watch watch_;
};

}  // namespace hvd::testing
