/// @file rank_inputs.h — the inputs of a rank's start: manifest, payload, environment, meeting socket.
///
/// The manifest and the payload come from hvdrun; the environment, where there is one, from the host daemon.
#pragma once
#include <optional>
#include <string>

#include "base/file.h"
#include "rank/launch/payload_store.h"
#include "rank/launch/rank_environment.h"
#include "wire/manifest/manifest.h"

namespace hvd::rank {

class RankInputs {
 public:
  /// Takes over the descriptors in @p call.
  explicit RankInputs(const LaunchContext& call);

  /// Later manifests replace earlier ones: hvdrun sends a second one when this host has its copy of the payload.
  /// Throws Error: the manifest is malformed or another rank's, or this host's copy of the payload cannot be read.
  void take_manifest(const std::string& body, int rank);
  /// A piece of the payload; an empty one ends it.
  /// @return once, at the end: the path under which others on this host can read the payload
  std::optional<std::string> take_payload(const std::string& piece);
  /// Readable when read_environment() has something to do; -1: all has come.
  int environment_fd() const { return environment_stream_.get(); }
  /// Reads the host daemon's variables for the rank; the end of the stream ends them.
  void read_environment();

  bool payload_is_ready() const { return payload_is_ready_; }
  /// The rank can start.
  bool are_complete() const { return payload_is_ready_ && !environment_stream_; }

  /// Empty until the first one has come.
  const wire::RankManifest& manifest() const { return manifest_; }
  const Environment& environment() const { return environment_; }
  /// -1: the payload is no pickle.
  int payload_fd() const { return payload_ || !store_ ? payload_.get() : store_->fd(); }
  /// The rank's socket for meetings; the caller gets it once.
  Fd take_meeting_socket() { return std::move(meeting_); }

 private:
  wire::RankManifest manifest_;
  std::optional<PayloadStore> store_;  ///< hvdrun sends the payload through this guard
  Fd payload_;
  bool payload_is_ready_ = false;
  Environment environment_;
  Fd environment_stream_;
  std::string environment_text_;
  Fd meeting_;
};

}  // namespace hvd::rank
