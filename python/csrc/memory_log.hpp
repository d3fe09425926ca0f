// delta_torch: the blocks that a run's memory gives and takes back, each with the operator that it
// is for: a run's memory over time, to the byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "delta/engine/any_storage.hpp"
#include "delta/units.hpp"
#include "hashes/forwarding_storage.hpp"

namespace delta_torch {

/// The last changes of a run's memory, and what is in use. Under the session's lock `state`.
class memory_log {
 public:
  /// As many changes are kept: 6 MB of them.
  static constexpr std::size_t most = std::size_t{1} << 17u;

  /// A block in use. Texts live as long as the log.
  struct block {
    std::uint64_t address = 0, bytes = 0;  ///< rounded, as it counts; 0: none
    const char* maker = "";                ///< of its tensor, or what that is; empty: not known
    const char* needed_by = "";            ///< the operator that ran; empty: none
  };
  /// A block was taken, or given back.
  struct change {
    block what;
    bool taken = false;
    std::int64_t time = 0;  ///< ns since 1970, of one of the last sixteen changes
  };

  /// The block of that number is in use; `needed_by`: by an operator; empty: by none. `adopted`:
  /// its bytes were there before. O(1).
  void take(std::uint32_t number, const block&, bool adopted = false);
  /// It is not any more. The bytes that go; 0: they were adopted, or the log doesn't know the
  /// block.
  std::uint64_t give(std::uint32_t number);
  /// Its bytes are those of a tensor that this operator has made. O(1).
  void name(std::uint32_t number, const char* maker);
  /// The same text, for as long as the log lives.
  [[nodiscard]] const char* keep(std::string text) {
    return texts_.emplace_back(std::move(text)).c_str();
  }
  /// Nothing that follows is the run's.
  void close() noexcept { closed_ = true; }

  /// The changes that are kept, in order; and what was in use when the run ended, or is now.
  [[nodiscard]] std::vector<change> changes() const;
  [[nodiscard]] std::vector<block> in_use() const;

 private:
  struct row {
    block what;
    std::uint64_t taken_at = 0;  ///< the change that took it
    bool adopted = false;
  };
  void add(const block&, bool taken);

  std::vector<change> ring_;
  std::uint64_t count_ = 0;  // of all changes
  std::int64_t now_ = 0;     // when the clock was read last
  std::vector<row> rows_;    // by the block's number
  std::deque<std::string> texts_;
  bool closed_ = false;
};

/// Hands everything on, writes the log, and tells PyTorch's profiler what the CPU's memory gives
/// and takes back; an accelerator's comes from PyTorch's allocator, which tells it itself.
class logged_storage final : public delta::forwarding_storage {
 public:
  logged_storage(std::unique_ptr<any_storage> over, std::shared_ptr<memory_log> log)
      : forwarding_storage(std::move(over)), log_(std::move(log)) {}

  std::optional<delta::block> allocate(delta::bytes, delta::lifetime) override;
  void free(delta::block&&) override;
  void free(delta::slab&& h) override { forwarding_storage::free(std::move(h)); }
  void on_owner_changed(const delta::block&, delta::tensor_id) override;

 private:
  void tell_profiler(void* at, std::int64_t change) const;

  std::shared_ptr<memory_log> log_;
};

}  // namespace delta_torch
