// delta: an end-to-end check of a run's tensors: a Storage around another one that hashes the bytes
// of every tensor when they are made, and again whenever they should still be the same.
//
//   allocate ... [ kernel ] admit     the hash of a tensor is taken
//   copy_in, then the next use        a reload: compared
//   [ a replay ] recomputed           a recompute: compared
//   [ kernel ]                        what it reads: compared; what it updates: taken anew
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "delta/engine/any_storage.hpp"
#include "delta/error.hpp"
#include "delta/units.hpp"
#include "hashes/forwarding_storage.hpp"

namespace delta::hashes {

/// What was done to a tensor whose bytes differ.
enum class cause : std::uint8_t {
  reload,            ///< it came back from the host
  recompute,         ///< its operator ran again
  undeclared_write,  ///< an operator had it as an argument, and did not say that it writes it
};
[[nodiscard]] const char* name(cause) noexcept;

/// The first tensor whose bytes are not those that it had. The manager can be used on, but bits
/// are wrong from here on.
class tensor_differs final : public error {
 public:
  struct place {
    cause why = cause::reload;
    const char* operation = "";  ///< what ran: for, again, or on it; empty: none
    std::uint64_t number = 0;    ///< that operator's, from 1 on, of those that the program ran
    std::uint64_t step = 0;      ///< it ran in, from 1 on; of a recompute the first time
    const char* maker = "";      ///< the operator that made the tensor; empty: none did
    std::uint64_t maker_number = 0;
    tensor_id tensor = tensor_id::none;
    bytes size{};
  };
  explicit tensor_differs(const place&) noexcept;
  place where;
};

/// What was hashed so far.
struct hash_counts {
  std::uint64_t made = 0;                                    ///< bytes that were new
  std::uint64_t reloads = 0, recomputes = 0, arguments = 0;  ///< tensors that were compared
  bytes hashed{};
  [[nodiscard]] std::uint64_t compared() const noexcept { return reloads + recomputes + arguments; }
};

/// How tensors are hashed.
struct hash_options {
  /// Asked of a tensor that differs; true: that is nobody's fault. Empty: none is such.
  std::function<bool(tensor_id)> written_by_others = {};
  /// Calls `f` for all numbers below `n`, by several threads. Empty: one after the other.
  std::function<void(std::size_t n, const std::function<void(std::size_t)>& f)> in_parallel = {};
};

/// Of memory that the host can read and where work is over when a call returns, but for copies.
/// Everything else is the storage's that it owns. Who runs operators tells it of them; without that
/// recomputes are not told from new tensors. Between two operators nobody may write a tensor but
/// through a view (manager::acquire). Changes are found, not thrown, as a storage that throws
/// poisons its manager: `check` throws.
class hashed_storage final : public forwarding_storage {
 public:
  explicit hashed_storage(std::unique_ptr<any_storage> over, hash_options = {});

  // --- what the program tells
  // ---------------------------------------------------------------------

  /// The program begins an operator, which writes these beside the updates that it names, giving
  /// them new versions. `operation` lives as long as this.
  void begins(const char* operation, std::span<const tensor_id> renewed = {});
  /// It is over.
  void ends() noexcept { operation_ = ""; }
  /// Called from within the kernel of an operator that runs again.
  void replays(const char* operation) noexcept { again_ = operation; }
  void end_of_step() noexcept { ++step_; }
  /// Throws tensor_differs where one did since the last call: of several the first.
  void check();
  [[nodiscard]] const hash_counts& counts() const noexcept { return counts_; }

  // --- the Storage
  // --------------------------------------------------------------------------------

  std::optional<block> allocate(bytes, lifetime) override;
  void free(block&&) override;
  void free(slab&& h) override { forwarding_storage::free(std::move(h)); }
  [[nodiscard]] bool knows(const block&, bytes) const override;
  void on_owner_changed(const block&, tensor_id) override;
  std::optional<transfer> copy_out(block&) override;
  transfer copy_in(slab&&, block&&) override;
  void begin_operator(std::span<const block* const> reads,
                      std::span<const block* const> writes) override;
  stamp end_operator(nanoseconds cost) override;
  void hold(const block&) override;
  void unhold(const block&) override;

 private:
  /// A block in use.
  struct row {
    bytes size{};
    tensor_id tensor = tensor_id::none;
    std::uint64_t bracket = 0;  ///< the last that named it
    std::uint32_t holds = 0;    ///< views: the program may write it
    enum class written : std::uint8_t { no, first, again } last = written::no;  ///< by an operator
    enum class waiting : std::uint8_t { nothing, first_hash, comparison } next = waiting::nothing;
    stamp copied{};  ///< before its comparison
  };
  struct tensor {
    std::uint64_t hash = 0;
    bool known = false;
    const char* maker = "";
    std::uint64_t number = 0, step = 0;
  };
  struct argument {
    std::uint32_t row;
    tensor_id tensor;
    std::byte* at;
    bool written;
  };

  row& row_of(const block&);
  tensor& of(tensor_id);
  void settle(row&, std::byte* at);
  void enter(const block&, bool written);
  std::uint64_t hash_of(const row&, const std::byte* at);
  void take(const row&, const std::byte* at);
  void compare(const row&, const std::byte* at, cause);

  hash_options options_;
  std::vector<std::uint64_t> pieces_;  // the hashes of one tensor's
  mutable std::vector<row> rows_;      // `knows` is told the size of a block that was adopted
  std::vector<tensor> tensors_;
  std::vector<argument> arguments_;        // of the bracket that is open
  std::vector<std::uint32_t> in_bracket_;  // rows that it names, or that came meanwhile
  std::vector<tensor_id> renewed_;         // by the operator at hand
  std::uint64_t brackets_ = 0;
  bool open_ = false;
  const char* again_ = nullptr;  // the operator that runs again in the bracket; null: none
  const char* operation_ = "";
  std::uint64_t number_ = 0, step_ = 1;
  hash_counts counts_;
  std::optional<tensor_differs::place> first_;
  bool told_ = false;
};

}  // namespace delta::hashes
