// delta executor: the traces of DTR (Kirisame et al., Dynamic Tensor Rematerialization), as its
// PyTorch writes them: one instruction per line. docs/traces.md says what becomes of each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "trace/assembly.hpp"
#include "trace/json_line.hpp"

namespace delta::executor {

class dtr_format final : public trace_format {
 public:
  void line(std::string_view) override;
  trace finish() override;

 private:
  /// The keys that mean something.
  enum class key : unsigned {
    instruction,
    annotation,
    name,
    args,
    result,
    mutate,
    time,
    memory,
    alias,
    dst,
    src
  };
  /// What a line says; of the fields, those whose bit is in `present` hold something.
  struct fields {
    unsigned present = 0;
    std::string_view instruction, annotation, name, dst, src;
    std::vector<std::string_view> args, result;
    std::vector<std::int64_t> mutate;
    std::int64_t time = 0, memory = 0, alias = 0;
  };
  /// What the lines at hand must say, after a CONSTANT or a CALL.
  enum class awaited { anything, constant_memory, result_memory, result_alias };

  void read(std::string_view);
  void store(key);
  static unsigned bit(key which) noexcept { return 1u << static_cast<unsigned>(which); }
  [[nodiscard]] bool has(key which) const noexcept { return (fields_.present & bit(which)) != 0; }
  void need(key) const;
  [[nodiscard]] bool is(std::string_view name) const { return fields_.instruction == name; }

  void instruction_line();
  void continuation();
  void call();
  void end_call();
  void mutation();
  void copy();
  void copy_from();
  void release();

  [[nodiscard]] std::uint32_t tensor(std::string_view name) const;
  void define(std::string_view name, std::uint32_t tensor);
  void refuse_defined(std::string_view name) const;
  void arguments();
  [[nodiscard]] bool from_warm_up(std::string_view name) const;
  [[nodiscard]] bytes size() const;

  json_line in_;
  fields fields_;
  bool started_ = false;
  awaited awaited_ = awaited::anything;
  std::vector<std::string> awaited_names_;  ///< the constant, or the results
  std::size_t next_ = 0;                    ///< of them, whose MEMORY and ALIAS come next
  trace_assembly::draft draft_;
  trace_assembly assembly_;
  text_table tensors_;                 ///< by name; a name is one reference
  std::vector<std::uint32_t> owners_;  ///< of the first tensors' bytes, as far as asked for
  std::string first_name_;             ///< the first that was defined
  std::unordered_set<std::string, text_hash, std::equal_to<>> warm_up_;  ///< released, made before
};

}  // namespace delta::executor
