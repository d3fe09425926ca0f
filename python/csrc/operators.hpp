// delta_torch: what delta has to know of a PyTorch operator, from its schema, once per operator.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "collectives.hpp"

namespace delta_torch {

/// How an argument is looked through for tensors.
enum class argument_kind : std::uint8_t { none, tensor, tensors, optional_tensors, anything };

/// Of one operator.
struct operator_info {
  std::vector<argument_kind> arguments;
  std::vector<bool> written;  ///< by argument
  std::vector<bool> running;  ///< by argument: written only where `conditions` hold
  std::size_t returns = 0;
  bool foreign = false;     ///< not PyTorch's: its schema may be wrong
  bool random = false;      ///< may draw from the default generator
  bool resizes = false;     ///< may give its argument another storage
  bool undefined = false;   ///< makes tensors without writing them
  bool factory = false;     ///< makes them from no tensor's bytes
  bool statistics = false;  ///< writes running statistics, on which its outputs do not depend
  bool advances = false;  ///< what it writes where `conditions` hold has a state: not replayed then
  bool any_order = false;  ///< an accelerator may add in another order when it runs again
  std::vector<std::size_t> conditions;  ///< arguments that say, all of them, that it trains
  /// Arguments with a value for each of the tensors that it goes through one by one, which
  /// pieces.hpp cuts alike; none where it does otherwise.
  std::vector<std::size_t> per_tensor;
  bool opaque = false;  ///< tensors may hide within an argument: not replayed
  collective_kind collective = collective_kind::none;
  std::string name;
  std::vector<const char*> labels;  ///< by module; null: not made yet
};

/// Reads the schema of an operator.
[[nodiscard]] operator_info info_of(const c10::OperatorHandle&);
/// Is it only metadata, or made of operators that come back to the dispatcher one by one? Then it
/// need not be seen.
[[nodiscard]] bool passes_through(const c10::OperatorHandle&);
/// True if it is made of operators that come back to the dispatcher one by one.
[[nodiscard]] bool is_made_of_others(const c10::OperatorHandle&);

/// An operator that is made of others, and reads the memory of its tensors by itself.
struct reading_operator {
  const char *name, *overload;
  bool whole_numbers_only = true;  ///< of lengths, batch sizes or places alone
};
/// Those that are known; tests/test_operators.py finds what is missing.
inline constexpr std::array<reading_operator, 9> reading_operators{
    {{"aten::_pad_packed_sequence", ""},
     {"aten::_pack_padded_sequence_backward", ""},
     {"aten::lstm", "data"},
     {"aten::gru", "data"},
     {"aten::rnn_tanh", "data"},
     {"aten::rnn_relu", "data"},
     {"aten::ctc_loss", "Tensor"},
     {"aten::tensor_split", "tensor_indices_or_sections"},
     {"aten::max_pool1d", "", false}}};
/// The entry of one; null: it is none.
[[nodiscard]] const reading_operator* reads_by_itself(const c10::OperatorName&);
/// Is it made of others, and has an `out=` tensor? It may give that other bytes by itself.
[[nodiscard]] bool resizes_by_itself(const c10::OperatorHandle&);

/// All operators seen so far. Under the lock `operators`.
class operator_table {
 public:
  [[nodiscard]] operator_info& of(const c10::OperatorHandle&);
  /// "features.0 aten::convolution": lives for ever. O(1).
  static const char* label(operator_info&, std::uint32_t module, const std::string& module_name);

 private:
  struct place {
    const void* key = nullptr;
    operator_info* info = nullptr;
  };
  std::unordered_map<const void*, operator_info> infos_;  // addresses hold
  std::array<place, 256> latest_{};  // a program has few operators: by a part of the key
};

}  // namespace delta_torch
