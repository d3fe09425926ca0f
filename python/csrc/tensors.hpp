// delta_torch: PyTorch's storages as tensors of delta. Each has an entry, which its DataPtr's
// context points to: found in O(1), and told when the storage dies.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "away_reads.hpp"
#include "delta/units.hpp"

namespace delta_torch {

/// A storage that the manager knows. Lives until the storage is dead and the manager has dropped
/// it.
struct entry {
  // Weak, as storages die on any thread: whoever has the lock turns it into a strong one first.
  c10::weak_intrusive_ptr<c10::StorageImpl> storage{c10::intrusive_ptr<c10::StorageImpl>()};
  delta::tensor_id id = delta::tensor_id::none;
  std::byte* at = nullptr;         ///< null: the bytes are away
  std::size_t size = 0;            ///< in bytes
  const char* label = "";          ///< the operator that made it
  std::uint32_t module = 0;        ///< the module in which
  at::DataPtr* outside = nullptr;  ///< the bytes are still those of another allocator
  bool pinned = false;             ///< may not leave any more
  bool held = false;               ///< stays until the end of the step
  bool mapped = false;             ///< memory of a file, or of other processes, too
  bool exposed = false;            ///< others may write its bytes: what reads it can't be replayed
  bool lent = false;               ///< the same, as long as it is held
  bool of_lists = false;           ///< made by an operator over lists (pieces.hpp)
  bool untouched = false;          ///< no operator has used it since it was made
  bool parameter = false;          ///< a leaf that requires its gradient
  std::atomic<bool> dead{false};   ///< the storage has died
  std::uint64_t seen = 0;          ///< the operator that touched it last
  std::uint32_t place = 0;         ///< its place among that operator's storages
  entry* next = nullptr;           ///< in a list of the dead, or of those to be used again
};

/// All entries. Under the session's lock, but for `bury`.
class tensor_table {
 public:
  /// A new entry for a storage. O(1).
  entry& add(c10::StorageImpl* storage, std::size_t size);
  /// The entry of a storage; null: it has none.
  [[nodiscard]] static entry* find(c10::StorageImpl* storage);
  /// That of a storage's DataPtr.
  [[nodiscard]] static entry* find(const at::DataPtr&) noexcept;
  /// Where the manager's tensor is from now on: null that it has no bytes on the device. What is
  /// unknown is ignored: outputs are named only when their operator has ended.
  void moved(delta::tensor_id, std::byte* at);
  /// The manager's name of an entry, or none.
  void name(entry&, delta::tensor_id);
  /// The storage shows the bytes at `at`; the entry owns them.
  /// `watched`: whoever takes their address is seen.
  static void show(entry&, c10::StorageImpl& storage, std::byte* at, bool watched = true);
  /// Whoever takes an address of the storage's bytes, to write them, is seen from now on
  /// (addresses.hpp), where that is of interest. O(1).
  static void watch(const entry&, c10::StorageImpl& storage);
  /// The same of the storage of a manager's tensor, where there is one.
  void watch(delta::tensor_id) const;
  /// Such a reader is there, or is no longer. O(entries).
  void read_away(away_reader, bool on);
  /// The entry, whose manager has dropped it, is used again for another storage.
  void forget(entry&);
  /// The storages that died since the last call, in a list by `next`.
  [[nodiscard]] entry* dead() noexcept { return dead_.exchange(nullptr); }
  /// The entry of a manager's tensor; null: there is none.
  [[nodiscard]] entry* of(delta::tensor_id) const noexcept;
  /// Of all of them together, wherever they are: what the program refers to. In bytes.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// All of them by the manager's names; null between them.
  [[nodiscard]] const std::vector<entry*>& by_id() const noexcept { return by_id_; }
  /// A tensor's bytes came (true) or went: told under the lock.
  void (*told)(const entry&, bool here) = nullptr;
  /// The storage of an entry has died: the deleter of managed DataPtrs. From any thread, without a
  /// lock, as it is called from within the manager, too.
  static void bury(void* context);

 private:
  std::deque<entry> entries_;  // addresses hold
  entry* spare_ = nullptr;
  std::vector<entry*> by_id_;
  std::size_t bytes_ = 0;
  static std::atomic<entry*> dead_;
};

}  // namespace delta_torch
