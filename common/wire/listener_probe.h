#pragma once

// Does a listener of this process still accept? gRPC 1.51 stops accepting for good after one EMFILE
// (CVE-2023-4785), while everything else goes on, so only a new connection can tell. The probe
// dials one and waits for the server's HTTP/2 SETTINGS frame (RFC 9113 §3.4), which a server sends
// unasked. It keeps descriptors in reserve, one for each end of that connection and one for the
// accept call that finds no further one (Linux takes a descriptor before it looks), and gives them
// up only for the dial, so that probing works when all others are taken.
//
// Thread-compatible.

#include <array>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace octavo::wire {

class ListenerProbe {
 public:
  ListenerProbe();
  ~ListenerProbe();
  ListenerProbe(const ListenerProbe&) = delete;
  ListenerProbe& operator=(const ListenerProbe&) = delete;

  // Dials `address` ("127.0.0.1:7000" or "unix:/path"; a wildcard host is dialled over loopback).
  // ResourceExhausted when there is no descriptor left to dial with, DeadlineExceeded when nothing
  // was heard in time, Unavailable when the connection failed.
  absl::Status Probe(const std::string& address, absl::Duration timeout);

 private:
  void Reserve();
  void Release();

  std::array<int, 3> reserved_ = {-1, -1, -1};
};

}  // namespace octavo::wire
