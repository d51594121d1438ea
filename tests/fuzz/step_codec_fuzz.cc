// Whatever a peer sends as a plan or as a result: decoding refuses it or gives a value, and that
// value survives the wire unchanged. Sound messages are compared as bytes, since a log-probability
// can be NaN. The input is one byte (even: a plan, odd: a result), then the message.

#include <cstdint>
#include <string>

#include "common/wire/step_codec.h"
#include "glog/logging.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "octavo/v1/step.pb.h"
#include "tests/fuzz/byte_source.h"

namespace octavo {
namespace {

// Map entries in order of their keys; left to itself, protobuf orders each map its own way.
std::string Serialize(const google::protobuf::MessageLite& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    CHECK(message.SerializeToCodedStream(&coded));
  }
  return bytes;
}

template <typename Message, typename Decode, typename Encode>
void CheckRoundTrip(const std::string& bytes, Decode decode, Encode encode) {
  Message received;
  if (!received.ParseFromString(bytes)) return;
  const auto value = decode(received);
  if (!value.ok()) {
    CHECK(!value.status().message().empty());
    return;
  }
  Message sent;
  encode(*value, sent);
  const auto again = decode(sent);
  CHECK(again.ok()) << again.status();
  Message sent_again;
  encode(*again, sent_again);
  CHECK(Serialize(sent) == Serialize(sent_again));
}

}  // namespace
}  // namespace octavo

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace octavo;
  ByteSource source({bytes, size});
  const bool is_result = source.Flag();
  const std::string message = source.Rest();
  if (is_result) {
    CheckRoundTrip<v1::StepResult>(message, wire::DecodeResult, wire::EncodeResult);
  } else {
    CheckRoundTrip<v1::StepPlan>(message, wire::DecodePlan, wire::EncodePlan);
  }
  return 0;
}
