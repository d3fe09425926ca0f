#include "train/input_uploads.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "delta/engine/any_storage.hpp"

namespace delta::executor {

input_uploads::~input_uploads() {
  give_back();
}

void input_uploads::begin(const sizes& n) {
  assert(!begun_ && "one batch after the other");
  which_ = 1 - which_;
  buffers& b = buffers_[which_];
  if (b.copied.point > 0) device_->wait(b.copied);
  for (std::size_t i = 0; i < inputs; ++i) {
    if (n[i] <= b.size[i]) continue;
    b.at[i] = device_->host_buffer(n[i]);
    b.size[i] = n[i];
  }
  size_ = n;
  begun_ = true;
}

void input_uploads::await() {
  const stamp& copied = current().copied;
  if (copied.point > 0 && !device_->reached(copied)) device_->wait(copied);
}

// The storage makes the compute engine wait for whoever used the bytes; behind that is the stamp.
stamp input_uploads::behind_users() {
  std::array<const block*, inputs> all{};
  for (std::size_t i = 0; i < inputs; ++i) all[i] = &blocks_[i];
  any_storage& storage = memory_->storage();
  storage.begin_operator({}, all);
  const stamp ready = device_->end();
  device_->begin({});
  storage.end_operator({});
  return ready;
}

// Whoever comes behind the blocks' last writer, by the storage's rules, comes behind the copies.
void input_uploads::order_behind_copies() {
  std::array<const block*, inputs> all{};
  for (std::size_t i = 0; i < inputs; ++i) all[i] = &blocks_[i];
  any_storage& storage = memory_->storage();
  storage.begin_operator({}, all);
  device_->begin(fence{}.join(current().copied));
  storage.end_operator({});
}

void input_uploads::start() {
  assert(begun_ && !started_);
  try {
    for (std::size_t i = 0; i < inputs; ++i) blocks_[i] = memory_->take_block(size_[i]);
    const fence ready = fence{}.join(behind_users());
    buffers& b = buffers_[which_];
    for (std::size_t i = 0; i < inputs; ++i)
      b.copied = device_->copy(direction::in, memory_->storage().data(blocks_[i]), b.at[i],
                               size_[i], ready);
  } catch (...) {
    give_back();
    throw;
  }
  started_ = true;
}

void input_uploads::abandon() {
  assert(started_);
  order_behind_copies();
  give_back();
  started_ = false;
}

std::array<tensor_id, input_uploads::inputs> input_uploads::adopt(
    const std::array<const char*, inputs>& labels) {
  if (!started_) start();
  order_behind_copies();
  std::array<tensor_id, inputs> made{};
  for (std::size_t i = 0; i < inputs; ++i)
    made[i] = memory_->variable(size_[i], labels[i], std::move(blocks_[i]));
  begun_ = started_ = false;
  return made;
}

void input_uploads::give_back() noexcept {
  for (block& b : blocks_)
    if (b) memory_->give_back(std::exchange(b, {}));
}

}  // namespace delta::executor
