// Which stream a thread queues its work on.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "scheduler.hpp"

namespace simulated {

inline const c10::Device the_device{c10::DeviceType::PrivateUse1, 0};

StreamNumber current_stream();
/// Gives the stream that was current before.
StreamNumber exchange_current_stream(StreamNumber stream);

inline c10::Stream as_stream(StreamNumber number) {
  return c10::Stream(c10::Stream::UNSAFE, the_device, number);
}

}  // namespace simulated
