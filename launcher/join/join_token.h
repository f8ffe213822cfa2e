/// @file join_token.h — the secret that hvdrun --listen and hvdrun join share, and their keys.
///
/// Both ends derive both key pairs from the token.  A holder of the token can join the job, and can pose as it.
#pragma once
#include "launcher/options/settings.h"
#include "wire/channel/channel.h"

namespace hvd::launcher {

struct JoinKeys {
  wire::KeyPair launcher, host;
};

/// Reads the file of --token-file.  The file's group may read the file.  Throws Error{usage} if there is no file, or
/// the token has fewer than 32 characters.  Also if every user may read the file, or others may write it (without
/// --allow-writable).
JoinKeys join_keys(const Settings& settings);

/// Pure.  @param token  without blanks at its ends
JoinKeys join_keys_of(const std::string& token);

}  // namespace hvd::launcher
