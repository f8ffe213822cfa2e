/// @file zmq_library.h — the functions of libzmq, loaded when the first channel over a network is made.
///
/// A job of one host needs none of them.  Loading libzmq takes a millisecond in hvdrun and in every guard, because it
/// depends on twenty libraries (Kerberos, PGM, NORM).
#pragma once
#include <zmq.h>

namespace hvd::wire::zmq {

/// The functions of zmq.h, without the prefix zmq_.
struct ZmqLibrary {
  decltype(&::zmq_bind) bind;
  decltype(&::zmq_close) close;
  decltype(&::zmq_connect) connect;
  decltype(&::zmq_ctx_new) ctx_new;
  decltype(&::zmq_ctx_shutdown) ctx_shutdown;
  decltype(&::zmq_ctx_term) ctx_term;
  decltype(&::zmq_curve_keypair) curve_keypair;
  decltype(&::zmq_curve_public) curve_public;
  decltype(&::zmq_errno) error_number;
  decltype(&::zmq_getsockopt) getsockopt;
  decltype(&::zmq_msg_close) msg_close;
  decltype(&::zmq_msg_data) msg_data;
  decltype(&::zmq_msg_get) msg_get;
  decltype(&::zmq_msg_init) msg_init;
  decltype(&::zmq_msg_init_size) msg_init_size;
  decltype(&::zmq_msg_more) msg_more;
  decltype(&::zmq_msg_recv) msg_recv;
  decltype(&::zmq_msg_send) msg_send;
  decltype(&::zmq_msg_size) msg_size;
  decltype(&::zmq_send) send;
  decltype(&::zmq_setsockopt) setsockopt;
  decltype(&::zmq_socket) socket;
  decltype(&::zmq_socket_monitor) socket_monitor;
  decltype(&::zmq_strerror) strerror;
  decltype(&::zmq_z85_decode) z85_decode;
  decltype(&::zmq_z85_encode) z85_encode;
};

/// Any thread.  Throws Error{unavailable} when there is no libzmq.so.5.
const ZmqLibrary& lib();

}  // namespace hvd::wire::zmq
