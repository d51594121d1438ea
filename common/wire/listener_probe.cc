#include "common/wire/listener_probe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status.h"

namespace octavo::wire {
namespace {

constexpr char kUnixAddress[] = "unix:";
// The client's half of the greeting: preface and an empty SETTINGS frame.
constexpr char kGreeting[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
constexpr size_t kFrameHeaderBytes = 9;
constexpr char kSettingsFrame = 4;

// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

absl::Status Error(const char* call, const std::string& address) {
  const std::string message = absl::StrCat(call, " to ", address, ": ", std::strerror(errno));
  if (errno == EMFILE || errno == ENFILE) return absl::ResourceExhaustedError(message);
  return absl::UnavailableError(message);
}

absl::StatusOr<SocketAddress> Resolve(const std::string& address) {
  SocketAddress result;
  if (absl::StartsWith(address, kUnixAddress)) {
    const std::string path = address.substr(sizeof(kUnixAddress) - 1);
    auto* local = reinterpret_cast<sockaddr_un*>(&result.storage);
    if (path.size() >= sizeof(local->sun_path))
      return absl::InvalidArgumentError("socket path too long: " + path);
    local->sun_family = AF_UNIX;
    std::memcpy(local->sun_path, path.data(), path.size());
    result.length = sizeof(sockaddr_un);
    return result;
  }
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  if (host == "0.0.0.0" || host == "*") host = "127.0.0.1";
  if (host == "::") host = "::1";
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found);
  if (error != 0)
    return absl::UnavailableError(absl::StrCat("resolve ", address, ": ", gai_strerror(error)));
  std::memcpy(&result.storage, found->ai_addr, found->ai_addrlen);
  result.length = found->ai_addrlen;
  freeaddrinfo(found);
  return result;
}

// Waits until `events` are there. DeadlineExceeded after `deadline`.
absl::Status Await(int fd, short events, absl::Time deadline, const std::string& address) {
  while (true) {
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left_ms <= 0) return absl::DeadlineExceededError(absl::StrCat("no answer from ", address));
    pollfd waited{fd, events, 0};
    const int ready = poll(&waited, 1, static_cast<int>(left_ms));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return Error("poll", address);
  }
}

absl::Status Greet(const SocketAddress& target, const std::string& address, absl::Time deadline) {
  const Descriptor connection(
      socket(target.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (connection.get() < 0) return Error("socket", address);
  if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&target.storage),
              target.length) != 0) {
    if (errno != EINPROGRESS) return Error("connect", address);
    const absl::Status connected = Await(connection.get(), POLLOUT, deadline, address);
    if (!connected.ok()) return connected;
  }
  if (send(connection.get(), kGreeting, sizeof(kGreeting) - 1, MSG_NOSIGNAL) < 0)
    return Error("send", address);
  char frame[kFrameHeaderBytes];
  size_t received = 0;
  while (received < sizeof(frame)) {
    OCTAVO_RETURN_IF_ERROR(Await(connection.get(), POLLIN, deadline, address));
    const ssize_t count = recv(connection.get(), frame + received, sizeof(frame) - received, 0);
    if (count == 0) return absl::UnavailableError(absl::StrCat(address, " closed the connection"));
    if (count < 0 && errno != EAGAIN && errno != EINTR) return Error("recv", address);
    if (count > 0) received += static_cast<size_t>(count);
  }
  if (frame[3] != kSettingsFrame)
    return absl::UnavailableError(absl::StrCat(address, " does not speak HTTP/2"));
  return absl::OkStatus();
}

}  // namespace

ListenerProbe::ListenerProbe() { Reserve(); }
ListenerProbe::~ListenerProbe() { Release(); }

void ListenerProbe::Reserve() {
  for (int& fd : reserved_) {
    if (fd < 0) fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
}

void ListenerProbe::Release() {
  for (int& fd : reserved_) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
}

absl::Status ListenerProbe::Probe(const std::string& address, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  Release();
  const absl::StatusOr<SocketAddress> target = Resolve(address);
  const absl::Status greeted = target.ok() ? Greet(*target, address, deadline) : target.status();
  Reserve();
  return greeted;
}

}  // namespace octavo::wire
