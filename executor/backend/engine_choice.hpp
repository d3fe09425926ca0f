// delta executor: which of a library's engines (implementations) a convolution runs on: the fastest
// by the library's own estimate that keeps the promises of precision and determinism and whose
// workspace the memory has room for. The rule alone: neither CUDA nor cuDNN is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "delta/units.hpp"

namespace delta::executor {

/// What the library says of an engine.
struct engine_notes {
  bool nondeterministic = false;  ///< other bits from run to run
  bool tensor_core = false;       ///< with float32 inputs: they are rounded to TF32
  bool converts = false;          ///< inputs to a smaller type, such as half precision
  bool sums_in_less = false;      ///< than float32
  /// It is compiled when its plan is built, by another library's version: the choice would depend
  /// on that, too.
  bool compiles = false;
  bool unknown = false;  ///< there is a note that this program has no name for
};

/// An engine, set up in one way.
struct engine_candidate {
  std::int64_t engine = -1;                              ///< its global index
  std::vector<std::pair<int, std::int64_t>> knobs = {};  ///< type and value, in the library's order
  bytes workspace{};
  engine_notes notes = {};
};

/// "engine 68, knobs 2=0 13=0, tensor cores": names it for good, in one version of the library on
/// one kind of GPU.
[[nodiscard]] std::string to_string(const engine_candidate&);

/// What a convolution asks of its engine.
struct engine_rule {
  bool tf32 = false;  ///< tensor cores may round inputs
  bytes room{};       ///< for the workspace
};

enum class engine_refusal : std::uint8_t {
  none,
  nondeterministic,
  precision,  ///< less than float32, or than TF32 where that is allowed
  compiles,
  unknown,
  workspace  ///< there is no room for it
};

/// Why the rule refuses an engine; what it is comes before what it takes. O(1).
[[nodiscard]] engine_refusal refusal_of(const engine_candidate&, const engine_rule&) noexcept;

/// The first candidate, best first, that the rule allows and `builds` makes work; nullopt: none.
/// One that throws as it is built is passed over like one that can't be: it is one lane of many.
/// But where none is left, what the first of these threw is thrown, as on a context that is lost
/// all of them fail.
[[nodiscard]] std::optional<std::size_t> choose_engine(
    std::span<const engine_candidate>, const engine_rule&,
    const std::function<bool(const engine_candidate&)>& builds);

/// The most that any one workspace may take where nobody says otherwise.
inline constexpr bytes most_workspace = 1_GiB;
/// The part of the memory that it may take where tensors fill all of it.
inline constexpr std::uint64_t least_room_of = 16;

/// How much room an operator's workspace has in `memory`, of which tensors that are alive then take
/// `live`: what they leave, or a sixteenth of the memory where they leave less, and most_workspace
/// at the most. A workspace so takes bytes that are free at its point of the step before it makes
/// tensors leave, and never more than a small part of the budget in place of them. No memory (0):
/// most_workspace. O(1).
[[nodiscard]] bytes workspace_room(bytes memory, bytes live) noexcept;

}  // namespace delta::executor
