#include "launcher/supervise/serve/streams.h"

#include <algorithm>

namespace hvd::launcher {

namespace {

constexpr std::size_t most_pending_bytes = 4u << 20;

}  // namespace

Streams::Streams(const Settings& settings, Printer& printer) : printer_(printer) {
  if (settings.has("results")) results_ = std::make_unique<Results>(settings.text("results"));
}

void Streams::begin(const Settings& settings, Session& session) {
  if (results_) results_->begin(session.ranks().size());
  const auto rank = settings.integer("stdin");
  if (!rank) return;
  input_ = std::make_unique<Input>(0, *rank, [this, &session, r = *rank](std::string piece) {
    if (std::ranges::count(piece, '\n') > 0) printer_.line_was_typed();
    session.tell(r, wire::Type::input, std::move(piece));
  });
}

void Streams::rank_started(int rank) {
  if (input_ && rank == input_->rank()) input_->begin();
}

void Streams::input_taken(int rank, std::uint64_t bytes) {
  if (input_ && rank == input_->rank()) input_->taken(bytes);
}

void Streams::result_came(int rank, std::string_view piece) {
  if (results_ && !piece.empty()) results_->put(rank, piece);
}

void Streams::add_fds(std::vector<pollfd>& fds) const {
  if (input_ && input_->fd() >= 0) fds.push_back({input_->fd(), POLLIN, 0});
  for (const Outlet* o : {&printer_.stdout_outlet(), &printer_.stderr_outlet()})
    if (o->pending_bytes()) fds.push_back({o->fd(), POLLOUT, 0});
  if (pending_results() > 0) fds.push_back({results_->fd(), POLLOUT, 0});
}

void Streams::turn() {
  if (input_) input_->turn();
  printer_.turn();
}

void Streams::flush() {
  printer_.stdout_outlet().flush_ready();
  printer_.stderr_outlet().flush_ready();
  if (results_) results_->flush_ready();
}

bool Streams::is_full() const { return std::max(printer_.pending_bytes(), pending_results()) >= most_pending_bytes; }

void Streams::finish_results(const std::optional<wire::DeathRecord>& first_cause, const std::string& verdict,
                             int exit_code) {
  if (results_) results_->finish(first_cause, verdict, exit_code);
}

}  // namespace hvd::launcher
