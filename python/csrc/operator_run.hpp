// delta_torch: an operator of PyTorch that the program runs, as an operator of delta. What happens
// before its kernel runs is in operator_begin.cpp, what happens behind it in operator_end.cpp.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "operators.hpp"
#include "replay.hpp"
#include "session.hpp"
#include "threads.hpp"

namespace delta_torch {

/// A storage that the operator at hand touches.
struct touched {
  entry* known = nullptr;  // null: without bytes
  c10::StorageImpl* storage = nullptr;
  bool written = false, statistics = false;
  bool held = false;     // the program has its address
  bool renewed = false;  // written, and its old value could be recomputed: it gets a new version
  storage_role role;
};

/// Lists of the operator at hand, one at a time: their memory is used again. Under `operators`.
struct workplace {
  operator_table table;
  std::vector<touched> storages;
  std::vector<argument> arguments;
  std::vector<std::int64_t> numbers;
  std::vector<delta::tensor_id> inputs, updates, replaced, made;
  std::vector<output> outputs;
  std::vector<entry*> renewed;
  struct fresh_output {
    c10::intrusive_ptr<c10::StorageImpl> storage;
    header* bytes;
  };
  std::vector<fresh_output> fresh;
  // What an operator of somebody else's does not declare as written, and the version that it has.
  std::vector<std::pair<at::Tensor, std::uint32_t>> undeclared;
  std::uint64_t operations = 0;

  /// Never destroyed, as PyTorch runs operators until the very end.
  static workplace& one() {
    static workplace& place = *new workplace;
    return place;
  }
  void clear() {
    storages.clear(), arguments.clear(), numbers.clear();
    inputs.clear(), updates.clear(), replaced.clear(), made.clear();
    outputs.clear(), renewed.clear(), fresh.clear(), undeclared.clear();
  }
};
/// A run of one operator, from its arguments to its record. Under `operators`.
class operator_run {
 public:
  operator_run(session& s, thread_state& t, const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : session_(s),
        thread_(t),
        op_(op),
        stack_(stack),
        w_(workplace::one()),
        info_(w_.table.of(op)) {
    w_.clear();
    thread_.within_operator = true;
  }
  ~operator_run() {
    if (number_ != 0 && session_.taken.operation == number_) give_up();  // it was never opened
    w_.undeclared.clear();
    thread_.within_operator = false;
  }
  operator_run(const operator_run&) = delete;
  operator_run& operator=(const operator_run&) = delete;

  struct opening {
    bool done;
    c10::intrusive_ptr<c10::ivalue::Future> awaited;
    std::vector<torch::jit::Stack> pieces;
  };
  /// How an operator over lists is cut (pieces.hpp): as there is room, or, where it is a piece
  /// itself, only if it does not fit.
  enum class cutting : std::uint8_t { as_fits, if_it_must };
  /// Everything that the kernel touches is on the device. Else nothing is open, and other
  /// operator_runs are to try again: of each of its `pieces`, by their arguments; or, where there
  /// are none, of the same: when a collective is over, `awaited`, before which there is no room, or
  /// at once. By `may_wait` false the former is an error.
  opening open(bool may_wait, cutting);
  /// The kernel has run.
  void close();
  /// The kernel has thrown.
  void give_up();

 private:
  void begin();
  [[nodiscard]] bool cut_in_two(std::vector<std::size_t>& ends) const;
  void refuse_untested() const;
  void look_at_arguments();
  void look_at(const at::Tensor&, std::size_t position, std::int16_t element, bool written);
  std::uint16_t touch(c10::StorageImpl*, const at::Tensor&, bool written);
  [[nodiscard]] bool written_by_others(const at::Tensor&) const;
  bool remember_value(const at::Tensor&);
  void sign();
  void name_roles();
  void remember_state();
  void refuse_undeclared_writes() const;
  void find_outputs();
  void find_output(const at::Tensor&, std::int32_t returned);
  void name_outputs();
  void end();
  void settle();
  void take_off();
  void watch_again();
  void retreat();
  void drop_deleter() noexcept;

  session& session_;
  thread_state& thread_;
  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  workplace& w_;
  operator_info& info_;
  std::uint64_t number_ = 0;
  bool replayable_ = true;
  bool in_flight_ = false;  // a collective that has begun
  signature which_;
  const char* label_ = "";
  std::unique_ptr<recorded_operator> recorded_;
  std::optional<delta::manager_interface::open_operator> open_;
};

}  // namespace delta_torch
