// delta executor: brings a step's inputs to a device whose kernels run on, without waiting for it,
// and where there is room already during the step before. Every byte on the device is the budget's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "delta/engine/manager_interface.hpp"
#include "delta/units.hpp"
#include "device/machine.hpp"

namespace delta::executor {

/// Two sets of pinned buffers on the host: while one is copied, the next batch is made in the
/// other. On the device a batch has blocks of the manager's (take_block), which become the step's
/// variables: bytes that count, that stay where they are, and that nobody else touches until then.
///
///   uploads.make_room_on_host(sizes);
///   fill(uploads.host(0), uploads.host(1));   // the host's to write
///   if (uploads.fits(...)) uploads.start();    // during the step before
///   id = uploads.adopt(0, "images");           // of the step: starts by itself what has not
///   uploads.finish();
class input_uploads {
 public:
  /// Both outlive it. The machine gives host buffers.
  input_uploads(machine& device, manager_interface& memory) : device_(&device), memory_(&memory) {}
  ~input_uploads();
  input_uploads(const input_uploads&) = delete;
  input_uploads& operator=(const input_uploads&) = delete;

  static constexpr std::size_t inputs = 2;
  using sizes = std::array<bytes, inputs>;

  /// Begins a batch of that size: its buffers may be written when this returns, for which the host
  /// waits where they are still copied. Throws what the machine throws.
  void begin(const sizes&);
  [[nodiscard]] std::byte* host(std::size_t i) const { return current().at[i]; }
  /// A batch was begun, and is not finished.
  [[nodiscard]] bool begun() const noexcept { return begun_; }
  /// It has its blocks, and is on its way.
  [[nodiscard]] bool started() const noexcept { return started_; }

  /// Waits for the copies of the last batch that was started, if they are still under way.
  void await();

  /// Takes blocks and queues the copies, behind all that used these bytes. The buffers are the
  /// device's from here on. Throws budget_exceeded where the manager finds no room, and then
  /// nothing was started.
  void start();
  /// Gives the blocks back; what the host wrote is kept, to be started again. Nothing waits.
  void abandon();
  /// The blocks become variables, and what the compute engine does from here on comes behind the
  /// copies. Ends the batch.
  std::array<tensor_id, inputs> adopt(const std::array<const char*, inputs>& labels);

 private:
  struct buffers {
    std::array<std::byte*, inputs> at{};
    sizes size{};  ///< of what is there
    stamp copied;  ///< its last copy; point 0: none was
  };
  [[nodiscard]] const buffers& current() const { return buffers_[which_]; }
  stamp behind_users();
  void order_behind_copies();
  void give_back() noexcept;

  machine* device_;
  manager_interface* memory_;
  std::array<buffers, 2> buffers_;
  std::size_t which_ = 0;
  sizes size_{};  ///< of the batch
  std::array<block, inputs> blocks_;
  bool begun_ = false, started_ = false;
};

}  // namespace delta::executor
